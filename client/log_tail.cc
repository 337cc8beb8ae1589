#include "client/log_tail.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/string_view.h"

#include "common/status_macros.h"

namespace cohort::client {
namespace {

// Of each log at first; then eight times as much, and so on.
constexpr int64_t kFirstPartBytes = 64 << 10;
// A keeper keeps less of a log.
constexpr int64_t kLogBytesMax = int64_t{1} << 30;

// The beginning of a line.
struct Line {
  int64_t offset;
  absl::Time at;
};

// The lines of one log that are wanted, as far as it was read from its end.
class TailScan {
 public:
  TailScan(const LogOptions& options, LogPlace place)
      : since_(options.since), place_(place) {
    if (options.tail.has_value()) {
      lines_max_ = static_cast<size_t>(*options.tail);
    } else {
      keeps_first_ = true;
      lines_max_ = 1;
    }
  }

  // It is read again, from so far before its end.
  LogPlace Begin(int64_t bytes) {
    place_.offset = -bytes;
    begin_.reset();
    lines_.clear();
    at_line_ = true;
    end_ = 0;
    return place_;
  }

  void Add(const LogChunk& chunk) {
    if (!begin_.has_value()) begin_ = {chunk.offset, chunk.at};
    // A slot's next attempt, or process, has another log.
    place_.attempt = chunk.attempt;
    int64_t offset = chunk.offset;
    absl::string_view left = chunk.data;
    while (!left.empty()) {
      if (std::exchange(at_line_, false)) AddLine({offset, chunk.at});
      const size_t end = left.find('\n');
      at_line_ = end != absl::string_view::npos;
      const size_t size = at_line_ ? end + 1 : left.size();
      left.remove_prefix(size);
      offset += static_cast<int64_t>(size);
    }
    end_ = offset;
  }

  // Whether no earlier part is needed; then its first line is whole, or left
  // out.
  bool Finish(int64_t bytes) {
    if (!begin_.has_value()) return true;
    const bool is_whole = begin_->offset == 0 || end_ - begin_->offset < bytes;
    if (!is_whole && !lines_.empty() &&
        lines_.front().offset == begin_->offset) {
      lines_.pop_front();
    }
    const bool has_enough = !keeps_first_ && lines_.size() >= lines_max_;
    const bool is_before = since_.has_value() && begin_->at < *since_ &&
                           begin_->at != absl::InfinitePast();
    return is_whole || has_enough || is_before || bytes >= kLogBytesMax;
  }

  const std::deque<Line>& lines() const { return lines_; }
  void DropFirst() { lines_.pop_front(); }
  // By its first line; without times the longer one, as if it were.
  bool IsOlderThan(const TailScan& other) const {
    const Line& line = lines_.front();
    const Line& others = other.lines_.front();
    return line.at != others.at ? line.at < others.at
                                : lines_.size() > other.lines_.size();
  }
  // Of the first line, or the end.
  LogPlace Place() const {
    LogPlace place = place_;
    place.offset = lines_.empty() ? end_ : lines_.front().offset;
    return place;
  }

 private:
  void AddLine(Line line) {
    if (since_.has_value() && line.at < *since_ &&
        line.at != absl::InfinitePast()) {
      return;
    }
    // One more than wanted: the first may not be whole.
    if (keeps_first_ && lines_.size() > lines_max_) return;
    lines_.push_back(line);
    if (lines_.size() > lines_max_ + 1) lines_.pop_front();
  }

  const std::optional<absl::Time> since_;
  size_t lines_max_ = 0;
  bool keeps_first_ = false;  // without a tail the first one is enough
  LogPlace place_;
  std::optional<Line> begin_;  // of what was read
  std::deque<Line> lines_;
  bool at_line_ = true;
  int64_t end_ = 0;
};

using Scans = std::map<std::pair<int, LogStream>, TailScan>;

// Reads the last `bytes` of those in `places`.
absl::Status ReadPart(HeadClient& head, const JobId& job,
                      const LogOptions& options, absl::Duration timeout,
                      const std::vector<LogPlace>& places, Scans& scans) {
  LogOptions once = options;
  once.follow = false;
  once.tick = absl::InfiniteDuration();
  return LogFollower(head, job, once,
                     options.deadline.value_or(absl::InfiniteDuration()),
                     timeout, places,
                     [&scans](const LogChunk& chunk) {
                       scans.at({chunk.rank, chunk.stream}).Add(chunk);
                       return absl::OkStatus();
                     })
      .Run();
}

// Leaves the last `count` lines of a rank's logs together.
void KeepLast(const std::vector<TailScan*>& scans, size_t count) {
  size_t total = 0;
  for (const TailScan* const scan : scans) total += scan->lines().size();
  for (; total > count; --total) {
    TailScan* oldest = nullptr;
    for (TailScan* const scan : scans) {
      if (scan->lines().empty()) continue;
      if (oldest == nullptr || scan->IsOlderThan(*oldest)) oldest = scan;
    }
    oldest->DropFirst();
  }
}

}  // namespace

absl::StatusOr<std::vector<LogPlace>> FindLogTail(
    HeadClient& head, const JobId& job, const LogOptions& options,
    absl::Duration timeout, const std::vector<LogPlace>& places) {
  Scans scans;
  for (const LogPlace& place : places) {
    scans.try_emplace({place.rank, place.stream}, options, place);
  }
  std::vector<LogPlace> left = places;
  for (int64_t bytes = kFirstPartBytes; !left.empty(); bytes *= 8) {
    for (LogPlace& place : left) {
      place = scans.at({place.rank, place.stream}).Begin(bytes);
    }
    COHORT_RETURN_IF_ERROR(ReadPart(head, job, options, timeout, left, scans));
    std::erase_if(left, [&](const LogPlace& place) {
      return scans.at({place.rank, place.stream}).Finish(bytes);
    });
  }
  std::map<int, std::vector<TailScan*>> by_rank;
  for (auto& [source, scan] : scans) by_rank[source.first].push_back(&scan);
  std::vector<LogPlace> begins;
  for (const auto& [rank, of_rank] : by_rank) {
    if (options.tail.has_value()) {
      KeepLast(of_rank, static_cast<size_t>(*options.tail));
    }
    for (const TailScan* const scan : of_rank) begins.push_back(scan->Place());
  }
  return begins;
}

}  // namespace cohort::client
