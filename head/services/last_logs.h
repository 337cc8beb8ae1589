#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "common/strong_id.h"

namespace cohort::head {

// The ends of logs whose nodes are gone, as files: one for each stream of a
// process.  They go with their attempts, and the oldest first when there are
// too many, or too large ones.
//
// `done` comes exactly once, on the head strand, never inside the call; the
// files are touched on `disk`.  Strand-bound.
class LastLogs final {
 public:
  // Of one log.
  static constexpr int64_t kLogBytesMax = int64_t{1} << 20;

  struct Limits {
    int64_t bytes = int64_t{1} << 30;
    size_t files = 20'000;
    // Left free for the control store, which must never wait for a log.
    int64_t bytes_kept_free = int64_t{256} << 20;
  };
  // Of a process that is over.
  struct Name {
    AttemptId attempt;
    int slot = 0;
    uint64_t incarnation = 0;
    v1::LogStream stream = v1::LOG_STREAM_STDOUT;
  };
  // What is there from the offset on, as its node would have sent it.
  struct Found {
    std::string node_name;
    v1::LogPiece piece;
  };
  template <typename T>
  using Done = absl::AnyInvocable<void(T) &&>;

  // All outlive it and what it posted.  The directory is made when it is first
  // needed.
  LastLogs(std::string directory, Limits limits, Executor& strand,
           Executor& disk);

  // Synced once OK; replaces one of that name.  ResourceExhausted: there is no
  // room.
  void Keep(const Name& name, v1::LastLog log, Done<absl::Status> done);
  // A negative offset counts from the end.  NotFound.
  void Read(const Name& name, int64_t offset, Done<absl::StatusOr<Found>> done);
  // Removes those of attempts that `is_known`, on the strand, does not know.
  void RemoveForgotten(absl::AnyInvocable<bool(const AttemptId&)> is_known);

 private:
  absl::Status KeepNow(const std::string& path, const v1::LastLog& log);
  void Trim();
  void Remove(const std::set<AttemptId>& attempts);

  const std::string directory_;
  const Limits limits_;
  Executor& strand_;
  Executor& disk_;
  // On `disk`: what is there; not known before the first Keep.
  bool is_counted_ = false;
  int64_t bytes_ = 0;
  size_t files_ = 0;
};

}  // namespace cohort::head
