#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "head/state/history_limits.h"
#include "head/state/history_line.h"
#include "head/state/rows.h"
#include "head/store/records.h"
#include "head/store/transition.h"

namespace cohort::head {

// Which calls are in the audit log; the rows are in the store alone.
//
//   AL-1: the log stays within its caps, and the oldest calls go first.
//
// Thread-compatible; belongs to ClusterState.
class AuditTable {
 public:
  AuditTable(HistoryCaps caps, const Clock& clock) : line_(caps, clock) {}

  // Once, by number.
  void Load(const std::vector<StoredEvent>& rows) {
    std::vector<HistoryLine<uint64_t>::Loaded> loaded;
    for (const StoredEvent& row : rows) {
      loaded.push_back({row.number, row.at, row.bytes});
      next_ = row.number + 1;
    }
    line_.Load(loaded);
  }

  // Numbers the call and puts its row.
  void Add(AuditRecord call, Transition& transition) {
    call.set_number(next_++);
    line_.Put(call.number(), static_cast<int64_t>(transition.Put(call)));
    Trim(2, transition);
  }

  // Deletes at most `n` of those beyond the caps.
  void Trim(size_t n, Transition& transition) {
    for (size_t i = 0; i < n; ++i) {
      const std::optional<uint64_t> number = line_.Due();
      if (!number.has_value()) return;
      line_.Trim(*number);
      transition.Delete<AuditRecord>(*number);
    }
  }

  HistoryLevel Level() const { return line_.Level("audit"); }

 private:
  HistoryLine<uint64_t> line_;
  uint64_t next_ = 1;
};

}  // namespace cohort::head
