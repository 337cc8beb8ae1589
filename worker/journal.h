#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/node.pb.h"
#include "common/process_id.h"
#include "common/unique_fd.h"
#include "worker/node_directories.h"
#include "worker/process_host.h"

namespace cohort::worker {

// The worker's own files: who it is, whom it follows, and what it knows of each
// place and process.
//
// The last is a log: records that each replace the one of the same name, with a
// checksum each, rewritten when most of it is replaced.  The other files are
// replaced whole and synced.  All of it blocks: for the disk executor, and for
// start-up.  Thread-compatible.
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

  // What was saved last.  Of a damaged log, which is kept as `damaged`, in
  // place of the last one, the records that are whole: the others are as they
  // were before, or not known.  REQUIRES: before the first Save.
  absl::StatusOr<JournalEntries> LoadAll();

  // Survives the daemon; the machine too once Sync said OK.
  absl::Status Save(const AttemptId& attempt, const PlaceEntry& entry);
  absl::Status Save(const ProcessId& process, const ProcessEntry& entry);
  absl::Status Remove(const ProcessId& process);
  // The place and all of its processes.
  absl::Status Remove(const AttemptId& attempt);
  // Makes all that was saved durable.
  absl::Status Sync();

 private:
  // The newest value of each name.
  using Values = std::map<std::string, std::string>;

  // FailedPrecondition, saying what to do, when there are.
  absl::Status CheckHasNoAttempts();
  // What is in the log; sets it aside when a part of it is damaged.
  absl::StatusOr<Values> Read() const;
  // An empty `value` removes.
  absl::Status Append(const std::string& name, std::string value);
  // Rewrites the log with the newest values alone.
  absl::Status Rewrite();
  // Whether the file that is open is the one that has the name: the state
  // directory may have been taken away, or put back.
  bool IsInPlace() const;

  const NodeDirectories& directories_;
  UniqueFd log_;  // none: the next Append rewrites it
  Values values_;
  uint64_t size_ = 0;  // of the log
  uint64_t live_ = 0;  // when it was rewritten
};

}  // namespace cohort::worker
