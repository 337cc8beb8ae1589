#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cohort/v1/domain.pb.h"
#include "worker/keeper/log_times.h"

namespace cohort::worker {

struct LogChunk {
  // Where `bytes` begins.  Larger than the offset asked for when that part was
  // rotated away or lost: the reader was "truncated to" here.  What begins a
  // rotated stream again begins with a line, as far as one is at hand.
  uint64_t offset = 0;
  std::string bytes;
  // What to ask for next.
  uint64_t next_offset = 0;
  // The stream is complete and next_offset is its end.
  bool eof = false;
  // When `bytes` were read, as far as the keeper noted it.
  std::vector<keeper::LogTime> times;
};

// How a stream's files were: tells cheaply whether there may be more.
struct LogMark {
  int64_t dir_changed_ns = 0;
  // The newest segment and its first offset; empty: there is none.
  std::string segment;
  uint64_t segment_begin = 0;
};

// Reads one output stream of one process from the segments that its keeper
// writes (or wrote), by absolute offset, across rotations and restarts.
//
// In the worker daemon, at the edge: touches the disk.  Thread-compatible; any
// number may read one stream.  Has no state but its place: a new reader
// goes on with the next_offset of the last.
//
// LR-1: reading on at next_offset repeats no byte and leaves none out, except
//       where a chunk's `offset` says so.
class LogReader {
 public:
  // `log_dir`, `slot` and `incarnation` as in the ProcessSpec.
  LogReader(std::string log_dir, int slot, uint64_t incarnation,
            v1::LogStream stream);

  // At most `bytes_max` bytes from `offset` on, which are fewer where their
  // times are too many; empty when none are there yet. NotFound when the
  // directory is gone; Unavailable when it cannot be read.
  absl::StatusOr<LogChunk> Read(uint64_t offset, size_t bytes_max) const;

  // Where the next byte will be written.  Errors as Read.
  absl::StatusOr<uint64_t> EndOffset() const;

  // As it is now.  Errors as Read.
  absl::StatusOr<LogMark> Mark() const;
  // Whether a Read of `offset` may give something, when one after `mark` gave
  // nothing.  Of files that were made within a tick of the mark it does not
  // know: dir_changed_ns has to be that of a mark some ms before.
  bool MayHaveMore(const LogMark& mark, uint64_t offset) const;

 private:
  // NotFound also when a segment went while it was read.
  absl::StatusOr<LogChunk> ReadOnce(uint64_t offset, size_t bytes_max) const;

  const std::string log_dir_;
  const std::string stem_;  // "3.12.stdout."
};

// Reads what the processes of one slot wrote on this node to one stream, as one
// stream: the logs of its incarnations up to `incarnation`, oldest first.  The
// earlier ones grow no more.  A last line without an end is given one.
//
// At the edge, as LogReader.  Thread-compatible.
class SlotLogReader {
 public:
  SlotLogReader(std::string log_dir, int slot, uint64_t incarnation,
                v1::LogStream stream);

  // As LogReader::Read; a negative offset counts from the end, though not
  // beyond the first byte.
  absl::StatusOr<LogChunk> Read(int64_t offset, size_t bytes_max);

  // As LogReader's.  REQUIRES: a Read before.
  absl::StatusOr<LogMark> Mark() const;
  bool MayHaveMore(const LogMark& mark, int64_t offset) const;

 private:
  struct Part {
    uint64_t begin;
    LogReader reader;
  };

  absl::Status FindParts();

  const std::string log_dir_;
  const int slot_;
  const uint64_t incarnation_;
  const v1::LogStream stream_;
  std::vector<Part> parts_;  // found by the first read
};

// Marks both streams of a process complete where they are: for the daemon, once
// the keeper that could not do so itself is known to be dead.
absl::Status SealLogs(const std::string& log_dir, int slot,
                      uint64_t incarnation);

}  // namespace cohort::worker
