#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "shm/seq_cell.h"

namespace cohort::shm {

// The last metrics that one rank reported, for its worker daemon to fetch.
//
// Publish is a copy into shared memory: no system call, nothing to wait for, so
// a report costs a training step nothing.  Reports coalesce: the last one wins,
// and the numbers tell the reader how many it did not see.  One writer (the
// rank), one reader (the daemon).  A view into the arena's control segment,
// which must outlive it.  Thread-compatible.
class MetricsCell {
 public:
  // A report is a few hundred bytes; 64 KiB leaves room for per-layer figures.
  static constexpr size_t kPayloadBytesMax = size_t{64} << 10;
  static constexpr size_t kSizeBytes = SeqCell::SizeFor(kPayloadBytesMax);

  struct Report {
    // 1 for the first.  Coalesced since the last read: this one's number minus
    // the last one's, minus one.
    uint64_t sequence = 0;
    std::string payload;
  };

  explicit MetricsCell(std::byte* memory) : cell_(memory, kPayloadBytesMax) {}

  // Rank.  INVALID_ARGUMENT above kPayloadBytesMax; the cell is unchanged then.
  absl::Status Publish(absl::string_view payload);

  // Daemon.  The last report if it is newer than `after` (0: any), whole;
  // nullopt when there is none.
  std::optional<Report> ReadAfter(uint64_t after) const;

 private:
  SeqCell cell_;
};

}  // namespace cohort::shm
