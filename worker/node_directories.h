#pragma once

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "cohort/v1/node.pb.h"
#include "common/job_id.h"
#include "common/process_id.h"

namespace cohort::worker {

// Where a worker keeps what; docs/operations/reference.md has the same list for
// people.
// Immutable value.
class NodeDirectories {
 public:
  // `state` survives the machine's restart; `runtime` is a private tmpfs
  // directory of this node, short, because unix sockets live below it.
  NodeDirectories(std::string state, std::string runtime)
      : state_(std::move(state)), runtime_(std::move(runtime)) {}

  const std::string& state() const { return state_; }
  const std::string& runtime() const { return runtime_; }

  std::string NodeIdFile() const { return absl::StrCat(state_, "/node_id"); }
  std::string BindingFile() const { return absl::StrCat(state_, "/cluster"); }
  std::string Journal() const { return absl::StrCat(state_, "/journal"); }
  std::string JournalFile() const { return absl::StrCat(Journal(), "/log"); }
  // The keepers' directories (docs/design/0002-keeper.md).
  std::string Keepers() const { return absl::StrCat(state_, "/keepers"); }
  // The current directory of an attempt's processes, with its package unpacked.
  std::string Work(const AttemptId& attempt) const {
    return absl::StrCat(AllWork(), "/", attempt.ToHex());
  }
  std::string AllWork() const { return absl::StrCat(state_, "/work"); }
  std::string Packages() const { return absl::StrCat(state_, "/packages"); }
  // Of one attempt: numbers come again after the head's store was restored.
  std::string Logs(absl::string_view job_id, int number,
                   absl::string_view attempt_id) const {
    return absl::StrCat(AllLogs(), "/", JobIdText(job_id), "/", number, ".",
                        absl::BytesToHexString(attempt_id.substr(0, 4)));
  }
  std::string AllLogs() const { return absl::StrCat(state_, "/logs"); }
  std::string Results() const { return absl::StrCat(state_, "/results"); }

  // The job's storage, which its attempts share.
  std::string Storage(const v1::DesiredPlace& place) const {
    return absl::StrCat(
        place.storage_path().empty() ? Results() : place.storage_path(), "/",
        JobIdText(place.job_id()));
  }
  // Where the job's ranks put what is to stay: COHORT_STORAGE_DIR.
  std::string RunDirectory(const v1::DesiredPlace& place) const {
    return absl::StrCat(Storage(place), "/out");
  }
  // Of the processes that were begun in that epoch.  A file system cannot fence
  // a zombie, so no two attempts share this one.
  std::string CheckpointRoot(const v1::DesiredPlace& begun) const {
    return absl::StrCat(Storage(begun), "/attempt-", begun.number(), ".",
                        begun.epoch());
  }

  std::string WorkerSocket() const {
    return absl::StrCat(runtime_, "/worker.sock");
  }
  // The arena in which processes meet before their command runs.
  std::string Preflight(const AttemptId& attempt) const {
    return absl::StrCat(Runtime(attempt), "/preflight");
  }
  std::string Runtime(const AttemptId& attempt) const {
    return absl::StrCat(runtime_, "/", attempt.ToHex());
  }
  std::string RankCredential(const ProcessId& process) const {
    return absl::StrCat(Runtime(process.attempt), "/credential-", process.slot,
                        ".", process.incarnation);
  }
  // Where torch's @record writes what the process raised.
  std::string ErrorFile(const ProcessId& process) const {
    return absl::StrCat(Runtime(process.attempt), "/error-", process.slot, ".",
                        process.incarnation, ".json");
  }

 private:
  const std::string state_;
  const std::string runtime_;
};

}  // namespace cohort::worker
