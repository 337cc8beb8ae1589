#include "client/log_follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/duration_text.h"
#include "common/status_util.h"
#include "rpc/methods.h"

namespace cohort::client {
namespace {

// How long a node that has the log may be away before a reader that follows
// without a deadline gives up: several node timeouts, after which the head has
// moved the job elsewhere.
constexpr absl::Duration kNodeAwayMax = absl::Minutes(1);
// Twice as long as a worker takes at most to see that a log has grown.
constexpr absl::Duration kHold = absl::Milliseconds(100);

absl::Time TimeOf(const v1::LogTime& time) {
  return absl::FromUnixMicros(time.at_us());
}

}  // namespace

LogFollower::LogFollower(HeadClient& head, const JobId& job,
                         const LogOptions& options, absl::Duration deadline,
                         absl::Duration timeout,
                         const std::vector<LogPlace>& places, Sink sink)
    : head_(head),
      job_(job),
      options_(options),
      deadline_(head.clock().Monotonic() + deadline),
      timeout_(timeout),
      sink_(sink),
      merge_(places.size(), options.follow ? kHold : absl::InfiniteDuration()) {
  for (const LogPlace& place : places) {
    sources_.push_back({.index = sources_.size(),
                        .place = place,
                        .backoff = head_.NewBackoff(),
                        .reader = nullptr,
                        .away_since = std::nullopt});
  }
}

absl::Status LogFollower::Run() {
  open_ = sources_.size();
  moved_at_ = head_.clock().Monotonic();
  for (Source& source : sources_) Open(source);
  if (timeout_ < absl::InfiniteDuration()) Watch();
  if (options_.tick < absl::InfiniteDuration()) Tick();
  here_.RunUntil([this] { return open_ == 0; });
  while (!sink_failed_) {
    std::optional<LogMerge::Piece> piece =
        merge_.Next(absl::InfiniteDuration());
    if (!piece.has_value()) break;
    result_.Update(Give(*std::move(piece)));
  }
  result_.Update(gone_);
  return result_;
}

void LogFollower::Open(Source& source) {
  source.stream_end = 0;
  v1::ReadLogRequest request;
  request.set_job_id(std::string(job_.bytes()));
  request.set_rank(source.place.rank);
  request.set_stream(source.place.stream);
  request.set_attempt(source.place.attempt);
  request.set_offset(source.place.offset);
  request.set_follow(options_.follow);
  rpc::TypedEvents<v1::ReadLogResponse> events;
  events.on_message = [this, &source](const v1::ReadLogResponse& message) {
    OnMessage(source, message);
  };
  // The stream may not be destroyed within its own event.
  events.on_closed = [this, &source](absl::Status status,
                                     std::optional<rpc::Stamp> stamp) {
    here_.Post(
        [this, &source, status = std::move(status), stamp = std::move(stamp)] {
          source.reader.reset();
          OnClosed(source, status, stamp);
        });
  };
  source.reader =
      rpc::OpenStream(head_.channel(), rpc::kReadLog, {.deadline = Left()},
                      here_, std::move(events));
  // An error here comes through on_closed too.
  if (source.reader->Write(request).ok()) source.reader->HalfClose();
}

void LogFollower::OnMessage(Source& source,
                            const v1::ReadLogResponse& message) {
  if (!result_.ok() || source.paused) return;
  source.backoff.Reset();
  source.away_since.reset();
  Hold(source, message);
  Flush();
  if (merge_.bytes(source.index) > LogMerge::kBytesMax &&
      source.reader != nullptr) {
    source.paused = true;  // LF-1
    source.reader->Cancel();
  }
  moved_at_ = head_.clock().Monotonic();
}

void LogFollower::Hold(Source& source, const v1::ReadLogResponse& message) {
  LogPlace& place = source.place;
  // What came before the connection broke comes again if the head says so.
  if (message.attempt() < place.attempt) return;
  // A stream goes back where the slot's next process is on another node.
  if (message.attempt() > place.attempt ||
      message.offset() < source.stream_end) {
    place.attempt = message.attempt();
    place.offset = message.offset();
  }
  int64_t skipped = message.skipped();
  place.offset = std::max(place.offset, message.offset());
  const absl::string_view data = message.data();
  const int64_t end = message.offset() + static_cast<int64_t>(data.size());
  source.stream_end = end;
  int time = -1;  // of the bytes at place.offset; -1: not known
  while (place.offset < end) {
    while (time + 1 < message.times_size() &&
           message.times(time + 1).offset() <= place.offset) {
      ++time;
    }
    const int64_t next = time + 1 < message.times_size()
                             ? std::min(message.times(time + 1).offset(), end)
                             : end;
    LogMerge::Piece piece;
    piece.chunk = {.rank = place.rank,
                   .stream = place.stream,
                   .attempt = place.attempt,
                   .offset = place.offset,
                   .skipped = std::exchange(skipped, 0),
                   .gone_node = message.gone_node()};
    if (time >= 0) piece.chunk.at = TimeOf(message.times(time));
    piece.data = std::string(
        data.substr(static_cast<size_t>(place.offset - message.offset()),
                    static_cast<size_t>(next - place.offset)));
    piece.came = head_.clock().Monotonic();
    merge_.Add(source.index, std::move(piece));
    place.offset = next;
  }
}

void LogFollower::Flush() {
  while (result_.ok()) {
    std::optional<LogMerge::Piece> piece =
        merge_.Next(head_.clock().Monotonic());
    if (!piece.has_value()) break;
    if (const absl::Status status = Give(*std::move(piece)); !status.ok()) {
      Fail(status);
    }
  }
  ResumeDrained();
  const absl::Duration due = merge_.due();
  if (due == absl::InfiniteDuration() || std::exchange(flush_is_due_, true)) {
    return;
  }
  here_.PostAfter(due - head_.clock().Monotonic(), [this] {
    flush_is_due_ = false;
    Flush();
  });
}

absl::Status LogFollower::Give(LogMerge::Piece piece) {
  piece.chunk.data = piece.data;
  const absl::Status status = sink_(piece.chunk);
  sink_failed_ = sink_failed_ || !status.ok();
  return status;
}

void LogFollower::ResumeDrained() {
  for (Source& source : sources_) {
    if (!source.paused || source.reader != nullptr || !result_.ok() ||
        merge_.bytes(source.index) > 0) {
      continue;
    }
    source.paused = false;
    Open(source);
  }
}

void LogFollower::Tick() {
  here_.PostAfter(options_.tick, [this] {
    if (!result_.ok()) return;
    if (const absl::Status status = Give({}); !status.ok()) Fail(status);
    Tick();
  });
}

void LogFollower::OnClosed(Source& source, const absl::Status& status,
                           const std::optional<rpc::Stamp>& stamp) {
  if (source.paused && result_.ok()) return ResumeDrained();
  const absl::Status judged = head_.Judge(status, stamp);
  if (!judged.ok() && result_.ok()) {
    last_ = judged;
    if (absl::IsUnavailable(judged) && MayRetry(source, stamp.has_value())) {
      head_.OnRetry(judged);
      here_.PostAfter(std::min(source.backoff.Next(), Left()), [this, &source] {
        if (result_.ok()) return Open(source);
        --open_;
      });
      return;
    }
    if (GetReason(judged) == "node_gone") {
      gone_.Update(judged);
    } else {
      Fail(judged);
    }
  }
  --open_;
  merge_.End(source.index);
  Flush();
}

bool LogFollower::MayRetry(Source& source, bool head_answered) {
  if (Left() <= absl::ZeroDuration()) return false;
  if (!head_answered) {
    source.away_since.reset();
    return true;
  }
  const absl::Duration now = head_.clock().Monotonic();
  if (!source.away_since.has_value()) source.away_since = now;
  return now - *source.away_since < kNodeAwayMax;
}

void LogFollower::Watch() {
  const absl::Duration left = moved_at_ + timeout_ - head_.clock().Monotonic();
  if (left > absl::ZeroDuration()) {
    here_.PostAfter(left, [this] { Watch(); });
    return;
  }
  Fail(!last_.ok()
           ? last_
           : absl::DeadlineExceededError(absl::StrCat(
                 "the head at ", head_.channel().address(),
                 " sent nothing of the log for ", DurationToText(timeout_))));
}

void LogFollower::Fail(const absl::Status& status) {
  if (!result_.ok()) return;
  result_ = status;
  for (Source& source : sources_) {
    if (source.reader != nullptr) source.reader->Cancel();
    // Nothing else would end it.
    if (source.reader == nullptr && source.paused) --open_;
  }
}

}  // namespace cohort::client
