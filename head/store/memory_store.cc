#include "head/store/memory_store.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/status_macros.h"
#include "head/store/records_codec.h"

namespace cohort::head {

void MemoryDisk::FailAfter(int successes, AppendFault fault) {
  MutexLock lock(mutex_);
  armed_ = {successes, fault};
}

void MemoryDisk::Refuse() {
  MutexLock lock(mutex_);
  refusing_ = true;
}

void MemoryDisk::Heal() {
  MutexLock lock(mutex_);
  refusing_ = false;
  armed_.reset();
}

void MemoryDisk::SetFate(Fate fate) {
  MutexLock lock(mutex_);
  fate_ = std::move(fate);
}

void MemoryDisk::SkipSyncs() {
  MutexLock lock(mutex_);
  skip_syncs_ = true;
}

void MemoryDisk::PowerOff(Random& random) {
  MutexLock lock(mutex_);
  const size_t kept = static_cast<size_t>(random.Below(undo_.size() + 1));
  for (; undo_.size() > kept; undo_.pop_back()) {
    Put(undo_.back());
    ++batches_lost_;
  }
  undo_.clear();
}

void MemoryDisk::Sync() {
  MutexLock lock(mutex_);
  undo_.clear();
}

int MemoryDisk::batches_lost() const {
  MutexLock lock(mutex_);
  return batches_lost_;
}

int MemoryDisk::appends() const {
  MutexLock lock(mutex_);
  return appends_;
}

int MemoryDisk::faults_fired() const {
  MutexLock lock(mutex_);
  return faults_fired_;
}

std::optional<std::string> MemoryDisk::Find(Table table,
                                            const std::string& key) const {
  MutexLock lock(mutex_);
  const auto rows = tables_.find(table);
  if (rows == tables_.end()) return std::nullopt;
  const auto row = rows->second.find(key);
  if (row == rows->second.end()) return std::nullopt;
  return row->second;
}

std::optional<std::string> MemoryDisk::FindSynced(
    Table table, const std::string& key) const {
  {
    MutexLock lock(mutex_);
    for (const Batch& undo : undo_) {
      for (const Write& write : undo) {
        if (write.table == table && write.key == key) return write.value;
      }
    }
  }
  return Find(table, key);
}

void MemoryDisk::Corrupt(Table table, const std::string& key,
                         std::string value) {
  MutexLock lock(mutex_);
  tables_[table][key] = std::move(value);
}

absl::Status MemoryDisk::Append(uint64_t term, const Batch& batch) {
  MutexLock lock(mutex_);
  COHORT_RETURN_IF_ERROR(CheckFence(term));
  std::optional<AppendFault> fault = NextFault();
  if (!fault.has_value() && fate_) fault = fate_(batch);
  if (fault.has_value()) {
    ++faults_fired_;
    if (*fault != AppendFault::kNotLanded) {
      Apply(batch, /*synced=*/*fault == AppendFault::kLanded);
    }
    return absl::UnavailableError("injected: the append failed");
  }
  ++appends_;
  Apply(batch, /*synced=*/!skip_syncs_);
  return absl::OkStatus();
}

absl::Status MemoryDisk::CheckFence(uint64_t term) const {
  uint64_t stored = 0;
  const auto rows = tables_.find(Table::kCluster);
  if (rows != tables_.end()) {
    const auto row = rows->second.find(RowKey());
    if (row != rows->second.end()) {
      COHORT_ASSIGN_OR_RETURN(const ClusterStamp stamp,
                              ReadClusterStamp(row->second));
      stored = stamp.term;
    }
  }
  return CheckTerm(term, stored);
}

std::optional<AppendFault> MemoryDisk::NextFault() {
  if (refusing_) return AppendFault::kNotLanded;
  if (!armed_.has_value()) return std::nullopt;
  if (armed_->first-- > 0) return std::nullopt;
  const AppendFault fault = armed_->second;
  armed_.reset();
  return fault;
}

void MemoryDisk::Apply(const Batch& batch, bool synced) {
  if (synced) {
    undo_.clear();
  } else {
    undo_.push_back(UndoOf(batch));
  }
  Put(batch);
}

Batch MemoryDisk::UndoOf(const Batch& batch) const {
  Batch undo;
  for (const Write& write : batch) {
    std::optional<std::string> before;
    if (const auto rows = tables_.find(write.table); rows != tables_.end()) {
      const auto row = rows->second.find(write.key);
      if (row != rows->second.end()) before = row->second;
    }
    undo.push_back({write.table, write.key, std::move(before)});
  }
  return undo;
}

void MemoryDisk::Put(const Batch& batch) {
  for (const Write& write : batch) {
    if (write.value.has_value()) {
      tables_[write.table][write.key] = *write.value;
    } else {
      tables_[write.table].erase(write.key);
    }
  }
}

std::vector<std::pair<std::string, std::string>> MemoryDisk::Range(
    Table table, const std::string& first, size_t limit) const {
  MutexLock lock(mutex_);
  const auto rows = tables_.find(table);
  if (rows == tables_.end()) return {};
  std::vector<std::pair<std::string, std::string>> range;
  for (auto it = rows->second.lower_bound(first);
       it != rows->second.end() && range.size() < limit; ++it) {
    range.push_back(*it);
  }
  return range;
}

absl::Status MemoryStore::Append(uint64_t term, const Batch& batch) {
  COHORT_CHECK(failure_.ok())
      << "a failed store was used again (CM-3): " << failure_.ToString();
  failure_ = disk_.Append(term, batch);
  return failure_;
}

absl::Status MemoryStore::Scan(Table table, const std::string& first,
                               size_t limit, RowVisitor each) {
  for (const auto& [key, value] : disk_.Range(table, first, limit)) {
    COHORT_RETURN_IF_ERROR(each(key, value));
  }
  return absl::OkStatus();
}

absl::Status MemoryStore::Checkpoint(const std::string&) {
  return absl::UnimplementedError("a store in memory has no files to copy");
}

}  // namespace cohort::head
