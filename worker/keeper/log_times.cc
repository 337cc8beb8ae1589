#include "worker/keeper/log_times.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace cohort::keeper {
namespace {

// Its size is that of an entry.
constexpr char kHeader[16] = "cohort times 1\n";
static_assert(sizeof(LogTime) == sizeof(kHeader));  // on disk since v0.1

constexpr uint64_t kEntryBytes = 4096;
constexpr int64_t kEntryPeriod_us = 50'000;
// An index holds so many entries, and one more for each kBytesPerEntry.
constexpr uint64_t kFreeEntries = 4096;
constexpr uint64_t kBytesPerEntry = 64;

// Entry `index` and those after it; fewer than `count` at the end.
std::vector<LogTime> ReadEntries(int file, size_t index, size_t count) {
  std::vector<LogTime> entries(count);
  const ssize_t n = pread(file, entries.data(), count * sizeof(LogTime),
                          static_cast<off_t>((index + 1) * sizeof(LogTime)));
  entries.resize(n < 0 ? 0 : static_cast<size_t>(n) / sizeof(LogTime));
  return entries;
}

// How many entries there are; 0 where the file is none of ours.
size_t CountEntries(int file) {
  char header[sizeof(kHeader)];
  struct stat status {};
  if (pread(file, header, sizeof(header), 0) != ssize_t{sizeof(header)} ||
      std::memcmp(header, kHeader, sizeof(header)) != 0 ||
      fstat(file, &status) != 0) {
    return 0;
  }
  return static_cast<size_t>(status.st_size) / sizeof(LogTime) - 1;
}

// The last entry at or before `offset`, or the first one.
size_t FindEntry(int file, size_t count, uint64_t offset) {
  size_t begin = 0;
  size_t end = count;
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    const std::vector<LogTime> entry = ReadEntries(file, middle, 1);
    if (!entry.empty() && entry.front().offset <= offset) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin == 0 ? 0 : begin - 1;
}

bool IsInOrder(const std::vector<LogTime>& times) {
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].at_us <= 0) return false;
    if (i > 0 && times[i].offset < times[i - 1].offset) return false;
  }
  return true;
}

}  // namespace

std::string LogTimesName(const std::string& segment) {
  return segment + ".times";
}

void LogTimesWriter::Begin(std::string segment, uint64_t first_offset) {
  segment_ = std::move(segment);
  first_offset_ = first_offset;
  file_.Reset();
  entries_ = 0;
}

void LogTimesWriter::Add(uint64_t offset, ReadTime when) {
  if (segment_.empty() || !IsDue(offset, when)) return;
  if (!file_) {
    file_ = UniqueFd(openat(dir_.fd(), LogTimesName(segment_).c_str(),
                            O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC,
                            0600));
    if (!Write(kHeader, sizeof(kHeader))) return End();
  }
  last_ = {offset, when.at_us};
  ++entries_;
  // Entries after one that was cut would be read as something else.
  if (!Write(&last_, sizeof(last_))) End();
}

bool LogTimesWriter::IsDue(uint64_t offset, ReadTime when) const {
  if (when.at_us <= 0) return false;
  if (entries_ == 0) return true;
  if (entries_ >= kFreeEntries + (offset - first_offset_) / kBytesPerEntry) {
    return false;
  }
  return when.turned || offset - last_.offset >= kEntryBytes ||
         when.at_us - last_.at_us >= kEntryPeriod_us ||
         when.at_us < last_.at_us;  // the clock was set
}

bool LogTimesWriter::Write(const void* bytes, size_t size) {
  ssize_t n = 0;
  do {
    n = write(file_.get(), bytes, size);
  } while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(size);
}

std::vector<LogTime> ReadLogTimes(const std::string& path, uint64_t from,
                                  uint64_t* to) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const size_t count = file ? CountEntries(file.get()) : 0;
  if (count == 0) return {};
  std::vector<LogTime> times = ReadEntries(
      file.get(), FindEntry(file.get(), count, from), kLogTimesMax + 1);
  if (!IsInOrder(times)) return {};
  while (!times.empty() && times.back().offset >= *to) times.pop_back();
  if (times.size() > kLogTimesMax && times.back().offset > from) {
    *to = times.back().offset;
    times.pop_back();
  }
  return times;
}

}  // namespace cohort::keeper
