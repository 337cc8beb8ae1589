#include "head/package_table.h"

#include <utility>

#include "common/check.h"

namespace cohort::head {

PackageTable::PackageTable(Limits limits, const Clock& clock)
    : limits_(limits), clock_(clock) {}

void PackageTable::Add(PackageRecord record) {
  std::string hash = record.hash;
  Entry& entry = packages_[std::move(hash)];
  entry.record = std::move(record);
  entry.unpinned_since = clock_.Monotonic();
}

const PackageRecord* PackageTable::Find(const std::string& hash) const {
  const auto found = packages_.find(hash);
  return found == packages_.end() ? nullptr : &found->second.record;
}

void PackageTable::Touch(const std::string& hash) {
  packages_.at(hash).unpinned_since = clock_.Monotonic();
}

void PackageTable::Pin(const std::string& hash) { ++packages_.at(hash).pins; }

bool PackageTable::Unpin(const std::string& hash, absl::Time wall) {
  Entry& entry = packages_.at(hash);
  COHORT_CHECK(entry.pins > 0);
  if (--entry.pins > 0) return false;
  entry.record.unpinned_at = wall;
  entry.unpinned_since = clock_.Monotonic();
  return true;
}

int64_t PackageTable::PinsOf(const std::string& hash) const {
  const auto found = packages_.find(hash);
  return found == packages_.end() ? 0 : found->second.pins;
}

std::vector<std::string> PackageTable::Trim(const std::set<std::string>& keep) {
  std::vector<std::string> gone;
  const absl::Duration now = clock_.Monotonic();
  for (auto it = packages_.begin(); it != packages_.end();) {
    const Entry& entry = it->second;
    if (entry.pins == 0 && !keep.contains(it->first) &&
        now - entry.unpinned_since >= limits_.unpinned_kept) {
      gone.push_back(it->first);
      it = packages_.erase(it);
    } else {
      ++it;
    }
  }
  return gone;
}

std::vector<std::string> PackageTable::Hashes() const {
  std::vector<std::string> hashes;
  for (const auto& [hash, entry] : packages_) hashes.push_back(hash);
  return hashes;
}

}  // namespace cohort::head
