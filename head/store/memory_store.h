#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/mutex.h"
#include "common/random.h"
#include "head/store/store.h"

namespace cohort::head {

// What an append that is told to fail leaves behind.
enum class AppendFault {
  kLanded,     // all of the batch, though the answer is an error
  kNotLanded,  // nothing
  kUnsynced,   // all of it in the page cache: the next opening sees it,
               // until the power fails before the next sync
};

// What a memory store's "disk" holds: rows as processes see them, and which of
// them a power failure takes back.
//
// A batch is on the platter once it or a later one was synced.  The log's
// checksums make a torn batch one that is not there, so a power failure keeps
// a prefix of the unsynced batches.  Outlives the stores opened on it, as a
// disk outlives processes, and is where tests arm faults.  Two stores may be
// open on one disk, as two heads would be: the fence keeps them apart.
// Thread-safe.
class MemoryDisk {
 public:
  // Arms a fault: the append after `successes` more ones fails.  One at a time;
  // arming again replaces it.
  void FailAfter(int successes, AppendFault fault);
  // All appends fail, landing nothing, until Heal (a full disk).
  void Refuse();
  void Heal();
  // Asked for the fate of each append that no other fault ends; none: it
  // succeeds.
  using Fate =
      absl::AnyInvocable<std::optional<AppendFault>(const Batch& batch)>;
  void SetFate(Fate fate);
  // From now on appends say OK before they are synced, which no store may: so
  // that a test can show that somebody notices.
  void SkipSyncs();
  // The power fails: of the unsynced batches those survive that chance says,
  // the older ones first.  REQUIRES: no store is open.
  void PowerOff(Random& random);
  // What the unsynced batches hold reaches the platter.
  void Sync();

  // Appends that succeeded, faults that fired, and batches that a power
  // failure took.
  int appends() const;
  int faults_fired() const;
  int batches_lost() const;

  // One row as stored; none when absent.  For tests' own assertions.
  std::optional<std::string> Find(Table table, const std::string& key) const;
  // As Find, of what a power failure would leave for sure.
  std::optional<std::string> FindSynced(Table table,
                                        const std::string& key) const;
  // Replaces a stored value as a decaying disk would.
  void Corrupt(Table table, const std::string& key, std::string value);

 private:
  friend class MemoryStore;

  absl::Status Append(uint64_t term, const Batch& batch);
  std::vector<std::pair<std::string, std::string>> Range(
      Table table, const std::string& first, size_t limit) const;

  absl::Status CheckFence(uint64_t term) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<AppendFault> NextFault() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Apply(const Batch& batch, bool synced)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The batch that brings back what `batch` replaces.
  Batch UndoOf(const Batch& batch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Put(const Batch& batch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::map<Table, std::map<std::string, std::string>> tables_
      ABSL_GUARDED_BY(mutex_);
  std::optional<std::pair<int, AppendFault>> armed_ ABSL_GUARDED_BY(mutex_);
  bool refusing_ ABSL_GUARDED_BY(mutex_) = false;
  Fate fate_ ABSL_GUARDED_BY(mutex_);
  bool skip_syncs_ ABSL_GUARDED_BY(mutex_) = false;
  // What takes each unsynced batch back, oldest first.
  std::vector<Batch> undo_ ABSL_GUARDED_BY(mutex_);
  int batches_lost_ ABSL_GUARDED_BY(mutex_) = 0;
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
  absl::Status Scan(Table table, const std::string& first, size_t limit,
                    RowVisitor each) override;
  absl::Status Checkpoint(const std::string& directory) override;

 private:
  MemoryDisk& disk_;
  absl::Status failure_;
};

}  // namespace cohort::head
