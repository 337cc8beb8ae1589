#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/process_id.h"
#include "common/random.h"
#include "common/strong_id.h"
#include "head/store/memory_store.h"
#include "head/store/store.h"

namespace cohort::sim {

// A backup of a head's disk, and what must hold after it was restored, or put
// back just as it is (HD-1):
//
//   OR-1: nothing that ran is ended before a person speaks for it.
//   RC-1: nor is anything else that the head of this generation wants to run.
//
// Thread-compatible.
class Restores {
 public:
  // `disk` outlives it.
  explicit Restores(head::MemoryDisk& disk) : disk_(disk) {}

  // Of what is durable.  REQUIRES: all is.
  void TakeBackup();
  bool has_backup() const { return backup_.has_value(); }

  // Puts the backup in the place of what is there, as `cohort head restore`
  // does; gives all rows that are stored now.  `keep_generation` is wrong, for
  // tests.  REQUIRES: there is a backup and no head.
  head::Batch Restore(absl::Time now, Random& random, bool keep_generation);
  // Puts the backup there as it is; gives all rows as above.  `is_followed`
  // is wrong, for tests: its head knows every life, and has the latest term.
  head::Batch PutBack(bool is_followed);
  int count() const { return count_; }

  // Attempts of the store that was there before.
  const std::set<AttemptId>& before() const { return before_; }
  // A person says that an attempt is to end.
  void SpokenFor(const AttemptId& attempt, const JobId& job) {
    spoken_for_.emplace(attempt, job);
  }
  // With their jobs.
  const std::map<AttemptId, JobId>& spoken_for() const { return spoken_for_; }

  // Why a node must not be told to end an attempt now; empty when it may.
  std::string MayEnd(const NodeId& node, const ProcessId& process) const;
  // Whether the head that was replaced wanted it to run: its order may come
  // late.
  bool WasWanted(const AttemptId& attempt) const {
    return wanted_.contains(attempt);
  }

 private:
  // Replaces all rows, and remembers which attempts there were.
  void Replace();

  head::MemoryDisk& disk_;
  std::optional<head::Batch> backup_;
  int count_ = 0;
  std::set<AttemptId> before_;
  // Of those, which were not on their way out.
  std::set<AttemptId> wanted_;
  std::map<AttemptId, JobId> spoken_for_;
};

}  // namespace cohort::sim
