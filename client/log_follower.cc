#include "client/log_follower.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/duration_text.h"
#include "rpc/methods.h"

namespace cohort::client {
namespace {

// How long a node that has the log may be away before a reader that follows
// without a deadline gives up: several node timeouts, after which the head has
// moved the job elsewhere.
constexpr absl::Duration kNodeAwayMax = absl::Minutes(1);

}  // namespace

LogFollower::LogFollower(HeadClient& head, const JobId& job,
                         const LogOptions& options, absl::Duration deadline,
                         absl::Duration patience, const std::vector<int>& ranks,
                         Sink sink)
    : head_(head),
      job_(job),
      options_(options),
      deadline_(head.clock().Monotonic() + deadline),
      patience_(patience),
      sink_(sink) {
  const auto add = [&](int rank, LogStream stream) {
    sources_.push_back({.rank = rank,
                        .stream = stream,
                        .backoff = head_.NewBackoff(),
                        .attempt = options_.attempt,
                        .reader = nullptr,
                        .away_since = std::nullopt});
  };
  for (const int rank : ranks) {
    if (options_.standard_output) add(rank, v1::LOG_STREAM_STDOUT);
    if (options_.standard_error) add(rank, v1::LOG_STREAM_STDERR);
  }
}

absl::Status LogFollower::Run() {
  open_ = sources_.size();
  moved_at_ = head_.clock().Monotonic();
  for (Source& source : sources_) Open(source);
  if (patience_ < absl::InfiniteDuration()) Watch();
  here_.RunUntil([this] { return open_ == 0; });
  return result_;
}

void LogFollower::Open(Source& source) {
  v1::ReadLogRequest request;
  request.set_job_id(std::string(job_.bytes()));
  request.set_rank(source.rank);
  request.set_stream(source.stream);
  request.set_attempt(source.attempt);
  request.set_offset(source.offset);
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
  if (!result_.ok()) return;
  source.backoff.Reset();
  source.away_since.reset();
  LogChunk chunk = {.rank = source.rank,
                    .stream = source.stream,
                    .attempt = message.attempt(),
                    .offset = message.offset(),
                    .data = message.data(),
                    .skipped = message.skipped()};
  // What came before the connection broke comes again if the head says so.
  if (chunk.attempt < source.attempt) return;
  if (chunk.attempt == source.attempt && chunk.offset < source.offset) {
    const size_t known = std::min(
        static_cast<size_t>(source.offset - chunk.offset), chunk.data.size());
    chunk.data.remove_prefix(known);
    chunk.offset += static_cast<int64_t>(known);
    if (chunk.data.empty()) return;
  }
  source.attempt = chunk.attempt;
  source.offset = chunk.offset + static_cast<int64_t>(chunk.data.size());
  if (const absl::Status status = sink_(chunk); !status.ok()) Fail(status);
  moved_at_ = head_.clock().Monotonic();
}

void LogFollower::OnClosed(Source& source, const absl::Status& status,
                           const std::optional<rpc::Stamp>& stamp) {
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
    Fail(judged);
  }
  --open_;
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
  const absl::Duration left = moved_at_ + patience_ - head_.clock().Monotonic();
  if (left > absl::ZeroDuration()) {
    here_.PostAfter(left, [this] { Watch(); });
    return;
  }
  Fail(!last_.ok()
           ? last_
           : absl::DeadlineExceededError(absl::StrCat(
                 "the head at ", head_.channel().address(),
                 " sent nothing of the log for ", DurationToText(patience_))));
}

void LogFollower::Fail(const absl::Status& status) {
  if (!result_.ok()) return;
  result_ = status;
  for (Source& source : sources_) {
    if (source.reader != nullptr) source.reader->Cancel();
  }
}

}  // namespace cohort::client
