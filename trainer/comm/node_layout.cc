#include "trainer/comm/node_layout.h"

#include <algorithm>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cohort::trainer {

absl::StatusOr<NodeLayout> NodeLayout::Of(std::span<const Seat> seats) {
  NodeLayout layout;
  std::set<int> seen;
  for (size_t i = 0; i < seats.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (i > 0 && seats[i].node != seats[i - 1].node) {
      layout.first_.push_back(rank);
    }
    const int expected = rank - layout.first_.back();
    const bool is_new = expected == 0;
    if (seats[i].local_rank != expected ||
        (is_new && !seen.insert(seats[i].node).second)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", rank, " does not follow the ranks of its node"));
    }
  }
  layout.first_.push_back(static_cast<int>(seats.size()));
  return layout;
}

int NodeLayout::NodeOf(int rank) const {
  const auto behind = std::upper_bound(first_.begin(), first_.end(), rank);
  return static_cast<int>(behind - first_.begin()) - 1;
}

int NodeLayout::smallest() const {
  int size = world();
  for (int node = 0; node < nodes(); ++node) {
    size = std::min(size, SizeOf(node));
  }
  return size;
}

int NodeLayout::largest() const {
  int size = 0;
  for (int node = 0; node < nodes(); ++node) {
    size = std::max(size, SizeOf(node));
  }
  return size;
}

}  // namespace cohort::trainer
