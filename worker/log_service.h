#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "worker/node_directories.h"

namespace cohort::worker {

struct LogServiceOptions {
  // How soon a follower looks for more: a quarter of the time that it has
  // waited, between these.  What comes soon is shown soon; a quiet log costs 20
  // looks a second.
  absl::Duration poll_min = absl::Milliseconds(2);
  absl::Duration poll_max = absl::Milliseconds(50);
  // After this long a question that waits is answered with nothing, so that the
  // asker knows that we live.
  absl::Duration wait_max = absl::Seconds(10);
  // Of one answer.
  int32_t bytes_max = 256 << 10;
};

// Answers the head's questions for pieces of ranks' logs, from the segments
// that the keepers write.  Reads go to `disk`; answers come on the node strand.
// Thread-compatible: the node strand owns it.
class LogService {
 public:
  using Answer = absl::AnyInvocable<void(v1::LogChunk)>;

  // All outlive the service and what it posted.  `answer` runs on `strand`.
  LogService(LogServiceOptions options, const NodeDirectories& directories,
             Executor& strand, Executor& disk, Answer answer);

  // Answers exactly once.
  void Read(const v1::ReadLogChunk& question);

 private:
  void ReadOnce(v1::ReadLogChunk question, absl::Duration waited);

  const LogServiceOptions options_;
  const NodeDirectories& directories_;
  Executor& strand_;
  Executor& disk_;
  Answer answer_;
};

}  // namespace cohort::worker
