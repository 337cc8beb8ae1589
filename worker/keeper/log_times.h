#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/keeper/files.h"

// When the bytes of a segment were read: an index beside it, so that readers
// can put the streams of a process into order.  std only; the keeper writes it,
// worker/log_reader reads it.
namespace cohort::keeper {

// The bytes of a stream from `offset` on, up to the next entry's, were read at
// `at_us`, by the wall clock.
struct LogTime {
  uint64_t offset = 0;
  int64_t at_us = 0;
};

// When the keeper read some bytes, and whether it had read other output of the
// process since the last ones of this stream.  0: not known, not noted.
struct ReadTime {
  int64_t at_us = 0;
  bool turned = false;
};

// Of the index of a segment of that name, or path.
std::string LogTimesName(const std::string& segment);

// Writes the index of one segment after another.
//
// An entry is due every 4 KiB, after 50 ms, and at each turn between the
// streams, so that the order of reads can be told.  Beyond the first 4,096 of a
// segment only one in 64 bytes is kept.  On disk: a header of 16 bytes, then
// offset and time of each entry, 8 bytes each, as the machine has them; what
// cannot be written is left out.  Thread-compatible.
class LogTimesWriter {
 public:
  // `dir` outlives this.
  explicit LogTimesWriter(const Directory& dir) : dir_(dir) {}

  // A segment begins; its file is made with its first entry.
  void Begin(std::string segment, uint64_t first_offset);
  // Bytes that were read at `when` follow at `offset`.
  void Add(uint64_t offset, ReadTime when);
  // The segment has ended.
  void End() {
    segment_.clear();
    file_.Reset();
  }

 private:
  bool IsDue(uint64_t offset, ReadTime when) const;
  bool Write(const void* bytes, size_t size);

  const Directory& dir_;
  std::string segment_;  // empty: no entry is written
  uint64_t first_offset_ = 0;
  UniqueFd file_;
  uint64_t entries_ = 0;
  LogTime last_;
};

// What one ReadLogTimes gives at most.
inline constexpr size_t kLogTimesMax = 1'024;

// The times of the bytes from `from` to `*to` by the index at `path`; where
// there are more than kLogTimesMax, of those to `*to` as it is then.  Empty
// without an index, or when it is damaged.
std::vector<LogTime> ReadLogTimes(const std::string& path, uint64_t from,
                                  uint64_t* to);

}  // namespace cohort::keeper
