#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "actor/call_target.h"
#include "common/mutex.h"

namespace cohort::actor {

// DEADLINE_EXCEEDED, kReasonDeadline.  `why`: what is known to keep it.
absl::Status NotDoneWithin(absl::Duration timeout, const std::string& why = "");

// Whether `reason`, "WHO waits: WHY", is the first of that WHO in this process;
// false after a thousand of them.  Thread-safe.
bool IsNewsOfWait(const std::string& reason);

// What futures of one call, and who completes them, share: all of it that does
// not depend on the type of the value.
//
// PENDING -> DONE, once.  Done it is a status and, with OK, bytes or a value
// (FutureValue).  Thread-safe.  Shared: by each copy of the future and by the
// promise, which may be gone before or after.
class FutureState {
 public:
  using Ref = std::shared_ptr<FutureState>;
  // Runs once, on the thread that completes the state; no lock is held.
  using Continuation = absl::AnyInvocable<void(const Ref& state) &&>;

  FutureState() = default;
  FutureState(const FutureState&) = delete;
  FutureState& operator=(const FutureState&) = delete;

  // Done from the beginning; REQUIRES: nobody else has it yet.
  void BeginDone(absl::Status status) {
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
  }

  bool IsDone() const { return done_.load(std::memory_order_acquire); }

  // PENDING -> DONE, and runs what waits for it.  Nothing when it is done.
  static void Complete(const Ref& state, absl::Status status,
                       std::string bytes = std::string());

  // Runs `then` once it is done; inside this call when it is.
  static void WhenDone(const Ref& state, Continuation then);

  // Whom to tell when nobody waits for this any more; unless it is done.
  void CancelsCall(std::shared_ptr<CallCarrier> target, uint64_t call);
  void Follows(Ref state);
  void Cancel();
  // As Cancel, also after it (CallCarrier::ForceCancel).
  void ForceCancel();

  // REQUIRES: IsDone().
  const absl::Status& status() const { return status_; }
  const std::string& bytes() const { return bytes_; }

  // DEADLINE_EXCEEDED, kReasonDeadline, when `timeout` passed first; why this
  // thread may not wait (WaitObserver).
  absl::Status WaitFor(absl::Duration timeout) {
    FutureState* const state = this;
    return WaitForAny({&state, 1}, timeout).status();
  }

  // The index of the first of `states` that is done, as WaitFor.  Null is done.
  static absl::StatusOr<size_t> WaitForAny(std::span<FutureState* const> states,
                                           absl::Duration timeout);

 protected:
  // Where FutureValue keeps a value that is not bytes: written before it is
  // done, or under this.
  Mutex& mutex() { return mutex_; }

 private:
  class Waiter;
  // Of one waiter, in the list of one state.
  struct Link {
    Waiter* waiter;
    Link* next;
    Link** before;  // what points to this; null: not in the list
  };

  static constexpr size_t kNone = static_cast<size_t>(-1);
  static size_t FirstDone(std::span<FutureState* const> states);
  // Brings the call's result here, if it comes in a moment (CallCarrier::Look).
  static void Look(FutureState& state);
  // What keeps the first of which that is known (CallCarrier::WaitReason).
  static std::string WaitReason(std::span<FutureState* const> states);
  static void Await(std::span<FutureState* const> states,
                    absl::Duration deadline);

  // What Complete leaves to be done without the lock.
  struct Leftovers;
  // Whom to tell when it is cancelled.
  struct Carried;

  Carried NoteCancelled();

  // False when it is done already.
  bool Finish(absl::Status status, std::string bytes, Leftovers& leftovers);
  // False when it is done already, and `then` as it was.
  bool Keep(Continuation& then);
  bool Add(Link& link);
  void Remove(Link& link);

  // Written once, before done_.
  absl::Status status_;
  std::string bytes_;
  std::atomic<bool> done_{false};

  Mutex mutex_;
  Link* links_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::vector<Continuation> continuations_ ABSL_GUARDED_BY(mutex_);
  // The call that this is the result of.  Shared: with the handles.
  std::shared_ptr<CallCarrier> target_ ABSL_GUARDED_BY(mutex_);
  uint64_t call_ ABSL_GUARDED_BY(mutex_) = 0;
  // Then that is kept when this is done: it may be cancelled by force yet.
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  // What this follows.  That one holds this, too, until it is done.
  Ref follows_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::actor
