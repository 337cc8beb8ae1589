#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "cohort/v1/node.pb.h"
#include "common/process_id.h"
#include "common/unique_fd.h"
#include "worker/node_directories.h"
#include "worker/run_as.h"

namespace cohort::worker {

struct FoundFile;

// The directories in which attempts' ranks run, and what becomes of the files
// that ranks leave there (docs/design/0011-outputs.md).
//
//   WD-1: a file that the package did not bring, or that changed since, is in
//         the job's run directory before its working directory goes, or named
//         in a list there.
//   WD-2: a place with a directory of its user's (Launch.working_directory) has
//         none here, and nothing of that one is moved or removed.
//
// Under --run-as the directories are their user's, and what users may write in
// is touched with their rights alone (ActingAs).
//
// Beside each lies a mark, `<attempt>.made`: the place, and by its own age
// since when files there count as the ranks'.  Blocks.  Thread-compatible.
class WorkDirectories {
 public:
  // What is kept of one attempt: the newest files, if it left more, and the
  // very newest however large it is, while results_bytes has room for it.
  struct Limits {
    int64_t bytes = int64_t{1} << 30;
    size_t files = 100'000;
    // Of all results in the worker's own directory; nothing: any number.
    std::optional<int64_t> results_bytes = std::nullopt;
  };

  // `directories` outlives it.  What attempts leave lies below `node_name`; on
  // storage that several nodes may share `node_id`, which is short, stands
  // after it.
  WorkDirectories(const NodeDirectories& directories, std::string node_name,
                  std::string node_id)
      : WorkDirectories(directories, std::move(node_name), std::move(node_id),
                        Limits()) {}
  WorkDirectories(const NodeDirectories& directories, std::string node_name,
                  std::string node_id, Limits limits, RunAs run_as = RunAs())
      : directories_(directories),
        node_name_(std::move(node_name)),
        node_id_(std::move(node_id)),
        limits_(limits),
        run_as_(std::move(run_as)) {}

  // Makes the place's directory, with the package `archive` (empty: none) and,
  // under keep_work, what the job's former attempts left on this node; and the
  // job's run directory.  InvalidArgument: the package or a directory that the
  // job names cannot be used; reason kNodeFault: this node cannot.
  // `generation` is that of the head's store.
  absl::Status Make(const v1::DesiredPlace& place, const std::string& archive,
                    const std::string& generation);
  // The same in three parts, of which only the second takes long.  It may run
  // beside other calls.
  absl::Status Begin(const v1::DesiredPlace& place,
                     const std::string& generation);
  absl::Status Unpack(const v1::DesiredPlace& place,
                      const std::string& archive) const;
  absl::Status Finish(const v1::DesiredPlace& place);
  // Before Finish: whether another node is still moving what a former attempt
  // left to where keep_work would find it, or is gone.
  bool AwaitsFormer(const v1::DesiredPlace& place) const;

  // Moves what the ranks left to the run directory and removes the working
  // directory; one with a package is only moved to GonePath, whose removal
  // takes long and may run beside other calls.  OK when there is none.
  absl::Status Remove(const AttemptId& attempt);
  std::string GonePath(const AttemptId& attempt) const;
  // What people are to know of what Finish and Remove did since the last call:
  // what was not kept, and what keep_work did not find.
  std::vector<std::string> TakeWarnings() {
    return std::exchange(warnings_, {});
  }

  // With whose rights what is in the job's storage is to be touched.
  std::optional<OsAccount> OwnerOfStorage(const v1::DesiredPlace& job) const;

  // The places that are here, as far as their marks tell: job, number, attempt.
  std::vector<v1::DesiredPlace> Here() const;

  // Whether the job has results in the worker's own directory that were made
  // under that store generation, and no attempt is here.
  bool MayBeForgotten(const JobId& job, const std::string& generation) const;

  // The files of the job's run directory, sorted by path; those that attempts
  // have not left yet as if they had: what would not be kept is in the list of
  // that.  ResourceExhausted: too many to list.
  absl::StatusOr<std::vector<v1::RunFile>> List(
      const v1::DesiredPlace& job) const;
  // Opens one of them, or another one of an attempt that has not left yet.
  // InvalidArgument: no path below a directory; NotFound.
  absl::StatusOr<UniqueFd> Open(const v1::DesiredPlace& job,
                                const std::string& path) const;

 private:
  using Marks = std::map<AttemptId, v1::DesiredPlace>;
  struct Choice;

  // What is here, as the disk has it when it is first asked for.
  const Marks& marks() const;
  std::optional<OsAccount> OwnerOfWork(const AttemptId& attempt) const;
  absl::Status MakeStorage(const v1::DesiredPlace& place,
                           const std::string& generation,
                           const std::optional<OsAccount>& account) const;
  std::string MarkPath(const AttemptId& attempt) const;
  std::string SavedPath(const v1::DesiredPlace& place) const {
    return NamedPath(place, "");
  }
  // On shared storage, until all is there.
  std::string StagedPath(const v1::DesiredPlace& place) const {
    return NamedPath(place, ".");
  }
  std::string NamedPath(const v1::DesiredPlace& place,
                        absl::string_view prefix) const;
  absl::Status WriteMark(const v1::DesiredPlace& place);
  absl::Status WritePackageList(const AttemptId& attempt) const;
  absl::StatusOr<std::vector<FoundFile>> RanksFiles(
      const AttemptId& attempt) const;
  std::vector<v1::DesiredPlace> MarksOf(const std::string& job_id) const;
  absl::Status BringBack(const v1::DesiredPlace& place);
  // Makes what the newest former attempt left this node's own, where it may
  // take another's.  Its number; 0: none left anything.
  int ClaimFormer(const v1::DesiredPlace& place);
  // How many bytes its results may still take.
  int64_t Room(const v1::DesiredPlace& place) const;
  // What the attempt's files come to by the limits.
  absl::StatusOr<Choice> Choose(const v1::DesiredPlace& mark,
                                const AttemptId& attempt) const;
  std::string NotKeptPath(const v1::DesiredPlace& mark) const;
  // Why, in a line.
  std::string WhyNotKept(const v1::DesiredPlace& mark,
                         const Choice& choice) const;
  std::string NotKeptText(const v1::DesiredPlace& mark,
                          const Choice& choice) const;
  absl::Status SaveFiles(const v1::DesiredPlace& mark);
  // Unless it is in use, or lies where the job says.
  void RemoveEmptyRunDirectory(const v1::DesiredPlace& place) const;

  const NodeDirectories& directories_;
  const std::string node_name_;
  const std::string node_id_;
  const Limits limits_;
  const RunAs run_as_;
  mutable std::optional<Marks> marks_;
  std::vector<std::string> warnings_;
};

}  // namespace cohort::worker
