#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/node.pb.h"
#include "common/strong_id.h"
#include "worker/attempt_host.h"
#include "worker/node_directories.h"

namespace cohort::worker {

// The worker's own files: who it is, whom it follows, and what it knows of each
// attempt.
//
// Each file is replaced whole and synced, and carries a checksum.  All of it
// blocks: for the disk executor, and for start-up.  Thread-compatible.
class Journal {
 public:
  // REQUIRES: the directories outlive it.
  explicit Journal(const NodeDirectories& directories)
      : directories_(directories) {}

  // Makes the directories that are missing.
  absl::Status Open();

  // The id in the state directory, made on the first call.  DataLoss when the
  // file is not an id, FailedPrecondition when it is missing and there are
  // attempts, as in a copy of another node's: both name the file.
  absl::StatusOr<NodeId> LoadNodeId(Random& random);

  // Nothing before the first save.  DataLoss as above.
  absl::StatusOr<std::optional<v1::Stamp>> LoadBinding();
  absl::Status SaveBinding(const v1::Stamp& stamp);

  // A damaged file is set aside as `damaged`, in place of the last one: nothing
  // is known of that attempt any more, and the others go on.
  absl::StatusOr<std::vector<JournalEntry>> LoadAll();
  absl::Status Save(const AttemptId& attempt, const JournalEntry& entry);
  absl::Status Remove(const AttemptId& attempt);

 private:
  // FailedPrecondition, saying what to do, when there are.
  absl::Status CheckHasNoAttempts();
  // Of the attempts that have a file; NotFound without a directory.
  absl::StatusOr<std::vector<std::string>> ListFiles();
  absl::Status SetAside(const std::string& path);

  const NodeDirectories& directories_;
};

}  // namespace cohort::worker
