#include "worker/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "worker/keeper/files.h"
#include "worker/keeper/log_segments.h"
#include "worker/keeper/reports.h"

namespace cohort::worker {
namespace {

using keeper::UniqueFd;
// Paths by first offset.
using Segments = std::map<uint64_t, std::string>;

constexpr size_t kEndBytesMax = 4096;
// A segment can be rotated away between listing and opening; it is the oldest
// then, and a stream is not rotated through in the time of a few calls.
constexpr int kTriesMax = 4;
// At once, whatever is asked for.
constexpr size_t kReadBytesMax = 16 << 20;

absl::StatusOr<Segments> List(const std::string& dir, const std::string& stem) {
  int error = 0;
  Segments segments = keeper::ListSegments(dir, stem, &error);
  if (error == ENOENT) {
    return absl::NotFoundError(absl::StrCat("no log directory ", dir));
  }
  if (error != 0) {
    return absl::UnavailableError(
        ErrnoStatus(error, absl::StrCat("list ", dir)).message());
  }
  return segments;
}

std::optional<uint64_t> ReadEnd(const std::string& dir,
                                const std::string& stem) {
  int error = 0;
  const std::optional<std::string> bytes = keeper::ReadWhole(
      absl::StrCat(dir, "/", keeper::LogEndName(stem)), kEndBytesMax, &error);
  std::string damage;
  const std::optional<keeper::LogEnd> end =
      bytes ? keeper::Parse<keeper::LogEnd>(*bytes, &damage) : std::nullopt;
  if (!end) return std::nullopt;
  return static_cast<uint64_t>(end->offset);
}

// Where the bytes of `segment` end.
absl::StatusOr<uint64_t> EndOf(const Segments::value_type& segment) {
  struct stat file {};
  if (stat(segment.second.c_str(), &file) != 0) {
    return ErrnoStatus(errno, absl::StrCat("look at ", segment.second));
  }
  return segment.first + static_cast<uint64_t>(file.st_size);
}

// When a file was made in the directory or went last; 0 when it is gone.
int64_t ChangedNs(const std::string& dir) {
  struct stat file {};
  if (stat(dir.c_str(), &file) != 0) return 0;
  return int64_t{file.st_mtim.tv_sec} * 1'000'000'000 + file.st_mtim.tv_nsec;
}

// The segment that holds `offset` or, where there is none, the first after it.
Segments::const_iterator Locate(const Segments& segments, uint64_t offset) {
  auto after = segments.upper_bound(offset);
  if (after == segments.begin()) return after;
  const auto before = std::prev(after);
  const absl::StatusOr<uint64_t> end = EndOf(*before);
  // A segment that ends short of the next one lost its end with the power.
  const bool holds = end.ok() && offset < *end;
  return holds ? before : after;
}

// Leaves out what is left of a line whose beginning was rotated away.
void BeginWithALine(LogChunk& chunk) {
  const size_t end = chunk.bytes.find('\n');
  // A chunk that only ends it stays: without bytes it would not be passed on.
  if (end == std::string::npos || end + 1 == chunk.bytes.size()) return;
  chunk.bytes.erase(0, end + 1);
  chunk.offset += end + 1;
}

// Leaves out the times of bytes before the chunk's.
void BeginTimes(LogChunk& chunk) {
  std::vector<keeper::LogTime>& times = chunk.times;
  while (times.size() > 1 && times[1].offset <= chunk.offset) {
    times.erase(times.begin());
  }
  if (!times.empty()) {
    times.front().offset = std::max(times.front().offset, chunk.offset);
  }
}

// Up to `bytes_max` bytes of one segment from the stream's `offset` on.
absl::StatusOr<std::string> ReadSegment(const Segments::value_type& segment,
                                        uint64_t offset, size_t bytes_max) {
  const UniqueFd file(open(segment.second.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    return ErrnoStatus(errno, absl::StrCat("open ", segment.second));
  }
  std::string bytes(bytes_max, '\0');
  size_t size = 0;
  while (size < bytes_max) {
    const ssize_t n = pread(file.get(), bytes.data() + size, bytes_max - size,
                            static_cast<off_t>(offset - segment.first + size));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, absl::StrCat("read ", segment.second));
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  bytes.resize(size);
  return bytes;
}

// Of the slot's, those with a log.
absl::StatusOr<std::set<uint64_t>> EarlierIncarnations(const std::string& dir,
                                                       int slot,
                                                       uint64_t incarnation,
                                                       v1::LogStream stream) {
  int error = 0;
  std::set<uint64_t> earlier;
  for (const std::string& name : keeper::ListDirectory(dir, &error)) {
    const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
    uint64_t found = 0;
    if (parts.size() < 4 || parts[0] != absl::StrCat(slot) ||
        !absl::SimpleAtoi(parts[1], &found) || found >= incarnation ||
        parts[2] != (stream == v1::LOG_STREAM_STDERR ? "stderr" : "stdout")) {
      continue;
    }
    earlier.insert(found);
  }
  if (error == ENOENT) {
    return absl::NotFoundError(absl::StrCat("no log directory ", dir));
  }
  if (error != 0) return ErrnoStatus(error, absl::StrCat("list ", dir));
  return earlier;
}

}  // namespace

LogReader::LogReader(std::string log_dir, int slot, uint64_t incarnation,
                     v1::LogStream stream)
    : log_dir_(std::move(log_dir)),
      stem_(keeper::LogStem(slot, incarnation,
                            stream == v1::LOG_STREAM_STDERR)) {}

absl::StatusOr<LogChunk> LogReader::Read(uint64_t offset,
                                         size_t bytes_max) const {
  // Before the segments: bytes written after a look at them belong to a stream
  // whose end was not there yet.
  const std::optional<uint64_t> end = ReadEnd(log_dir_, stem_);
  bytes_max = std::min(bytes_max, kReadBytesMax);
  absl::Status status;
  for (int i = 0; i < kTriesMax; ++i) {
    absl::StatusOr<LogChunk> chunk = ReadOnce(offset, bytes_max);
    if (!chunk.ok()) {
      status = chunk.status();
      if (absl::IsNotFound(status)) continue;
      return status;
    }
    // No more bytes although the end is not reached: the power took them.
    const bool none_left = chunk->bytes.empty() && bytes_max > 0;
    chunk->eof = end && (chunk->next_offset >= *end || none_left);
    return chunk;
  }
  return status;
}

absl::StatusOr<LogChunk> LogReader::ReadOnce(uint64_t offset,
                                             size_t bytes_max) const {
  COHORT_ASSIGN_OR_RETURN(const Segments segments, List(log_dir_, stem_));
  LogChunk chunk;
  chunk.offset = offset;
  auto segment = Locate(segments, offset);
  if (segment != segments.end() && segment->first > offset) {
    chunk.offset = segment->first;
  }
  chunk.next_offset = chunk.offset;
  while (segment != segments.end() && chunk.bytes.size() < bytes_max) {
    // What follows a hole comes with the next call, which says where it is.
    if (segment->first > chunk.next_offset) break;
    COHORT_ASSIGN_OR_RETURN(std::string bytes,
                            ReadSegment(*segment, chunk.next_offset,
                                        bytes_max - chunk.bytes.size()));
    // After the bytes: their times were written before them.
    const uint64_t end = chunk.next_offset + bytes.size();
    uint64_t timed_end = end;
    const std::vector<keeper::LogTime> times = keeper::ReadLogTimes(
        keeper::LogTimesName(segment->second), chunk.next_offset, &timed_end);
    chunk.times.insert(chunk.times.end(), times.begin(), times.end());
    bytes.resize(bytes.size() - static_cast<size_t>(end - timed_end));
    chunk.bytes += bytes;
    chunk.next_offset = timed_end;
    if (timed_end < end) break;
    ++segment;
  }
  if (!segments.empty() && offset < segments.begin()->first) {
    BeginWithALine(chunk);
  }
  BeginTimes(chunk);
  return chunk;
}

absl::StatusOr<uint64_t> LogReader::EndOffset() const {
  COHORT_ASSIGN_OR_RETURN(const Segments segments, List(log_dir_, stem_));
  if (segments.empty()) return ReadEnd(log_dir_, stem_).value_or(0);
  return EndOf(*segments.rbegin());
}

absl::StatusOr<LogMark> LogReader::Mark() const {
  LogMark mark;
  mark.dir_changed_ns = ChangedNs(log_dir_);
  COHORT_ASSIGN_OR_RETURN(const Segments segments, List(log_dir_, stem_));
  if (!segments.empty()) {
    std::tie(mark.segment_begin, mark.segment) = *segments.rbegin();
  }
  return mark;
}

bool LogReader::MayHaveMore(const LogMark& mark, uint64_t offset) const {
  if (ChangedNs(log_dir_) != mark.dir_changed_ns) return true;
  if (mark.segment.empty()) return false;
  const absl::StatusOr<uint64_t> end =
      EndOf({mark.segment_begin, mark.segment});
  return !end.ok() || *end > offset;
}

SlotLogReader::SlotLogReader(std::string log_dir, int slot,
                             uint64_t incarnation, v1::LogStream stream)
    : log_dir_(std::move(log_dir)),
      slot_(slot),
      incarnation_(incarnation),
      stream_(stream) {}

absl::Status SlotLogReader::FindParts() {
  COHORT_ASSIGN_OR_RETURN(
      const std::set<uint64_t> earlier,
      EarlierIncarnations(log_dir_, slot_, incarnation_, stream_));
  std::vector<Part> parts;
  uint64_t begin = 0;
  for (const uint64_t incarnation : earlier) {
    const LogReader reader(log_dir_, slot_, incarnation, stream_);
    COHORT_ASSIGN_OR_RETURN(const uint64_t end, reader.EndOffset());
    parts.push_back({begin, reader});
    begin += end;
    if (end == 0) continue;
    COHORT_ASSIGN_OR_RETURN(const LogChunk last, reader.Read(end - 1, 1));
    if (last.bytes != "\n") begin += 1;  // the end of that line
  }
  parts.push_back({begin, LogReader(log_dir_, slot_, incarnation_, stream_)});
  parts_ = std::move(parts);
  return absl::OkStatus();
}

absl::StatusOr<LogMark> SlotLogReader::Mark() const {
  if (parts_.empty()) return absl::NotFoundError("nothing was read yet");
  return parts_.back().reader.Mark();
}

bool SlotLogReader::MayHaveMore(const LogMark& mark, int64_t offset) const {
  const Part& last = parts_.back();
  const uint64_t at = static_cast<uint64_t>(offset);
  return offset < 0 || at < last.begin ||
         last.reader.MayHaveMore(mark, at - last.begin);
}

absl::StatusOr<LogChunk> SlotLogReader::Read(int64_t offset, size_t bytes_max) {
  if (parts_.empty()) COHORT_RETURN_IF_ERROR(FindParts());
  uint64_t at = static_cast<uint64_t>(offset);
  if (offset < 0) {
    COHORT_ASSIGN_OR_RETURN(uint64_t end, parts_.back().reader.EndOffset());
    end += parts_.back().begin;
    at = end - std::min(end, uint64_t{0} - at);
  }
  for (size_t i = 0;; ++i) {
    const bool is_last = i + 1 == parts_.size();
    if (!is_last && parts_[i + 1].begin <= at) continue;
    const uint64_t begin = parts_[i].begin;
    COHORT_ASSIGN_OR_RETURN(
        LogChunk chunk,
        parts_[i].reader.Read(std::max(at, begin) - begin, bytes_max));
    chunk.offset += begin;
    for (keeper::LogTime& time : chunk.times) time.offset += begin;
    if (!is_last) {
      if (chunk.bytes.empty()) chunk.bytes = "\n";
      chunk.eof = false;
    }
    chunk.next_offset = chunk.offset + chunk.bytes.size();
    return chunk;
  }
}

absl::Status SealLogs(const std::string& log_dir, int slot,
                      uint64_t incarnation) {
  for (const auto stream : {v1::LOG_STREAM_STDOUT, v1::LOG_STREAM_STDERR}) {
    const std::string stem =
        keeper::LogStem(slot, incarnation, stream == v1::LOG_STREAM_STDERR);
    if (ReadEnd(log_dir, stem)) continue;
    const LogReader reader(log_dir, slot, incarnation, stream);
    COHORT_ASSIGN_OR_RETURN(const uint64_t end, reader.EndOffset());
    const std::string error = keeper::WriteByRename(
        log_dir, keeper::LogEndName(stem),
        keeper::Encode(keeper::LogEnd{static_cast<int64_t>(end), 0}),
        keeper::Durability::kCrash);
    if (!error.empty()) return absl::UnavailableError(error);
  }
  return absl::OkStatus();
}

}  // namespace cohort::worker
