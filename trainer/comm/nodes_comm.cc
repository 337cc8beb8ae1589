#include "trainer/comm/nodes_comm.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/status_macros.h"
#include "trainer/comm/hierarchical_comm.h"
#include "trainer/comm/shm_comm.h"

namespace cohort::trainer {
namespace {

// More than a lane's communicator asks for.
constexpr int kRoundsMax = 16;

absl::StatusOr<std::vector<Seat>> LearnSeats(const Seat& mine,
                                             absl::Duration deadline,
                                             Exchange& exchange) {
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> all,
      exchange("seats", absl::StrCat(mine.node, " ", mine.local_rank),
               deadline));
  std::vector<Seat> seats;
  for (const std::string& blob : all) {
    const std::vector<absl::string_view> words = absl::StrSplit(blob, ' ');
    Seat& seat = seats.emplace_back();
    if (words.size() != 2 || !absl::SimpleAtoi(words[0], &seat.node) ||
        !absl::SimpleAtoi(words[1], &seat.local_rank)) {
      return absl::InternalError(absl::StrCat("malformed seat of rank ",
                                              seats.size() - 1, ": ", blob));
    }
  }
  return seats;
}

// The exchanges of all lanes are exchanges of all ranks, in rounds, since those
// without a lane must take part.  '+' is in front of a lane's blobs.
class LaneRounds {
 public:
  LaneRounds(const NodeLayout& layout, Exchange& exchange)
      : layout_(layout), exchange_(exchange) {}

  // What the ranks of a lane exchange, by node.
  Exchange Of(int lane) {
    return [this, lane](absl::string_view, std::string mine,
                        absl::Duration deadline)
               -> absl::StatusOr<std::vector<std::string>> {
      COHORT_ASSIGN_OR_RETURN(std::vector<std::string> all,
                              Meet(absl::StrCat("+", mine), deadline));
      std::vector<std::string> blobs;
      for (int node = 0; node < layout_.nodes(); ++node) {
        const size_t rank = static_cast<size_t>(layout_.FirstOf(node) + lane);
        if (all[rank].empty()) {
          return absl::InternalError(
              absl::StrCat("rank ", rank, " connects no more"));
        }
        blobs.push_back(all[rank].substr(1));
      }
      return blobs;
    };
  }

  // Until no lane connects.
  absl::Status Finish(absl::Duration deadline) {
    for (int round = 0; round < kRoundsMax; ++round) {
      COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                              Meet("", deadline));
      if (std::all_of(all.begin(), all.end(),
                      [](const std::string& blob) { return blob.empty(); })) {
        return absl::OkStatus();
      }
    }
    return absl::InternalError("the lanes do not come to an end");
  }

 private:
  absl::StatusOr<std::vector<std::string>> Meet(std::string mine,
                                                absl::Duration deadline) {
    COHORT_ASSIGN_OR_RETURN(
        std::vector<std::string> all,
        exchange_(absl::StrCat("lanes/", round_++), std::move(mine), deadline));
    if (all.size() != static_cast<size_t>(layout_.world())) {
      return absl::InternalError(absl::StrCat("exchange gave ", all.size(),
                                              " blobs for ", layout_.world()));
    }
    return all;
  }

  const NodeLayout& layout_;
  Exchange& exchange_;
  int round_ = 0;
};

absl::StatusOr<std::unique_ptr<Comm>> ConnectLane(
    const GlooCommOptions& options, const NodeLayout& layout, int local_rank,
    Exchange& exchange) {
  LaneRounds rounds(layout, exchange);
  std::unique_ptr<Comm> lane;
  if (local_rank < HierarchicalComm::LanesOf(layout)) {
    GlooCommOptions of_lane = options;
    of_lane.rank = layout.NodeOf(options.rank);
    of_lane.world = layout.nodes();
    Exchange blobs = rounds.Of(local_rank);
    COHORT_ASSIGN_OR_RETURN(lane, ConnectGloo(of_lane, blobs));
  }
  COHORT_RETURN_IF_ERROR(rounds.Finish(options.connect_deadline));
  return lane;
}

absl::StatusOr<NodesComm> ConnectFlat(const GlooCommOptions& options,
                                      absl::string_view why,
                                      Exchange& exchange) {
  NodesComm result;
  COHORT_ASSIGN_OR_RETURN(result.comm, ConnectGloo(options, exchange));
  result.description = absl::StrCat("Gloo: ", why);
  return result;
}

}  // namespace

absl::StatusOr<NodesComm> ConnectNodes(const GlooCommOptions& options,
                                       const Seat& seat, shm::ArenaPlace& place,
                                       Exchange& exchange) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<Seat> seats,
                          LearnSeats(seat, options.connect_deadline, exchange));
  const absl::StatusOr<NodeLayout> layout = NodeLayout::Of(seats);
  if (!layout.ok()) {
    return ConnectFlat(options, layout.status().message(), exchange);
  }
  if (layout->largest() == 1) {
    return ConnectFlat(options, "each node has one rank", exchange);
  }
  COHORT_ASSIGN_OR_RETURN(
      std::unique_ptr<Comm> lane,
      ConnectLane(options, *layout, seat.local_rank, exchange));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ShmComm> local,
                          ShmComm::Create(place, options.epoch));
  NodesComm result;
  COHORT_ASSIGN_OR_RETURN(
      result.comm, HierarchicalComm::Create(*layout,
                                            {.rank = options.rank,
                                             .world = options.world,
                                             .epoch = options.epoch},
                                            std::move(local), std::move(lane)));
  const int lanes = HierarchicalComm::LanesOf(*layout);
  result.description =
      absl::StrCat("shared memory in nodes, Gloo between them (", lanes,
                   lanes == 1 ? " lane): " : " lanes): ", options.world,
                   " ranks on ", layout->nodes(), " nodes");
  return result;
}

}  // namespace cohort::trainer
