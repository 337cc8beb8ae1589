#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "client/caller_executor.h"
#include "client/cluster.h"
#include "client/head_client.h"
#include "cohort/v1/cluster.pb.h"
#include "common/job_id.h"

namespace cohort::client {

// Reads the logs of some ranks of a job on the calling thread, going on where
// it was when the head or a node went away: each byte once, in order for each
// rank and stream.
//
// One use.  Thread-compatible.  What is passed by reference outlives it.
class LogFollower {
 public:
  using Sink = absl::FunctionRef<absl::Status(const LogChunk&)>;

  // `deadline` ends the whole read; `patience` a read in which nothing came for
  // so long.
  LogFollower(HeadClient& head, const JobId& job, const LogOptions& options,
              absl::Duration deadline, absl::Duration patience,
              const std::vector<int>& ranks, Sink sink);

  // Until every log has ended, or an error: Unavailable when head or node were
  // away for too long, DeadlineExceeded.
  absl::Status Run();

 private:
  using Stream = rpc::TypedStream<v1::ReadLogRequest>;

  // One stream of one rank.
  struct Source {
    int rank;
    LogStream stream;
    Backoff backoff;
    // Where to go on.
    int attempt = 0;
    int64_t offset = 0;
    std::unique_ptr<Stream> reader;
    // Since when the head has said that the log cannot be had.
    std::optional<absl::Duration> away_since;
  };

  void Open(Source& source);
  void OnMessage(Source& source, const v1::ReadLogResponse& message);
  void OnClosed(Source& source, const absl::Status& status,
                const std::optional<rpc::Stamp>& stamp);
  bool MayRetry(Source& source, bool head_answered);
  // Fails a read that has lost its patience, and looks again later.
  void Watch();
  // Ends the read; the first reason counts.
  void Fail(const absl::Status& status);
  absl::Duration Left() const { return deadline_ - head_.clock().Monotonic(); }

  HeadClient& head_;
  const JobId job_;
  const LogOptions options_;
  const absl::Duration deadline_;
  const absl::Duration patience_;
  const Sink sink_;
  CallerExecutor here_;
  std::deque<Source> sources_;
  // Sources that have not ended, with a stream or with a timer.
  size_t open_ = 0;
  // When something came last, from any of them, and was taken by the sink.
  absl::Duration moved_at_;
  // Why the last stream that broke did.
  absl::Status last_;
  absl::Status result_;
};

}  // namespace cohort::client
