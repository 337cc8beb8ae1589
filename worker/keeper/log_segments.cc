#include "worker/keeper/log_segments.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "worker/keeper/record.h"
#include "worker/keeper/reports.h"

namespace cohort::keeper {
namespace {

// All of uint64's digits, so that names sort as offsets do.
constexpr size_t kOffsetDigits = 20;
constexpr size_t kLogEndBytesMax = 256;

std::optional<uint64_t> ParseOffset(const std::string& digits) {
  if (digits.size() != kOffsetDigits) return std::nullopt;
  const size_t first =
      std::min(digits.find_first_not_of('0'), kOffsetDigits - 1);
  const std::optional<int64_t> offset = ParseDecimal(digits.substr(first));
  if (!offset || *offset < 0) return std::nullopt;
  return static_cast<uint64_t>(*offset);
}

}  // namespace

std::string LogStem(int slot, uint64_t incarnation, bool is_stderr) {
  return std::to_string(slot) + "." + std::to_string(incarnation) +
         (is_stderr ? ".stderr." : ".stdout.");
}

std::string SegmentName(const std::string& stem, uint64_t first_offset) {
  std::string digits = std::to_string(first_offset);
  digits.insert(0, kOffsetDigits - digits.size(), '0');
  return stem + digits;
}

std::string LogEndName(const std::string& stem) { return stem + "end"; }

std::map<uint64_t, std::string> ListSegments(const std::string& dir,
                                             const std::string& stem,
                                             int* error_number) {
  std::map<uint64_t, std::string> segments;
  for (const std::string& name : ListDirectory(dir, error_number)) {
    if (name.compare(0, stem.size(), stem) != 0) continue;
    const std::optional<uint64_t> offset =
        ParseOffset(name.substr(stem.size()));
    if (offset) segments[*offset] = dir + "/" + name;
  }
  return segments;
}

LogWriter::LogWriter(const Directory& dir, std::string stem, LogLimits limits)
    : dir_(dir), stem_(std::move(stem)), limits_(limits), times_(dir) {}

std::string LogWriter::Reserve() {
  return end_mark_.Reserve(dir_, LogEndName(stem_), kLogEndBytesMax);
}

void LogWriter::Append(const char* data, size_t size, ReadTime when) {
  when_ = when;
  if (dropped_ > dropped_marked_) WriteMark();
  // While bytes are missing and the line about them does not fit, later bytes
  // are dropped too: written, they would look adjacent to the earlier ones.
  const size_t written = dropped_ > dropped_marked_ ? 0 : Write(data, size);
  dropped_ += size - written;
}

size_t LogWriter::Write(const char* data, size_t size) {
  size_t written = 0;
  while (written < size) {
    if (!segment_ && !OpenSegment()) return written;
    // First: who sees bytes sees their time.
    if (written == 0 || end_ == first_offsets_.back()) times_.Add(end_, when_);
    const uint64_t used = end_ - first_offsets_.back();
    const size_t room = static_cast<size_t>(
        std::min<uint64_t>(size - written, limits_.segment_bytes - used));
    const ssize_t n = write(segment_.get(), data + written, room);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      last_error_ = n < 0 ? errno : ENOSPC;
      return written;
    }
    written += static_cast<size_t>(n);
    end_ += static_cast<uint64_t>(n);
    if (end_ - first_offsets_.back() >= limits_.segment_bytes) {
      segment_.Reset();
      times_.End();
      RemoveOldest();
    }
  }
  return written;
}

bool LogWriter::OpenSegment() {
  // O_APPEND keeps offsets right whatever happened to the file before.
  segment_ = UniqueFd(
      openat(dir_.fd(), SegmentName(stem_, end_).c_str(),
             O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!segment_) {
    last_error_ = errno;
    return false;
  }
  times_.Begin(SegmentName(stem_, end_), end_);
  first_offsets_.push_back(end_);
  return true;
}

void LogWriter::RemoveOldest() {
  while (first_offsets_.size() > 1 &&
         end_ - first_offsets_.front() > limits_.stream_bytes) {
    const std::string oldest = SegmentName(stem_, first_offsets_.front());
    unlinkat(dir_.fd(), LogTimesName(oldest).c_str(), 0);
    unlinkat(dir_.fd(), oldest.c_str(), 0);
    first_offsets_.pop_front();
  }
}

void LogWriter::WriteMark() {
  const std::string mark =
      "\n[cohort: " + std::to_string(dropped_ - dropped_marked_) +
      " bytes of output lost here: " + std::strerror(last_error_) + "]\n";
  // A mark that was cut is repeated: rather two lines than none.
  if (Write(mark.data(), mark.size()) == mark.size()) {
    dropped_marked_ = dropped_;
  }
}

void LogWriter::Close() {
  if (dropped_ > dropped_marked_) WriteMark();
  segment_.Reset();
  times_.End();
  // On failure the daemon seals the stream once the keeper is gone.
  const std::string error = end_mark_.Commit(Encode(
      LogEnd{static_cast<int64_t>(end_), static_cast<int64_t>(dropped_)}));
  if (!error.empty()) std::fprintf(stderr, "%s\n", error.c_str());
}

}  // namespace cohort::keeper
