#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/clock.h"
#include "head/state/history_limits.h"
#include "head/state/history_line.h"
#include "head/store/records.h"

namespace cohort::head {

// Which packages are whole, and how many jobs that have not ended need each.
//
// Thread-compatible; belongs to ClusterState.
class PackageTable {
 public:
  // `caps`: of those that are not pinned, by time of the head's own life.
  PackageTable(HistoryCaps caps, const Clock& clock);

  // As complete; unpinned from now on until Pin.
  void Add(PackageRecord record);
  const PackageRecord* Find(const std::string& hash) const;

  // An unpinned one stays as if it were unpinned now.  REQUIRES: it is here.
  void Touch(const std::string& hash);

  // One more job needs it.  REQUIRES: it is here.
  void Pin(const std::string& hash);
  // One fewer does.  True when nobody does any more: its record says since
  // when, as `wall`.  REQUIRES: it was pinned.
  bool Unpin(const std::string& hash, absl::Time wall);
  int64_t PinsOf(const std::string& hash) const;

  // Forgets the oldest unpinned ones beyond a cap, and gives them; those in
  // `keep` are needed just now.
  std::vector<std::string> Trim(const std::set<std::string>& keep);

  // Its file is gone or damaged, or there again; false when that was known.
  // REQUIRES: it is here.  Not in its row: who asks for the file finds out.
  bool SetLost(const std::string& hash, bool is_lost);
  // Complete, and not known to be lost.
  bool IsWhole(const std::string& hash) const;

  std::vector<std::string> Hashes() const;
  HistoryLevel Level() const { return unpinned_.Level("packages"); }

 private:
  struct Entry {
    PackageRecord record;
    int64_t pins = 0;
    bool is_lost = false;
  };

  std::map<std::string, Entry> packages_;
  HistoryLine<std::string> unpinned_;
};

}  // namespace cohort::head
