#include "actor/driver_session.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "actor/actor_end.h"
#include "client/job.h"
#include "common/real_clock.h"
#include "common/status_util.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::actor {
namespace {

// A restarted head is back within a second.
constexpr BackoffOptions kSessionReopen = {.initial = absl::Milliseconds(50),
                                           .max = absl::Seconds(1)};
// Actors that a stream tells of and nobody wants to hear of any more.
constexpr size_t kUnwatchedMax = 10'000;

// Whether the same session may be opened again: the head went away, is too
// busy, or another stream of it won.
bool IsBreak(const absl::Status& status) {
  if (GetReason(status) == "too_many_actors") return false;
  return IsRetryable(status) || absl::IsCancelled(status) ||
         absl::IsAborted(status) || status.ok();
}

}  // namespace

DriverSession::DriverSession(Options options, rpc::Channel& head,
                             Executor& where, Random& random, Events events)
    : options_(std::move(options)),
      head_(head),
      where_(where),
      events_(std::move(events)),
      backoff_(kSessionReopen, random) {
  where_.Post([this] {
    GiveUpLater();
    Open();
  });
}

DriverSession::~DriverSession() = default;

void DriverSession::Open() {
  if (ending_) return;
  rpc::TypedEvents<v1::DriverUpdate> events;
  events.on_message = [this](const v1::DriverUpdate& update) {
    OnUpdate(update);
  };
  events.on_closed = [this](absl::Status status, auto) { OnClosed(status); };
  stream_ = rpc::OpenStream(head_, rpc::kDrive,
                            {.deadline = absl::InfiniteDuration()}, where_,
                            std::move(events));
  v1::DriverMessage message;
  v1::OpenDriver& open = *message.mutable_open();
  open.set_name(options_.name);
  *open.mutable_timeout() = rpc::ToWire(options_.timeout);
  open.set_only_watches(options_.only_watches);
  unwatched_ = 0;
  {
    MutexLock lock(mutex_);
    if (driver_.has_value() && !options_.only_watches) {
      open.set_driver_id(std::string(driver_->bytes()));
    }
  }
  // One that is over says so through OnClosed.
  stream_->Write(message).IgnoreError();
}

void DriverSession::OnUpdate(const v1::DriverUpdate& update) {
  if (!update.authority().empty()) {
    // The channel has said what went wrong.
    head_.LearnAuthority(update.authority()).IgnoreError();
  }
  if (update.has_opened()) return OnOpened(update.opened());
  if (update.has_room_wanted()) {
    return events_.on_room_wanted(update.room_wanted().wanted());
  }
  const v1::ActorStanding& standing = update.actor();
  const bool was_asked =
      named_.erase({standing.namespace_(), standing.name()}) > 0;
  const absl::StatusOr<JobId> job = JobId::FromBytes(standing.job_id());
  if (job.ok() && was_asked) watched_.try_emplace({*job, standing.secret()});
  if (job.ok()) Note(*job, standing);
  events_.on_standing(standing);
}

void DriverSession::Note(const JobId& job, const v1::ActorStanding& standing) {
  auto it = watched_.lower_bound({job, ""});
  while (it != watched_.end() && it->first.first == job) {
    const auto its = StandingFor(standing, standing.slot(), it->first.second);
    const bool has_ended = its.has_value() && HasEnded(its->state());
    std::set<uint32_t>& over = it->second;
    if (has_ended) over.insert(standing.slot());
    it = has_ended && over.size() >= its->slots() ? watched_.erase(it)
                                                  : std::next(it);
  }
}

void DriverSession::OnOpened(const v1::DriverOpened& opened) {
  absl::StatusOr<DriverId> id = DriverId();
  if (!options_.only_watches) id = DriverId::FromBytes(opened.driver_id());
  if (!id.ok()) return SetOver(absl::InternalError(id.status().message()));
  backoff_.Reset();
  is_open_ = true;
  ++times_opened_;
  for (const auto& [key, over] : watched_) {
    v1::WatchActor watch;
    watch.set_job_id(key.first.bytes());
    watch.set_secret(key.second);
    Send(watch);
  }
  for (const auto& [name_space, name] : named_) {
    v1::WatchActor watch;
    watch.set_namespace_(name_space);
    watch.set_name(name);
    Send(watch);
  }
  MutexLock lock(mutex_);
  driver_ = *id;
  changed_.SignalAll();
}

void DriverSession::OnClosed(const absl::Status& status) {
  const bool was_open = std::exchange(is_open_, false);
  if (ending_ || !IsBreak(status)) return SetOver(status);
  {
    MutexLock lock(mutex_);
    last_error_ = status;
  }
  if (was_open) GiveUpLater();
  where_.PostAfter(backoff_.Next(), [this] { Open(); });
}

void DriverSession::GiveUpLater() {
  if (options_.head_timeout == absl::InfiniteDuration()) return;
  where_.PostAfter(options_.head_timeout, [this, opened = times_opened_] {
    if (times_opened_ != opened || ending_) return;
    absl::Status last;
    {
      MutexLock lock(mutex_);
      last = last_error_;
    }
    SetOver(absl::UnavailableError(
        absl::StrCat("the head could not be reached for ",
                     absl::FormatDuration(options_.head_timeout), ": ",
                     last.message(), " (RuntimeOptions::head_timeout)")));
  });
}

void DriverSession::SetOver(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (over_.has_value()) return;
    over_ = why;
    changed_.SignalAll();
  }
  if (!std::exchange(ending_, true)) events_.on_over(why);
}

absl::StatusOr<DriverId> DriverSession::AwaitOpen(absl::Duration timeout) {
  MutexLock lock(mutex_);
  const absl::Duration until = MonotonicNow() + timeout;
  while (!driver_.has_value() && !over_.has_value()) {
    if (changed_.WaitUntil(mutex_, until)) continue;
    if (driver_.has_value() || over_.has_value()) break;
    return absl::DeadlineExceededError(absl::StrCat(
        "the head at ", head_.address(), " did not open a session within ",
        absl::FormatDuration(timeout), ": ",
        last_error_.ok() ? "no answer" : last_error_.message(),
        " (`cohort status` says whether it serves)"));
  }
  if (over_.has_value()) {
    return over_->ok() ? absl::CancelledError("the session has ended") : *over_;
  }
  return *driver_;
}

void DriverSession::Watch(const JobId& actor, std::string secret) {
  where_.Post([this, actor, secret = std::move(secret)] {
    watched_.try_emplace({actor, secret});
    v1::WatchActor watch;
    watch.set_job_id(actor.bytes());
    watch.set_secret(secret);
    if (is_open_) Send(watch);
  });
}

void DriverSession::Unwatch(const JobId& actor, std::string secret) {
  where_.Post([this, key = std::pair(actor, std::move(secret))] {
    if (watched_.erase(key) == 0 || ++unwatched_ < kUnwatchedMax) return;
    // Another stream tells of those that are left.
    if (is_open_) stream_->Cancel();
  });
}

void DriverSession::WatchNamed(const std::string& name_space,
                               const std::string& name) {
  where_.Post([this, name_space, name] {
    named_.emplace(name_space, name);
    v1::WatchActor watch;
    watch.set_namespace_(name_space);
    watch.set_name(name);
    if (is_open_) Send(watch);
  });
}

void DriverSession::TellTasks(std::vector<v1::TaskCounts> shapes) {
  where_.Post([this, shapes = std::move(shapes)] {
    if (!is_open_) return;
    v1::DriverMessage message;
    for (const v1::TaskCounts& each : shapes) {
      *message.mutable_tasks()->add_shapes() = each;
    }
    // Too much waits to be sent: the next word comes soon.
    stream_->Write(message).IgnoreError();
  });
}

void DriverSession::Send(const v1::WatchActor& watch) {
  v1::DriverMessage message;
  *message.mutable_watch() = watch;
  // The queue is full: open another stream, which sends all watches again.
  if (!stream_->Write(message).ok()) stream_->Cancel();
}

void DriverSession::End(absl::Duration timeout) {
  where_.Post([this] {
    if (std::exchange(ending_, true)) return;
    v1::DriverMessage message;
    message.mutable_end();
    if (is_open_ && stream_->Write(message).ok()) return;
    stream_.reset();
    SetOver(absl::UnavailableError("the head is away"));
  });
  MutexLock lock(mutex_);
  const absl::Duration until = MonotonicNow() + timeout;
  while (!over_.has_value() && changed_.WaitUntil(mutex_, until)) {
  }
}

}  // namespace cohort::actor
