#include "trainer/worker_session.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/gpu_context.h"
#include "trainer/comm/gpu_rendezvous.h"
#include "trainer/comm/shm_comm.h"
#ifdef COHORT_HAVE_GLOO
#include "trainer/comm/nodes_comm.h"
#endif

namespace cohort::trainer {
namespace {

constexpr size_t kWhyBytesMax = 1 << 10;
// Of ranks that are done, for one that still writes the last checkpoint.
constexpr absl::Duration kFinishTimeout = absl::Hours(1);

void Tell(const DaemonLink& link, const GpuEnd& end) {
  v1::GpuEnd wire;
  wire.set_level(static_cast<v1::GpuAbortLevel>(end.level));
  wire.set_why(end.why.substr(0, kWhyBytesMax));
  const absl::Status told = link.ReportGpuEnd(wire);
  if (told.ok()) return;
  COHORT_LOG(kWarning, "gpu_end_untold", {"why", told.message()});
}

}  // namespace

absl::StatusOr<WorkerSessionOptions> WorkerSessionFromEnvironment() {
  WorkerSessionOptions options;
  COHORT_ASSIGN_OR_RETURN(static_cast<DaemonLinkOptions&>(options),
                          DaemonLinkFromEnvironment());
  return options;
}

absl::StatusOr<std::unique_ptr<WorkerSession>> WorkerSession::Join(
    WorkerSessionOptions options) {
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<DaemonLink> link,
                          DaemonLink::Join(options));
  std::unique_ptr<WorkerSession> session(
      new WorkerSession(std::move(options), std::move(link)));
  COHORT_RETURN_IF_ERROR(session->BuildComms());
  return session;
}

WorkerSession::WorkerSession(WorkerSessionOptions options,
                             std::unique_ptr<DaemonLink> link)
    : options_(std::move(options)), link_(std::move(link)) {}

WorkerSession::~WorkerSession() = default;

absl::Status WorkerSession::BuildComms() {
  COHORT_RETURN_IF_ERROR(BuildHostComm());
  return options_.can_use_gpu ? BuildGpuComm() : absl::OkStatus();
}

absl::Status WorkerSession::BuildHostComm() {
  // The place is claimed in any case: metrics go through it.
  COHORT_ASSIGN_OR_RETURN(
      arena_place_,
      shm::ArenaPlace::Claim(link_->runtime_directory(), place().local_rank));
  const uint64_t epoch = static_cast<uint64_t>(place().epoch);
  if (place().node_count == 1) {
    COHORT_ASSIGN_OR_RETURN(host_comm_, ShmComm::Create(*arena_place_, epoch));
    // So that the first operation's deadline does not have to cover the start
    // of the slowest rank.
    return host_comm_->Barrier(options_.gang_timeout);
  }
#ifdef COHORT_HAVE_GLOO
  Exchange exchange = link_->ExchangeUnder("");
  COHORT_ASSIGN_OR_RETURN(
      NodesComm connected,
      ConnectNodes(
          {.rank = place().rank,
           .world = place().world,
           .epoch = epoch,
           .hostname = link_->host(),
           .connect_deadline = options_.gang_timeout},
          {.node = place().node_rank, .local_rank = place().local_rank},
          *arena_place_, exchange));
  host_comm_ = std::move(connected.comm);
  if (place().rank == 0) {
    COHORT_LOG(kInfo, "comm_over_nodes", {"over", connected.description});
  }
  return host_comm_->Barrier(options_.gang_timeout);
#else
  return absl::FailedPreconditionError(absl::StrCat(
      "this gang is spread over ", place().node_count,
      " nodes and this program is without Gloo (linked statically, or built "
      "where libgloo-dev was not): place the gang on one node (--strategy "
      "STRICT_PACK)"));
#endif
}

absl::Status WorkerSession::BuildGpuComm() {
  GpuCommOptions options = GpuOfThisMachine();
  options.connect_deadline = options_.gang_timeout;
  options.tell = [link = link_.get()](const GpuEnd& end) { Tell(*link, end); };
  Exchange exchange = link_->ExchangeUnder("");
  auto comm = ConnectGpuComm(std::move(options), *host_comm_, exchange);
  if (comm.ok()) {
    COHORT_LOG(kInfo, "gpu_comm", {"rank", place().rank},
               {"over", (*comm)->description()});
    gpu_comm_ = *std::move(comm);
    return absl::OkStatus();
  }
  if (GetReason(comm.status()) != kGpusUnusable) return comm.status();
  COHORT_LOG(kWarning, "no_gpu_comm", {"rank", place().rank},
             {"why", comm.status().message()});
  return absl::OkStatus();
}

absl::string_view ReductionNote(Session& session, bool use_gpu) {
  const bool is_staged =
      use_gpu && session.world() > 1 && !session.comm().allocates_on_device();
  return is_staged ? ", reducing through the host" : "";
}

absl::Status WorkerSession::Report(absl::string_view metrics) {
  if (metrics.size() > kMetricsBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a report of ", metrics.size(), " bytes is larger than the ",
        kMetricsBytesMax, " that its cell holds"));
  }
  COHORT_RETURN_IF_ERROR(link_->CheckMembership());
  return arena_place_->metrics().Publish(metrics);
}

absl::Status WorkerSession::CommitCheckpoint(absl::string_view path,
                                             int64_t step,
                                             std::optional<double> score) {
  return link_->CommitCheckpoint(path, step, score);
}

absl::Status WorkerSession::Finish() {
  COHORT_RETURN_IF_ERROR(link_->CheckMembership());
  // Nobody leaves while a peer still needs its memory or its connection.
  return comm().Barrier(kFinishTimeout);
}

}  // namespace cohort::trainer
