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
#include "client/log_merge.h"
#include "cohort/v1/cluster.pb.h"
#include "common/job_id.h"

namespace cohort::client {

// Where the log of a rank's stream is read on.
struct LogPlace {
  int rank = 0;
  LogStream stream = v1::LOG_STREAM_STDOUT;
  int attempt = 0;     // 0: the last one
  int64_t offset = 0;  // negative: so far before the end
};

// Reads the logs of some ranks of a job on the calling thread, going on where
// it was when the head or a node went away: each byte once, in order for each
// rank and stream, and these by time (LogMerge).
//
//   LF-1: of each log that has to wait for others 256 KiB and a piece are held:
//         its stream is ended until they were given.
//
// One use.  Thread-compatible.  What is passed by reference outlives it.
class LogFollower {
 public:
  using Sink = absl::FunctionRef<absl::Status(const LogChunk&)>;

  // `deadline` ends the whole read; `timeout` a read in which nothing came for
  // so long.
  LogFollower(HeadClient& head, const JobId& job, const LogOptions& options,
              absl::Duration deadline, absl::Duration timeout,
              const std::vector<LogPlace>& places, Sink sink);

  // Until every log has ended, or an error: Unavailable when head or node were
  // away for too long, DeadlineExceeded.
  absl::Status Run();

 private:
  using Stream = rpc::TypedStream<v1::ReadLogRequest>;

  // One stream of one rank.
  struct Source {
    size_t index;
    LogPlace place;          // where to go on
    int64_t stream_end = 0;  // of what its stream brought
    Backoff backoff;
    std::unique_ptr<Stream> reader;
    // Until what is held of it has been taken.
    bool paused = false;
    // Since when the head has said that the log cannot be had.
    std::optional<absl::Duration> away_since;
  };

  void Open(Source& source);
  void OnMessage(Source& source, const v1::ReadLogResponse& message);
  void OnClosed(Source& source, const absl::Status& status,
                const std::optional<rpc::Stamp>& stamp);
  // Holds what came of `source`, cut where times change.
  void Hold(Source& source, const v1::ReadLogResponse& message);
  // Gives the sink what need not wait any more.
  void Flush();
  absl::Status Give(LogMerge::Piece piece);
  void ResumeDrained();
  void Tick();
  bool MayRetry(Source& source, bool head_answered);
  // Fails a read that has had its timeout, and looks again later.
  void Watch();
  // Ends the read; the first reason counts.
  void Fail(const absl::Status& status);
  absl::Duration Left() const { return deadline_ - head_.clock().Monotonic(); }

  HeadClient& head_;
  const JobId job_;
  const LogOptions options_;
  const absl::Duration deadline_;
  const absl::Duration timeout_;
  const Sink sink_;
  CallerExecutor here_;
  std::deque<Source> sources_;
  LogMerge merge_;
  bool flush_is_due_ = false;  // by a timer
  bool sink_failed_ = false;
  // Sources that have not ended, with a stream or with a timer.
  size_t open_ = 0;
  // When something came last, from any of them, and was taken by the sink.
  absl::Duration moved_at_;
  // Why the last stream that broke did.
  absl::Status last_;
  absl::Status result_;
  // Of the first log that is gone with its node: the others are given all the
  // same.
  absl::Status gone_;
};

}  // namespace cohort::client
