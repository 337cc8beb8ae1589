#include "head/state/package_table.h"

#include <utility>

#include "common/check.h"

namespace cohort::head {
namespace {

constexpr size_t kTrimmedAtOnce = 5'000;

}  // namespace

PackageTable::PackageTable(HistoryCaps caps, const Clock& clock)
    : unpinned_(caps, clock) {}

void PackageTable::Add(PackageRecord record) {
  std::string hash = record.hash();
  unpinned_.Put(hash, record.size_bytes());
  packages_[std::move(hash)].record = std::move(record);
}

const PackageRecord* PackageTable::Find(const std::string& hash) const {
  const auto found = packages_.find(hash);
  return found == packages_.end() ? nullptr : &found->second.record;
}

void PackageTable::Touch(const std::string& hash) {
  if (unpinned_.Contains(hash)) unpinned_.Renew(hash);
}

void PackageTable::Pin(const std::string& hash) {
  ++packages_.at(hash).pins;
  unpinned_.Remove(hash);
}

bool PackageTable::Unpin(const std::string& hash, absl::Time wall) {
  Entry& entry = packages_.at(hash);
  COHORT_CHECK(entry.pins > 0);
  if (--entry.pins > 0) return false;
  entry.record.set_unpinned_at_us(absl::ToUnixMicros(wall));
  unpinned_.Put(hash, entry.record.size_bytes());
  return true;
}

int64_t PackageTable::PinsOf(const std::string& hash) const {
  const auto found = packages_.find(hash);
  return found == packages_.end() ? 0 : found->second.pins;
}

std::vector<std::string> PackageTable::Trim(const std::set<std::string>& keep) {
  std::vector<std::string> gone;
  for (const std::string& hash : keep) Touch(hash);
  while (gone.size() < kTrimmedAtOnce) {
    const std::optional<std::string> oldest = unpinned_.Due();
    // With nothing else left, the oldest may be one of `keep`.
    if (!oldest.has_value() || keep.contains(*oldest)) break;
    unpinned_.Trim(*oldest);
    packages_.erase(*oldest);
    gone.push_back(*oldest);
  }
  return gone;
}

bool PackageTable::SetLost(const std::string& hash, bool is_lost) {
  return std::exchange(packages_.at(hash).is_lost, is_lost) != is_lost;
}

bool PackageTable::IsWhole(const std::string& hash) const {
  const auto found = packages_.find(hash);
  return found != packages_.end() && !found->second.is_lost;
}

std::vector<std::string> PackageTable::Hashes() const {
  std::vector<std::string> hashes;
  for (const auto& [hash, entry] : packages_) hashes.push_back(hash);
  return hashes;
}

}  // namespace cohort::head
