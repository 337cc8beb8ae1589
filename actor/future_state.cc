#include "actor/future_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"

#include "actor/call_error.h"
#include "actor/wait_observer.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::actor {

absl::Status NotDoneWithin(absl::Duration timeout, const std::string& why) {
  return SetReason(absl::DeadlineExceededError(absl::StrCat(
                       "no result within ", absl::FormatDuration(timeout),
                       why.empty() ? "" : ": ", why)),
                   kReasonDeadline);
}

bool IsNewsOfWait(const std::string& reason) {
  constexpr size_t kToldMax = 1'000;
  static Mutex mutex;
  static auto* const told = new absl::flat_hash_set<std::string>;
  MutexLock lock(mutex);
  return told->size() < kToldMax &&
         told->insert(reason.substr(0, reason.find(" waits"))).second;
}

namespace {

// A wait that lasts for so long prints its reason on stderr.
constexpr absl::Duration kSayWhyAfter = absl::Seconds(10);

// A thread that is to wait for less does not look for the result itself.
constexpr absl::Duration kLookMin = absl::Milliseconds(1);

// Of the thread that brings results: others would wait for it for ever.
class NoWaitHere final : public WaitObserver {
 public:
  absl::Status OnWait() override {
    return absl::FailedPreconditionError(
        "a function of Then cannot wait for another result, which its own "
        "thread may have to bring (return that future, or give Then an "
        "executor)");
  }
  void OnWaited() override {}
};

}  // namespace

// A thread that waits, on its stack.  Thread-safe.
class FutureState::Waiter {
 public:
  void Wake() {
    MutexLock lock(mutex_);
    woken_ = true;
    changed_.Signal();
  }

  // Until Wake or the deadline.
  void WaitUntil(absl::Duration deadline) {
    MutexLock lock(mutex_);
    while (!woken_) {
      if (!changed_.WaitUntil(mutex_, deadline)) return;
    }
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
};

struct FutureState::Carried {
  std::shared_ptr<CallCarrier> target;
  uint64_t call = 0;
  Ref follows;
};

struct FutureState::Leftovers {
  std::vector<Continuation> continuations;
  std::shared_ptr<CallCarrier> target;
  Ref follows;
};

bool FutureState::Finish(absl::Status status, std::string bytes,
                         Leftovers& leftovers) {
  MutexLock lock(mutex_);
  if (IsDone()) return false;
  status_ = std::move(status);
  bytes_ = std::move(bytes);
  done_.store(true, std::memory_order_release);
  // Under the lock: a waiter that has removed its links may be gone.
  for (Link* link = links_; link != nullptr; link = link->next) {
    link->before = nullptr;
    link->waiter->Wake();
  }
  links_ = nullptr;
  leftovers.continuations.swap(continuations_);
  if (is_cancelled_) return true;
  leftovers.target.swap(target_);
  leftovers.follows.swap(follows_);
  return true;
}

void FutureState::Complete(const Ref& state, absl::Status status,
                           std::string bytes) {
  Leftovers leftovers;
  if (!state->Finish(std::move(status), std::move(bytes), leftovers)) return;
  if (leftovers.continuations.empty()) return;
  NoWaitHere no_wait;
  const WaitObserver::Here here(no_wait);
  for (Continuation& then : leftovers.continuations) std::move(then)(state);
}

bool FutureState::Keep(Continuation& then) {
  MutexLock lock(mutex_);
  if (IsDone()) return false;
  continuations_.push_back(std::move(then));
  return true;
}

void FutureState::WhenDone(const Ref& state, Continuation then) {
  if (state->IsDone() || !state->Keep(then)) std::move(then)(state);
}

void FutureState::CancelsCall(std::shared_ptr<CallCarrier> target,
                              uint64_t call) {
  MutexLock lock(mutex_);
  if (IsDone()) return;
  target_ = std::move(target);
  call_ = call;
}

void FutureState::Follows(Ref state) {
  MutexLock lock(mutex_);
  if (!IsDone()) follows_ = std::move(state);
}

FutureState::Carried FutureState::NoteCancelled() {
  MutexLock lock(mutex_);
  is_cancelled_ = true;
  return {target_, call_, follows_};
}

void FutureState::Cancel() {
  const Carried carried = NoteCancelled();
  if (carried.target != nullptr) carried.target->Cancel(carried.call);
  if (carried.follows != nullptr) carried.follows->Cancel();
}

void FutureState::ForceCancel() {
  const Carried carried = NoteCancelled();
  if (carried.target != nullptr) carried.target->ForceCancel(carried.call);
  if (carried.follows != nullptr) carried.follows->ForceCancel();
}

bool FutureState::Add(Link& link) {
  MutexLock lock(mutex_);
  if (IsDone()) return false;
  link.next = links_;
  link.before = &links_;
  if (links_ != nullptr) links_->before = &link.next;
  links_ = &link;
  return true;
}

void FutureState::Remove(Link& link) {
  MutexLock lock(mutex_);
  if (link.before == nullptr) return;
  *link.before = link.next;
  if (link.next != nullptr) link.next->before = link.before;
}

size_t FutureState::FirstDone(std::span<FutureState* const> states) {
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i] == nullptr || states[i]->IsDone()) return i;
  }
  return kNone;
}

absl::StatusOr<size_t> FutureState::WaitForAny(
    std::span<FutureState* const> states, absl::Duration timeout) {
  size_t first = FirstDone(states);
  if (first != kNone) return first;
  if (timeout <= absl::ZeroDuration()) return NotDoneWithin(timeout);
  const absl::Duration deadline = MonotonicNow() + timeout;
  if (states.size() == 1 && timeout >= kLookMin) {
    Look(*states[0]);
    if (states[0]->IsDone()) return size_t{0};
  }
  WaitObserver* const observer = WaitObserver::OfThisThread();
  if (observer != nullptr) COHORT_RETURN_IF_ERROR(observer->OnWait());
  Await(states, std::min(deadline, MonotonicNow() + kSayWhyAfter));
  first = FirstDone(states);
  if (first == kNone && timeout > kSayWhyAfter) {
    const std::string why = WaitReason(states);
    if (!why.empty() && IsNewsOfWait(why)) {
      std::fprintf(stderr, "cohort: %s\n", why.c_str());
    }
    Await(states, deadline);
    first = FirstDone(states);
  }
  if (observer != nullptr) observer->OnWaited();
  if (first == kNone) return NotDoneWithin(timeout, WaitReason(states));
  return first;
}

std::string FutureState::WaitReason(std::span<FutureState* const> states) {
  if (FirstDone(states) != kNone) return "";
  for (FutureState* const state : states) {
    Carried carried;
    {
      MutexLock lock(state->mutex_);
      carried = {state->target_, state->call_, state->follows_};
    }
    FutureState* const followed = carried.follows.get();
    std::string why;
    if (carried.target != nullptr) {
      why = carried.target->WaitReason(carried.call);
    } else if (followed != nullptr) {
      why = WaitReason({&followed, 1});
    }
    if (!why.empty()) return why;
  }
  return "";
}

void FutureState::Look(FutureState& state) {
  std::shared_ptr<CallCarrier> target;
  uint64_t call = 0;
  {
    MutexLock lock(state.mutex_);
    target = state.target_;
    call = state.call_;
  }
  if (target != nullptr) target->Look(call, [&] { return state.IsDone(); });
}

void FutureState::Await(std::span<FutureState* const> states,
                        absl::Duration deadline) {
  Waiter waiter;
  absl::InlinedVector<Link, 1> links(states.size(),
                                     {&waiter, nullptr, nullptr});
  size_t added = 0;
  while (added < states.size() && states[added]->Add(links[added])) ++added;
  if (added == states.size()) waiter.WaitUntil(deadline);
  for (size_t i = 0; i < added; ++i) states[i]->Remove(links[i]);
}

}  // namespace cohort::actor
