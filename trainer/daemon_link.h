#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/process_environment.h"
#include "cohort/v1/domain.pb.h"
#include "cohort/v1/run.pb.h"
#include "common/backoff.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "rpc/channel.h"
#include "rpc/method.h"
#include "trainer/comm/comm.h"
#include "trainer/session.h"

namespace cohort::trainer {

// What the worker daemon tells a rank in its environment.
struct DaemonLinkOptions : client::ProcessEnvironment {
  // How long a daemon that is being restarted is waited for; nobody else ends a
  // rank for it.
  absl::Duration daemon_timeout = absl::Minutes(2);
};

// True in a process that a worker daemon started as a rank.
using client::IsRank;
// InvalidArgument, naming the variable, when one is missing or malformed.
absl::StatusOr<DaemonLinkOptions> DaemonLinkFromEnvironment();

// A rank's words with the worker daemon of its node, its only peer, over a unix
// socket.  A daemon that is away is waited for; a head that is away is not
// noticed.  Blocks.  Thread-compatible.
//
// What the daemon tells meanwhile waits until the next call here, on the
// thread that makes it.
class DaemonLink {
 public:
  // Joins: returns when the rank knows its place.  FailedPrecondition when this
  // process is over for the daemon; InvalidArgument for a job whose restart
  // policy is not ALL; Unavailable when the daemon stays away; errors of the
  // credential's file.
  static absl::StatusOr<std::unique_ptr<DaemonLink>> Join(
      DaemonLinkOptions options);
  ~DaemonLink();

  const RunPlace& place() const { return place_; }
  // The address at which other nodes' ranks reach this one.
  const std::string& host() const { return joined_->host(); }
  // Of the attempt on this node: holds its arena (shm/arena.h).
  const std::string& runtime_directory() const {
    return joined_->runtime_directory();
  }

  // As Session.
  std::optional<RunNotice> notice();
  // FailedPrecondition once the gang has a later membership than place().epoch.
  // Never blocks; ExchangeBlobs and ReportPreflight begin with it.
  absl::Status CheckMembership();

  // Gives `mine` under `tag` and gets the blobs of all ranks, in rank order.
  // DeadlineExceeded when not all came; Aborted when the attempt ends.
  absl::StatusOr<std::vector<std::string>> ExchangeBlobs(
      absl::string_view tag, std::string mine, absl::Duration deadline);
  // The same, with `prefix` before each tag; this must outlive it.
  Exchange ExchangeUnder(std::string prefix);

  // As Session.  Thread-safe: of a later membership it knows what the thread
  // that makes the other calls has heard, and what the daemon says.
  absl::Status CommitCheckpoint(absl::string_view path, int64_t step,
                                std::optional<double> score = std::nullopt);

  // How this rank came through its preflight; on the daemon's disk when it
  // returns.
  absl::Status ReportPreflight(const v1::PreflightReport& report);

  // How this rank's communicator on its GPU was ended; on the daemon's disk
  // when it is OK.  Once and within half a second, since who ends it has no
  // more time: a daemon that is away hears nothing.  Thread-safe.
  absl::Status ReportGpuEnd(const v1::GpuEnd& end) const;

 private:
  class CallerThread;

  DaemonLink(DaemonLinkOptions options, std::unique_ptr<rpc::Channel> channel);

  // Waits for the daemon's first word.
  absl::Status AwaitPlace();
  void OpenWatch();
  // Takes what came on the stream, and opens it again when it broke.
  void Listen();
  void OnTold(const v1::WatchResponse& told);

  absl::Status CheckHeardMembership() const;  // thread-safe
  // Calls until the daemon answers or `timeout` is over.  Thread-safe.
  template <typename Req, typename Resp>
  absl::StatusOr<Resp> Call(const rpc::UnaryMethod<Req, Resp>& method,
                            const Req& request, absl::Duration timeout);
  template <typename Req>
  Req RequestOfThisRank() const;  // thread-safe

  const DaemonLinkOptions options_;
  const MachineClock clock_;
  SystemRandom random_;
  // In this order: events of the stream may come until the channel is gone.
  const std::unique_ptr<CallerThread> caller_;
  const std::unique_ptr<rpc::Channel> channel_;
  std::unique_ptr<rpc::TypedStream<v1::WatchRequest>> watch_;
  // Why the stream is over, and when it is opened again if it broke.
  std::optional<absl::Status> closed_;
  absl::Duration open_at_;
  Backoff reopen_;

  // The first word, and what changed since then.
  std::optional<v1::WatchResponse> joined_;
  std::atomic<int64_t> epoch_ = 0;
  std::optional<RunNotice> notice_;
  RunPlace place_;
};

}  // namespace cohort::trainer
