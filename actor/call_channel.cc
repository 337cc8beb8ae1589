#include "actor/call_channel.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "actor/actor_end.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/call_queue.h"
#include "actor/ring_offer.h"
#include "actor/ring_way.h"
#include "client/job.h"
#include "common/backoff.h"
#include "common/mutex.h"
#include "common/status_util.h"
#include "rpc/methods.h"
#include "rpc/stamp.h"

namespace cohort::actor {
namespace {

// How long a stream whose process has ended stays for results on their way.
constexpr absl::Duration kGrace = absl::Seconds(1);
// Until what is left of a connection is destroyed, off its own threads: a
// channel must not be destroyed within one of its events.
constexpr absl::Duration kRetire = absl::Milliseconds(1);
constexpr BackoffOptions kReopen{.initial = absl::Milliseconds(10),
                                 .max = absl::Seconds(5)};

absl::Status SessionOver() {
  return SetReason(
      absl::FailedPreconditionError(
          "the handle's session is over (keep the runtime until its calls "
          "have ended)"),
      kReasonSessionOver);
}

absl::Status Forgotten() {
  return absl::DataLossError(absl::StrCat(
      "the actor does not remember it (it does for ",
      absl::FormatDuration(kRememberCaller), ", while its results fit ",
      kResultsKeptBytes >> 20, " MiB)"));
}

// That what was sent cannot be understood, and would not be the next time.
bool IsRefusal(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
}

// It may be on this machine: then the ring can be opened, too.
bool IsHere(const v1::ActorStanding& standing) {
  return std::any_of(
      standing.addresses().begin(), standing.addresses().end(),
      [](const auto& each) { return absl::StartsWith(each, "unix:"); });
}

absl::StatusOr<std::string> ToResult(v1::ActorResults::Result& result) {
  if (result.has_failure()) return FromCallFailure(result.failure());
  return std::move(*result.mutable_value());
}

using Ring = RingWay<v1::ActorResults>;

// One stream to one incarnation, from before it is opened.
struct Link {
  // Set by who makes it.
  uint64_t number = 0;
  v1::ActorStanding to;
  uint64_t sent = 0;  // before, to that incarnation

  // The core's mutex.  The channel is destroyed after its stream.
  std::shared_ptr<rpc::Channel> channel;
  std::unique_ptr<rpc::ClientStream> stream;  // once it was opened
  bool accepted = false;                      // by the actor
  // A message is built or on its way: at first, `open`.
  bool writing = true;
  // By address: names live as long as the program.
  absl::flat_hash_map<std::pair<const char*, const char*>, uint32_t> methods;
  std::vector<uint64_t> cancels;
  uint64_t results = 0;       // messages that came
  uint64_t results_told = 0;  // of these
  size_t untold_bytes = 0;
  std::vector<uint64_t> withdrawals;
  // Null: it has none.  Set before it is accepted.  Shared: with the stream's
  // events and a thread that looks.
  std::shared_ptr<Ring> ring;

  // Who set `writing`.
  v1::ActorCalls message;
};

}  // namespace

class CallChannel::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(CallChannelOptions options, ActorConnect connect, Executor& executor,
       const Clock& clock, Random& random)
      : options_(std::move(options)),
        connect_(std::move(connect)),
        executor_(executor),
        clock_(clock),
        caller_(random.Bytes(16)),
        calls_(options_.window_bytes),
        backoff_(kReopen, random) {}

  uint64_t Call(CalledMethod method, std::string arguments, Done done);
  void Cancel(uint64_t call);
  void Tell(uint64_t call, CallNotice notice);
  void Look(absl::FunctionRef<bool()> finished);
  void SetStanding(const v1::ActorStanding& standing);
  void MarkKilled();
  size_t pending() const;
  bool IsOver() const;
  std::string WaitReason() const;
  void End(absl::Status why);

 private:
  // What was decided under the lock and is done without it.
  struct Work {
    std::shared_ptr<Link> write;
    std::shared_ptr<Link> open;
    std::vector<EndedCall> ended;
    std::vector<absl::Duration> timers;
  };
  // That Do runs on this thread, for whose core.
  struct Frame {
    const Core* core;
    const Frame* outer;
  };

  // For the compiler: within what After calls.
  void AssertLocked() const ABSL_ASSERT_EXCLUSIVE_LOCK(mutex_) {}
  // Makes a change under the lock, decides what follows from it, and does that.
  template <typename Change>
  void After(Change change);
  void Do(Work work);
  // Whether the next one may be written at once.
  bool Write(Link& link);
  bool WriteToRing(Link& link);
  void Open(const std::shared_ptr<Link>& link);
  // The one that there is, if it leads there.
  std::shared_ptr<rpc::Channel> ChannelTo(const v1::ActorStanding& to) const;
  rpc::StreamEvents EventsOf(uint64_t link);
  void WakeAfter(absl::Duration delay);
  void OnTimer();

  // Events of a stream.
  void OnAccepted(uint64_t link, const std::shared_ptr<Ring>& ring);
  void OnResults(uint64_t link, v1::ActorResults& results, size_t bytes);
  // What is in the ring.
  void TakeFromRing(uint64_t link, Ring& ring);
  void OnDrained(uint64_t link);
  void OnClosed(uint64_t link, const absl::Status& status);

  // All that follows from what is known now.
  void Decide(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeDropLink(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeSettle(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeOpen(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MaybeWrite(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Why a call may not be made now; OK when it may.
  absl::Status Refusal(size_t bytes, bool is_own) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasEnded(uint64_t incarnation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_over_ || incarnation <= ended_;
  }
  bool LinkIs(uint64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return link_ != nullptr && link_->number == number;
  }
  bool LinkIsDoomed() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return link_ != nullptr && HasEnded(link_->to.incarnation());
  }
  // Destroys it later, on a thread that is within no event.
  void Retire(std::shared_ptr<void> rest, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sets `until` to a moment at which all is decided again.
  void WaitUntil(absl::Duration from_now, absl::Duration& until, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropLink(absl::Status why, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BuildMessage(Link& link) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  int FramesHere() const;

  static thread_local const Frame* frames_;

  // Set in the constructor.
  const CallChannelOptions options_;
  const ActorConnect connect_;
  Executor& executor_;
  const Clock& clock_;
  const std::string caller_;

  mutable Mutex mutex_;
  CallQueue calls_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_call_ ABSL_GUARDED_BY(mutex_) = 1;
  // The head's last word, and what it ever said.
  v1::ActorStanding standing_ ABSL_GUARDED_BY(mutex_);
  uint64_t ended_ ABSL_GUARDED_BY(mutex_) =
      0;  // this incarnation, those before
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_killed_ ABSL_GUARDED_BY(mutex_) = false;
  // Why End was called.
  std::optional<absl::Status> closed_ ABSL_GUARDED_BY(mutex_);

  // Shared: this, and who opens or writes to it.
  std::shared_ptr<Link> link_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_link_ ABSL_GUARDED_BY(mutex_) = 0;
  // The incarnation that the last link led to.
  uint64_t linked_to_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of the last stream with calls that broke: where it went and why.
  v1::ActorStanding lost_to_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_why_ ABSL_GUARDED_BY(mutex_);
  // On the monotonic clock.
  absl::Duration grace_until_ ABSL_GUARDED_BY(mutex_);
  absl::Duration lost_until_ ABSL_GUARDED_BY(mutex_);
  absl::Duration open_at_ ABSL_GUARDED_BY(mutex_);
  Backoff backoff_ ABSL_GUARDED_BY(mutex_);
  // Shared: this, and links on it.
  std::shared_ptr<rpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  v1::ActorStanding channel_to_ ABSL_GUARDED_BY(mutex_);
  // Links and channels.
  std::vector<std::shared_ptr<void>> retired_ ABSL_GUARDED_BY(mutex_);

  // Threads within Do, and those that destroy what was retired; End waits.
  std::atomic<int> doing_{0};
  int destroying_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> closing_{false};
  CondVar done_doing_;
};

thread_local const CallChannel::Core::Frame* CallChannel::Core::frames_ =
    nullptr;

// ---- What callers and the head do. ----

uint64_t CallChannel::Core::Call(CalledMethod method, std::string arguments,
                                 Done done) {
  uint64_t number = 0;
  After([&](Work& work) {
    AssertLocked();
    number = next_call_++;
    const bool is_own = absl::StartsWith(method.group, kOwnGroups);
    absl::Status refusal = Refusal(arguments.size(), is_own);
    if (!refusal.ok()) {
      work.ended.push_back({std::move(done), OfCall(refusal, method.name)});
      return;
    }
    calls_.Add({.number = number,
                .method = method,
                .arguments = std::move(arguments),
                .retries_left = is_own ? 0 : options_.max_task_retries,
                .done = std::move(done),
                .is_own = is_own});
  });
  return number;
}

absl::Status CallChannel::Core::Refusal(size_t bytes, bool is_own) const {
  if (closed_.has_value()) return *closed_;
  if (is_over_) return NotStarted(standing_);
  if (was_killed_) return WasKilled(standing_);
  if (bytes > kArgumentsBytesMax) {
    return TooLarge("arguments are", bytes, kArgumentsBytesMax);
  }
  const int64_t max = options_.max_pending_calls;
  if (!is_own && max > 0 && calls_.pending() >= static_cast<uint64_t>(max)) {
    return QueueFull(calls_.pending());
  }
  return absl::OkStatus();
}

void CallChannel::Core::Cancel(uint64_t call) {
  After([&](Work& work) {
    AssertLocked();
    CallQueue::Cancelled cancelled = calls_.Cancel(call);
    if (cancelled.done == nullptr) return;
    work.ended.push_back({std::move(cancelled.done), CallCancelled()});
    if (cancelled.sequence.has_value()) {
      link_->cancels.push_back(*cancelled.sequence);
    }
  });
}

void CallChannel::Core::Tell(uint64_t call, CallNotice notice) {
  const bool is_cancel = notice == CallNotice::kCancelled;
  After([&](Work& work) {
    AssertLocked();
    CallQueue::Cancelled told = calls_.CancelWaiting(call, notice);
    if (told.done != nullptr) {
      work.ended.push_back({std::move(told.done),
                            is_cancel ? CallCancelled() : CallWithdrawn()});
    } else if (told.sequence.has_value()) {
      (is_cancel ? link_->cancels : link_->withdrawals)
          .push_back(*told.sequence);
    }
  });
}

void CallChannel::Core::SetStanding(const v1::ActorStanding& standing) {
  if (standing.job_id() != options_.job_id) return;
  After([&](Work& work) {
    AssertLocked();
    // Of a job that is over only the end of its stderr is news.
    const bool is_over = cohort::HasEnded(standing.state());
    if (is_over_ && !is_over) return;
    const bool was_doomed = LinkIsDoomed();
    if (standing.incarnation() > standing_.incarnation()) {
      backoff_.Reset();
      open_at_ = absl::ZeroDuration();
    }
    standing_ = standing;
    is_over_ = is_over;
    ended_ = std::max(ended_, standing.ended_incarnation());
    if (standing.incarnation() > 0) {
      ended_ = std::max(ended_, standing.incarnation() - 1);
    }
    if (LinkIsDoomed() && !was_doomed) WaitUntil(kGrace, grace_until_, work);
  });
}

void CallChannel::Core::MarkKilled() {
  MutexLock lock(mutex_);
  was_killed_ = true;
}

size_t CallChannel::Core::pending() const {
  MutexLock lock(mutex_);
  return calls_.pending();
}

std::string CallChannel::Core::WaitReason() const {
  MutexLock lock(mutex_);
  return closed_.has_value() ? "" : WaitText(standing_);
}

bool CallChannel::Core::IsOver() const {
  MutexLock lock(mutex_);
  return is_over_;
}

void CallChannel::Core::End(absl::Status why) {
  std::vector<std::shared_ptr<void>> rest;
  After([&](Work& work) {
    AssertLocked();
    if (!closed_.has_value()) closed_ = std::move(why);
    calls_.EndAll(*closed_, work.ended);
    rest.swap(retired_);
    rest.push_back(std::exchange(link_, nullptr));
    rest.push_back(std::exchange(channel_, nullptr));
  });
  const int here = FramesHere();
  {
    MutexLock lock(mutex_);
    closing_ = true;
    while (doing_ > here) done_doing_.Wait(mutex_);
    // Within a Done it may be this thread's event that they wait for.
    while (here == 0 && destroying_ > 0) done_doing_.Wait(mutex_);
  }
  // And what is destroyed here would wait for it, too.
  if (here > 0) executor_.PostAfter(kRetire, [rest = std::move(rest)] {});
}

// ---- What streams tell. ----

rpc::StreamEvents CallChannel::Core::EventsOf(uint64_t link) {
  rpc::StreamEvents events;
  events.on_message = [weak = weak_from_this(), link,
                       ring = std::shared_ptr<Ring>(), is_accepted = false,
                       results = v1::ActorResults()](
                          absl::string_view bytes) mutable -> absl::Status {
    if (!results.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return absl::InternalError("the actor's results cannot be decoded");
    }
    const auto core = weak.lock();
    if (core == nullptr) return absl::OkStatus();
    if (!std::exchange(is_accepted, true)) {
      if (results.has_ring()) ring = OpenRing(results.ring());
      core->OnAccepted(link, ring);
      // Both ends count from here on.
      if (ring != nullptr) return absl::OkStatus();
    }
    const auto take = [&core, link](v1::ActorResults& each, size_t size) {
      core->OnResults(link, each, size);
    };
    if (ring != nullptr) return ring->OnStream(results, bytes.size(), take);
    take(results, bytes.size());
    return absl::OkStatus();
  };
  events.on_drained = [weak = weak_from_this(), link] {
    if (const auto core = weak.lock()) core->OnDrained(link);
  };
  events.on_closed = [weak = weak_from_this(), link](
                         const absl::Status& status,
                         const std::optional<rpc::Stamp>&) {
    if (const auto core = weak.lock()) core->OnClosed(link, status);
  };
  return events;
}

void CallChannel::Core::OnAccepted(uint64_t link,
                                   const std::shared_ptr<Ring>& ring) {
  After([&](Work&) {
    AssertLocked();
    if (!LinkIs(link)) return;
    link_->accepted = true;
    link_->ring = ring;
    backoff_.Reset();
    link_->cancels = calls_.Resume();
  });
}

void CallChannel::Core::OnResults(uint64_t link, v1::ActorResults& results,
                                  size_t bytes) {
  After([&](Work& work) {
    AssertLocked();
    if (!LinkIs(link)) return;
    if (results.results().empty()) return;
    ++link_->results;
    link_->untold_bytes += bytes;
    for (v1::ActorResults::Result& result : *results.mutable_results()) {
      Done done = calls_.Finish(result.sequence());
      if (done == nullptr) continue;
      work.ended.push_back(
          {std::move(done), result.forgotten()
                                ? BrokeDuringCall(standing_, Forgotten())
                                : ToResult(result)});
    }
  });
}

void CallChannel::Core::TakeFromRing(uint64_t link, Ring& ring) {
  const absl::Status taken =
      ring.Drain([this, link](v1::ActorResults& results, size_t bytes) {
        OnResults(link, results, bytes);
      });
  if (!taken.ok()) OnClosed(link, taken);
}

void CallChannel::Core::Look(absl::FunctionRef<bool()> finished) {
  if (options_.spinner == nullptr) return;
  // Not the link, for whose stream End waits.
  std::shared_ptr<Ring> ring;
  uint64_t link = 0;
  {
    MutexLock lock(mutex_);
    if (link_ == nullptr || link_->ring == nullptr) return;
    ring = link_->ring;
    link = link_->number;
  }
  const std::optional<shm::Instant> until =
      options_.spinner->Begin(ring->IsLookedAt());
  if (!until.has_value() || !ring->StartLooking()) return;
  do {
    if (ring->HasMore()) TakeFromRing(link, *ring);
  } while (!finished() && options_.spinner->Pause(*until));
  ring->StopLooking();
  TakeFromRing(link, *ring);
}

void CallChannel::Core::OnDrained(uint64_t link) {
  After([&](Work&) {
    AssertLocked();
    if (LinkIs(link)) link_->writing = false;
  });
}

void CallChannel::Core::OnClosed(uint64_t link, const absl::Status& status) {
  After([&](Work& work) {
    AssertLocked();
    if (LinkIs(link)) DropLink(status, work);
  });
}

// ---- What follows: under the lock. ----

void CallChannel::Core::Decide(Work& work) {
  if (closed_.has_value()) return;
  MaybeDropLink(work);
  MaybeSettle(work);
  if (is_over_ && calls_.HasWaiting()) {
    calls_.EndWaiting(NotStarted(standing_),
                      EndedDuringCall(standing_, lost_to_), work.ended);
  }
  MaybeOpen(work);
  MaybeWrite(work);
}

// A stream whose process has ended stays a moment for results on their way.
void CallChannel::Core::MaybeDropLink(Work& work) {
  if (!LinkIsDoomed()) return;
  if (calls_.HasSent() && clock_.Monotonic() < grace_until_) return;
  DropLink(absl::UnavailableError("its process has ended"), work);
}

void CallChannel::Core::MaybeSettle(Work& work) {
  if (!calls_.HasLost()) return;
  if (HasEnded(lost_to_.incarnation())) {
    calls_.Settle(EndedDuringCall(standing_, lost_to_), work.ended);
  } else if (clock_.Monotonic() >= lost_until_) {
    calls_.GiveUp(BrokeDuringCall(standing_, lost_why_), /*retries_too=*/false,
                  work.ended);
    lost_until_ = absl::InfiniteDuration();  // those that are left go on
  }
}

void CallChannel::Core::MaybeOpen(Work& work) {
  if (link_ != nullptr) return;
  if (!calls_.HasWaiting() && !calls_.HasLost()) return;
  if (HasEnded(standing_.incarnation()) || standing_.addresses().empty()) {
    return;
  }
  if (open_at_ > absl::ZeroDuration() && clock_.Monotonic() < open_at_) return;
  link_ = std::make_shared<Link>();
  link_->number = ++last_link_;
  link_->to = standing_;
  if (std::exchange(linked_to_, standing_.incarnation()) !=
      standing_.incarnation()) {
    calls_.StartAnew();
  }
  link_->sent = calls_.last_sequence();
  work.open = link_;
}

void CallChannel::Core::MaybeWrite(Work& work) {
  if (link_ == nullptr || !link_->accepted || link_->stream == nullptr ||
      link_->writing || LinkIsDoomed()) {
    return;
  }
  if (!calls_.MayTake() && link_->cancels.empty() &&
      link_->withdrawals.empty() && link_->untold_bytes < kResultsUntoldBytes) {
    return;
  }
  link_->writing = true;
  BuildMessage(*link_);
  work.write = link_;
}

void CallChannel::Core::BuildMessage(Link& link) {
  v1::ActorCalls& message = link.message;
  message.Clear();
  for (const uint64_t sequence : link.cancels) message.add_cancels(sequence);
  link.cancels.clear();
  for (const uint64_t each : link.withdrawals) message.add_withdrawals(each);
  link.withdrawals.clear();
  if (link.results > link.results_told) {
    message.set_results_taken(link.results);
    link.results_told = link.results;
    link.untold_bytes = 0;
  }
  size_t bytes = 0;
  for (size_t i = 0; i < kBatchCalls && bytes < kBatchBytes; ++i) {
    if (!calls_.MayTake()) break;
    CallQueue::Sent sent = calls_.Take();
    const auto [method, is_new] =
        link.methods.try_emplace({sent.method.name, sent.method.group},
                                 static_cast<uint32_t>(link.methods.size()));
    if (is_new) {
      v1::ActorCalls::Method& named = *message.add_methods();
      named.set_number(method->second);
      named.set_name(sent.method.name);
      named.set_group(sent.method.group);
    }
    bytes += sent.arguments.size();
    if (sent.is_cancelled) message.add_cancels(sent.sequence);
    if (sent.is_withdrawn) message.add_withdrawals(sent.sequence);
    v1::ActorCalls::Call& call = *message.add_calls();
    call.set_sequence(sent.sequence);
    call.set_method(method->second);
    call.set_actor(sent.method.actor);
    call.set_arguments(std::move(sent.arguments));
  }
}

void CallChannel::Core::Retire(std::shared_ptr<void> rest, Work& work) {
  retired_.push_back(std::move(rest));
  work.timers.push_back(kRetire);
}

void CallChannel::Core::WaitUntil(absl::Duration from_now,
                                  absl::Duration& until, Work& work) {
  until = clock_.Monotonic() + from_now;
  work.timers.push_back(from_now);
}

void CallChannel::Core::DropLink(absl::Status why, Work& work) {
  const std::shared_ptr<Link> link = std::exchange(link_, nullptr);
  Retire(link, work);
  WaitUntil(backoff_.Next(), open_at_, work);
  const bool has_ended = HasEnded(link->to.incarnation());
  // The next incarnation is not to blame.
  if (has_ended) open_at_ = absl::ZeroDuration();
  if (link->accepted) {
    WaitUntil(kResumeMax, lost_until_, work);
    lost_to_ = link->to;
    lost_why_ = why;
  }
  calls_.Break();
  if (has_ended) return;
  // Where nobody says that it ended, a stream that cannot be opened does.
  const bool is_end = !options_.is_told && !link->accepted;
  if (!is_end && !(link->accepted && IsRefusal(why))) return;
  const absl::Status broke = BrokeDuringCall(standing_, why);
  calls_.GiveUp(broke, /*retries_too=*/true, work.ended);
  if (is_end) {
    calls_.EndWaiting(NotReached(standing_, why), broke, work.ended);
  }
}

// ---- What is done: without the lock. ----

template <typename Change>
void CallChannel::Core::After(Change change) {
  Work work;
  {
    MutexLock lock(mutex_);
    change(work);
    Decide(work);
    ++doing_;
  }
  Do(std::move(work));
}

void CallChannel::Core::Do(Work work) {
  const Frame frame{this, std::exchange(frames_, &frame)};
  while (work.write != nullptr && Write(*work.write)) {
    const std::shared_ptr<Link> link = std::move(work.write);
    MutexLock lock(mutex_);
    link->writing = false;
    if (link == link_ && !closed_.has_value()) MaybeWrite(work);
  }
  for (const absl::Duration delay : work.timers) WakeAfter(delay);
  if (work.open != nullptr) Open(work.open);
  for (EndedCall& call : work.ended) {
    std::move(call.done)(std::move(call.result));
  }
  work = Work();
  frames_ = frame.outer;
  --doing_;
  if (!closing_) return;
  MutexLock lock(mutex_);
  done_doing_.SignalAll();
}

int CallChannel::Core::FramesHere() const {
  int count = 0;
  for (const Frame* frame = frames_; frame != nullptr; frame = frame->outer) {
    if (frame->core == this) ++count;
  }
  return count;
}

bool CallChannel::Core::WriteToRing(Link& link) {
  if (!link.ring->IsLookedAt() ||
      !link.ring->Push(link.message.SerializeAsString())) {
    link.message.set_ring_messages(link.ring->ForStream());
    return false;
  }
  if (link.ring->IsLookedAt()) return true;
  // The reader may have stopped before it saw this message: an empty one by the
  // stream wakes it.
  link.message.Clear();
  link.message.set_ring_messages(link.ring->ForStream());
  return false;
}

bool CallChannel::Core::Write(Link& link) {
  if (link.ring != nullptr && WriteToRing(link)) return true;
  std::string bytes = link.message.SerializeAsString();
  // Not kept for as long as nothing is called.
  if (bytes.size() > kBatchBytes) v1::ActorCalls().Swap(&link.message);
  // An error: the stream is over, and OnClosed is on its way.
  link.stream->Write(std::move(bytes)).IgnoreError();
  return false;
}

void CallChannel::Core::WakeAfter(absl::Duration delay) {
  executor_.PostAfter(delay, [weak = weak_from_this()] {
    if (const auto core = weak.lock()) core->OnTimer();
  });
}

void CallChannel::Core::OnTimer() {
  std::vector<std::shared_ptr<void>> retired;
  After([&](Work&) {
    AssertLocked();
    retired.swap(retired_);
    ++destroying_;
  });
  retired.clear();
  MutexLock lock(mutex_);
  --destroying_;
  done_doing_.SignalAll();
}

void CallChannel::Core::Open(const std::shared_ptr<Link>& link) {
  std::shared_ptr<rpc::Channel> channel = ChannelTo(link->to);
  if (channel == nullptr) {
    auto made =
        connect_({link->to.addresses().begin(), link->to.addresses().end()},
                 link->to.secret());
    if (!made.ok()) return OnClosed(link->number, made.status());
    channel = *std::move(made);
  }
  v1::ActorCalls open;
  open.mutable_open()->set_job_id(options_.job_id);
  open.mutable_open()->set_incarnation(link->to.incarnation());
  open.mutable_open()->set_caller(caller_);
  open.mutable_open()->set_sent(link->sent);
  open.mutable_open()->set_wants_ring(options_.spinner != nullptr &&
                                      IsHere(link->to));
  std::unique_ptr<rpc::ClientStream> stream = channel->OpenStream(
      rpc::kCallActor.path, {.deadline = absl::InfiniteDuration()}, executor_,
      EventsOf(link->number));
  // As in Write.
  stream->Write(open.SerializeAsString()).IgnoreError();
  After([&](Work& work) {
    AssertLocked();
    link->stream = std::move(stream);
    link->channel = std::move(channel);
    if (link_ != link) return Retire(link, work);  // Dropped meanwhile.
    if (channel_ == link->channel) return;
    Retire(std::exchange(channel_, link->channel), work);
    channel_to_ = link->to;
  });
}

std::shared_ptr<rpc::Channel> CallChannel::Core::ChannelTo(
    const v1::ActorStanding& to) const {
  MutexLock lock(mutex_);
  const bool same =
      channel_to_.incarnation() == to.incarnation() &&
      std::equal(channel_to_.addresses().begin(), channel_to_.addresses().end(),
                 to.addresses().begin(), to.addresses().end());
  return same ? channel_ : nullptr;
}

// ---- The channel. ----

CallChannel::CallChannel(CallChannelOptions options, ActorConnect connect,
                         Executor& executor, const Clock& clock, Random& random)
    : core_(std::make_shared<Core>(std::move(options), std::move(connect),
                                   executor, clock, random)) {}

CallChannel::~CallChannel() { core_->End(SessionOver()); }

void CallChannel::End(absl::Status why) { core_->End(std::move(why)); }

bool CallChannel::IsOver() const { return core_->IsOver(); }

void CallChannel::SetStanding(const v1::ActorStanding& standing) {
  core_->SetStanding(standing);
}

void CallChannel::MarkKilled() { core_->MarkKilled(); }

uint64_t CallChannel::Call(CalledMethod method, std::string arguments,
                           Done done) {
  return core_->Call(method, std::move(arguments), std::move(done));
}

void CallChannel::Cancel(uint64_t call) { core_->Cancel(call); }

void CallChannel::Tell(uint64_t call, CallNotice notice) {
  core_->Tell(call, notice);
}

void CallChannel::Look(uint64_t /*call*/, absl::FunctionRef<bool()> finished) {
  core_->Look(finished);
}

std::string CallChannel::WaitReason(uint64_t /*call*/) const {
  return core_->WaitReason();
}

size_t CallChannel::pending() const { return core_->pending(); }

}  // namespace cohort::actor
