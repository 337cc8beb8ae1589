#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "shm/arena.h"
#include "trainer/comm/comm.h"
#include "trainer/daemon_link.h"
#include "trainer/session.h"

namespace cohort::trainer {

// What the worker daemon tells a rank, and what its program wants.
struct WorkerSessionOptions : DaemonLinkOptions {
  // How long the other ranks may take to start and to come to the first
  // meeting.
  absl::Duration gang_timeout = absl::Minutes(5);
  // Whether this program can work in its GPU's memory, alike on all ranks.  It
  // then gets NCCL where every rank has a GPU of its own, CUDA IPC where all
  // share one, else what it would get without, with a line that says why:
  // it asks comm().allocates_on_device().
  bool can_use_gpu = false;
};

// InvalidArgument, naming the variable, when one is missing or malformed.
absl::StatusOr<WorkerSessionOptions> WorkerSessionFromEnvironment();

// A rank's session through the worker daemon of its node, its only peer: a unix
// socket for the rare words, the attempt's shared memory for the rest.  A
// daemon that is away is waited for; a head that is away is not noticed.
//
// Ranks of one node reduce in shared memory, a gang over several nodes over
// Gloo; programs that can use their GPU, on it beside one of these.
class WorkerSession final : public Session {
 public:
  // Joins: blocks until this rank knows its place and its communicator is
  // built, which takes all ranks.  FailedPrecondition when the attempt is over
  // or the gang needs Gloo and this build has none; DeadlineExceeded beyond the
  // timeout; errors of DaemonLink::Join, ArenaPlace::Claim and the
  // communicators.
  static absl::StatusOr<std::unique_ptr<WorkerSession>> Join(
      WorkerSessionOptions options);
  ~WorkerSession() override;

  const RunPlace& place() const override { return link_->place(); }
  std::optional<RunNotice> notice() const override { return link_->notice(); }
  Comm& comm() override { return gpu_comm_ ? *gpu_comm_ : *host_comm_; }
  absl::Status Report(absl::string_view metrics) override;
  absl::Status CommitCheckpoint(absl::string_view path, int64_t step,
                                std::optional<double> score) override;
  absl::Status Finish() override;

 private:
  WorkerSession(WorkerSessionOptions options, std::unique_ptr<DaemonLink> link);

  absl::Status BuildComms();
  absl::Status BuildHostComm();
  absl::Status BuildGpuComm();

  const WorkerSessionOptions options_;
  const std::unique_ptr<DaemonLink> link_;
  std::unique_ptr<shm::ArenaPlace> arena_place_;
  std::unique_ptr<Comm> host_comm_;
  // Over host_comm_; null where that is all there is.
  std::unique_ptr<Comm> gpu_comm_;
};

// For the line that says what a run trains on: ", reducing through the host"
// where its GPUs cannot, else nothing.
absl::string_view ReductionNote(Session& session, bool use_gpu);

}  // namespace cohort::trainer
