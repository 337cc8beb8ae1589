#pragma once

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "worker/node_directories.h"

namespace cohort::worker {

// Answers the head's questions for pieces of ranks' logs, from the segments
// that the keepers write.  Reads go to `disk`; answers come on the node strand.
// Thread-compatible: the node strand owns it.
class LogService {
 public:
  using Answer = absl::AnyInvocable<void(v1::LogChunk)>;

  // All outlive the service and what it posted.  `answer` runs on `strand`.
  LogService(const NodeDirectories& directories, Executor& strand,
             Executor& disk, Answer answer);

  // Answers exactly once.
  void Read(const v1::ReadLogChunk& question);

 private:
  void ReadOnce(v1::ReadLogChunk question, absl::Duration waited);

  const NodeDirectories& directories_;
  Executor& strand_;
  Executor& disk_;
  Answer answer_;
};

}  // namespace cohort::worker
