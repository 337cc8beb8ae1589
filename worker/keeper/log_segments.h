#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "worker/keeper/files.h"
#include "worker/keeper/log_times.h"

// The output of a process on disk: segments named by the offset of their first
// byte.  std only; the keeper writes them, worker/log_reader reads them.
namespace cohort::keeper {

// "<slot>.<incarnation>.<stdout|stderr>."; a segment's name is this and its
// first offset.
std::string LogStem(int slot, uint64_t incarnation, bool is_stderr);
std::string SegmentName(const std::string& stem, uint64_t first_offset);
std::string LogEndName(const std::string& stem);

// Paths of the segments of `stem` in `dir` by first offset.
std::map<uint64_t, std::string> ListSegments(const std::string& dir,
                                             const std::string& stem,
                                             int* error_number);

// A stream (a process's stdout or stderr) is cut into files of segment_bytes;
// the oldest go when the sum passes stream_bytes.  The story of a failure is in
// the last MiB, and 8 processes x 2 x 256 MiB = 4 GiB of disk at most.
struct LogLimits {
  uint64_t segment_bytes = 16 << 20;
  uint64_t stream_bytes = 256 << 20;
};

// Writes one stream.
//
// Never fails: what the disk does not take is dropped and counted, and as soon
// as it takes bytes again a line in the log says how many are missing there
// (that line has offsets like any other bytes).  Thread-compatible.
//
// LW-1: segments are contiguous: each begins where the one before it ends.
// LW-2: the segments of a stream hold at most stream_bytes + segment_bytes.
class LogWriter {
 public:
  // `dir` outlives this; `stem` as LogStem.  No file is opened before the first
  // byte.
  LogWriter(const Directory& dir, std::string stem, LogLimits limits);

  // Takes the blocks of the end mark; an error text when the disk is full.
  std::string Reserve();
  // Gives them back: nothing was or will be written.
  void Discard() { end_mark_.Discard(); }

  // `when` they were read goes into the segment's index (LogTimesWriter).
  void Append(const char* data, size_t size, ReadTime when = {});

  // Writes the end mark: no byte follows.
  void Close();

  uint64_t end_offset() const { return end_; }
  uint64_t dropped_bytes() const { return dropped_; }

 private:
  // Bytes written; less than `size` with errno's number in last_error_.
  size_t Write(const char* data, size_t size);
  bool OpenSegment();
  void RemoveOldest();
  void WriteMark();

  const Directory& dir_;
  const std::string stem_;
  const LogLimits limits_;
  ReservedFile end_mark_;
  UniqueFd segment_;
  LogTimesWriter times_;
  ReadTime when_;                       // what is written was read
  std::deque<uint64_t> first_offsets_;  // of the segments on disk
  uint64_t end_ = 0;
  uint64_t dropped_ = 0;
  uint64_t dropped_marked_ = 0;  // of these, said in the log
  int last_error_ = 0;
};

}  // namespace cohort::keeper
