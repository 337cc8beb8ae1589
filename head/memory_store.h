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

#include "common/mutex.h"
#include "head/store.h"

namespace cohort::head {

// What an append that is told to fail leaves behind.
enum class AppendFault {
  kLanded,     // all of the batch, though the answer is an error
  kNotLanded,  // nothing
};

// What a memory store's "disk" holds.
//
// Outlives the stores opened on it, as a disk outlives processes, and is where
// tests arm faults.  Two stores may be open on one disk, as two heads would be:
// the fence keeps them apart.  Thread-safe.
class MemoryDisk {
 public:
  // Arms a fault: the append after `successes` more ones fails.  One at a time;
  // arming again replaces it.
  void FailAfter(int successes, AppendFault fault);
  // All appends fail, landing nothing, until Heal (a full disk).
  void Refuse();
  void Heal();

  // Appends that succeeded, and faults that fired.
  int appends() const;
  int faults_fired() const;

  // One row as stored; none when absent.  For tests' own assertions.
  std::optional<std::string> Find(Table table, const std::string& key) const;
  // Replaces a stored value as a decaying disk would.
  void Corrupt(Table table, const std::string& key, std::string value);

 private:
  friend class MemoryStore;

  absl::Status Append(uint64_t term, const Batch& batch);
  std::vector<std::pair<std::string, std::string>> All(Table table) const;

  absl::Status CheckFence(uint64_t term) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<AppendFault> NextFault() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Apply(const Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<Table, std::map<std::string, std::string>> tables_
      ABSL_GUARDED_BY(mutex_);
  std::optional<std::pair<int, AppendFault>> armed_ ABSL_GUARDED_BY(mutex_);
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
  int appends_ ABSL_GUARDED_BY(mutex_) = 0;
  int faults_fired_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A store on a MemoryDisk, for tests and the simulation.  Keeps Store's
// contract, also that it is unusable after a failed append.
class MemoryStore final : public Store {
 public:
  // `disk` outlives the store.
  explicit MemoryStore(MemoryDisk& disk) : disk_(disk) {}

  absl::Status Append(uint64_t term, const Batch& batch) override;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> LoadAll(
      Table table) override;

 private:
  MemoryDisk& disk_;
  absl::Status failure_;
};

}  // namespace cohort::head
