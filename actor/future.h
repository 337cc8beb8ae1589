#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "actor/call_error.h"
#include "actor/codec_base.h"
#include "actor/future_state.h"
#include "common/executor.h"

namespace cohort {

template <typename T>
class Future;

// What becomes of a task that is cancelled when it has begun.
enum class CancelMode : uint8_t {
  // It runs to its end, and sees it by IsCancelled (actor/is_cancelled.h).
  kAsk,
  // Its process is ended; also after a Cancel that asked.  Other tasks there
  // run elsewhere; those that had begun, if they have retries.  A call of an
  // actor is asked: Runtime::Kill ends that.
  kForce,
};

namespace actor {

// What Get answers: absl::StatusOr<T>, and absl::Status of void.
template <typename T>
struct FutureResultOf {
  using Type = absl::StatusOr<T>;
};
template <>
struct FutureResultOf<void> {
  using Type = absl::Status;
};
template <typename T>
using FutureResult = typename FutureResultOf<T>::Type;

// Of what a Future<T> is made that is ready.
template <typename R, typename T>
concept ReadyResult =
    !std::same_as<R, Future<T>> && std::convertible_to<R, FutureResult<T>>;

// FAILED_PRECONDITION: the future of no call.
absl::Status NoFuture();
// FAILED_PRECONDITION: moved out by an earlier Get.
absl::Status ValueTaken();
// INTERNAL, kReasonBadResult.
absl::Status BadResult();
// The state of a Future<T>: its value comes as bytes of the Codec, of which
// each Get makes a value of its own, or as a value.
template <typename T>
class FutureValue : public FutureState {
 public:
  // REQUIRES: not done, and called at most once.
  void SetValue(T value) {
    MutexLock lock(mutex());
    value_.emplace(std::move(value));
    has_value_ = true;
  }

  // REQUIRES: IsDone().  With `may_move` the value is moved out, and there is
  // none later; of bytes and of errors there always is one.
  absl::StatusOr<T> Result(bool may_move) {
    if (!status().ok()) return status();
    if (!has_value_) return Decoded();
    MutexLock lock(mutex());
    if (!value_.has_value()) return ValueTaken();
    if constexpr (std::copy_constructible<T>) {
      if (!may_move) return *value_;
    }
    absl::StatusOr<T> result = *std::move(value_);
    value_.reset();
    return result;
  }

 private:
  absl::StatusOr<T> Decoded() {
    if constexpr (Encodable<T>) {
      absl::StatusOr<T> value = DecodeValue<T>(bytes());
      if (value.ok()) return value;
    }
    return actor::BadResult();
  }

  bool has_value_ = false;  // set before it is done
  std::optional<T> value_;  // guarded by mutex()
};

template <>
class FutureValue<void> : public FutureState {
 public:
  absl::Status Result(bool /*may_move*/) { return status(); }
};

template <typename T>
struct IsFuture : std::false_type {};
template <typename T>
struct IsFuture<Future<T>> : std::true_type {};

// What the future of a function, or method, that returns R is of: T of T,
// absl::StatusOr<T> and Future<T>; void of void and absl::Status.
template <typename R>
struct Unwrapped {
  using Type = R;
};
template <>
struct Unwrapped<absl::Status> {
  using Type = void;
};
template <typename T>
struct Unwrapped<absl::StatusOr<T>> {
  using Type = T;
};
template <typename T>
struct Unwrapped<Future<T>> {
  using Type = T;
};
template <typename R>
using UnwrappedResult = typename Unwrapped<std::remove_cvref_t<R>>::Type;

template <typename T, typename F>
using ThenValue = UnwrappedResult<std::invoke_result_t<F, FutureResult<T>>>;

template <typename T>
class Promise;
struct FutureAccess;

}  // namespace actor

// A result that comes later: of Handle::Call, or of a function that follows
// one (Then).  Thread-safe as long as nobody assigns to it.  Copies are the
// same future; one may be kept or dropped at any time, and the call goes on.
// It costs one allocation of some 250 bytes, and the result's bytes.
//
// Bytes become a T in the thread that calls Get, each time, or in which Then's
// function runs.  Never wait in such a function: it may run in the thread that
// brings the results, where a Get that had to wait ends at once.  Functions
// that follow each other run within each other: hundreds are fine, a chain of
// ten thousand is too much for a stack.
template <typename T>
class Future {
 public:
  using value_type = T;
  // absl::StatusOr<T>; absl::Status of Future<void>.
  using Result = actor::FutureResult<T>;

  // Of no call: FAILED_PRECONDITION.
  Future() = default;

  // Ready from the beginning: a T, a status or an absl::StatusOr<T>, as in
  // `return 5;` of a method that answers a Future<int>.
  template <actor::ReadyResult<T> R>
  Future(R result)  // NOLINT(google-explicit-constructor): a result
      : Future(Ready(), Result(std::move(result))) {}

  bool IsReady() const { return state_ == nullptr || state_->IsDone(); }

  // Waits, and answers a copy: the value, or how the call ended (call_error.h).
  Result Get() const& { return Get(absl::InfiniteDuration()); }
  // DEADLINE_EXCEEDED, kReasonDeadline, when `timeout` passed first: the call
  // goes on, and this may be asked again.  RESOURCE_EXHAUSTED when too many
  // tasks of this process wait already (task_options.h); FAILED_PRECONDITION in
  // a function of Then that runs in the thread that brings the results.  A wait
  // of 10 s for an actor or task that has no room prints the reason on stderr,
  // once for each.
  Result Get(absl::Duration timeout) const& {
    static_assert(std::is_void_v<T> || std::copy_constructible<T>,
                  "cohort: this value cannot be copied: take it out with "
                  "std::move(future).Get()");
    return Wait(timeout, /*may_move=*/false);
  }

  // As above; of a value that cannot be copied, and when no other copy of this
  // future is left, it moves the value out.  Later: FAILED_PRECONDITION.
  Result Get() && { return std::move(*this).Get(absl::InfiniteDuration()); }
  Result Get(absl::Duration timeout) && {
    return Wait(timeout, /*may_move=*/true);
  }

  // Runs `function` with the result once it is there: in the thread that brings
  // it, or inside this call when it is there.  The future of what `function`
  // returns, which may be a value, void, absl::Status, absl::StatusOr or
  // another Future; what it throws is kReasonException.
  // Takes a value that cannot be copied, as Get() && does.
  template <typename F>
  Future<actor::ThenValue<T, F>> Then(F function) const;
  // As above, in `executor`, which outlives the call.  CANCELLED,
  // kReasonCancelled, when that is stopped.
  template <typename F>
  Future<actor::ThenValue<T, F>> Then(Executor& executor, F function) const;

  // Nobody waits for it any more: it ends as CANCELLED, kReasonCancelled, if
  // the call has not ended.  What has begun goes on as CancelMode says, and
  // is not run again.  Of a Then: cancels what it follows.
  void Cancel(CancelMode mode = CancelMode::kAsk) const {
    if (state_ == nullptr) return;
    if (mode == CancelMode::kForce) {
      state_->ForceCancel();
    } else {
      state_->Cancel();
    }
  }

 private:
  friend class actor::Promise<T>;
  friend struct actor::FutureAccess;
  struct Ready {};

  explicit Future(std::shared_ptr<actor::FutureValue<T>> state)
      : state_(std::move(state)) {}
  Future(Ready /*tag*/, Result result);

  Result Wait(absl::Duration timeout, bool may_move) const;

  // Shared: with copies of this and with the promise.
  std::shared_ptr<actor::FutureValue<T>> state_;
};

namespace actor {

// Completes a future, once.  Thread-compatible; move-only.  One that is dropped
// ends its future as CANCELLED, kReasonCancelled.
template <typename T>
class Promise {
 public:
  Promise() : state_(std::make_shared<FutureValue<T>>()) {}
  Promise(Promise&&) noexcept = default;
  Promise& operator=(Promise&&) = delete;
  ~Promise();

  // REQUIRES, of all methods: not completed yet.
  Future<T> future() const { return Future<T>(state_); }
  // Future::Cancel cancels `state`.
  void Follows(FutureState::Ref state) { state_->Follows(std::move(state)); }

  // Runs what follows the future inside the call.
  void Complete(FutureResult<T> result) &&;
  // A value as bytes of its Codec; empty of void.
  void CompleteWithBytes(absl::StatusOr<std::string> bytes) &&;

 private:
  std::shared_ptr<FutureValue<T>> state_;
};

struct FutureAccess {
  template <typename T>
  static const std::shared_ptr<FutureValue<T>>& State(const Future<T>& future) {
    return future.state_;
  }
};

// CANCELLED, kReasonCancelled: nobody is left who would complete it.
absl::Status PromiseDropped();

template <typename T>
Promise<T>::~Promise() {
  if (state_ != nullptr) FutureState::Complete(state_, PromiseDropped());
}

template <typename T>
void Promise<T>::Complete(FutureResult<T> result) && {
  const std::shared_ptr<FutureValue<T>> state = std::move(state_);
  if constexpr (std::is_void_v<T>) {
    FutureState::Complete(state, std::move(result));
  } else {
    absl::Status status = result.status();
    if (status.ok()) state->SetValue(*std::move(result));
    FutureState::Complete(state, std::move(status));
  }
}

template <typename T>
void Promise<T>::CompleteWithBytes(absl::StatusOr<std::string> bytes) && {
  const FutureState::Ref state = std::move(state_);
  if (bytes.ok()) {
    FutureState::Complete(state, absl::OkStatus(), *std::move(bytes));
  } else {
    FutureState::Complete(state, std::move(bytes).status());
  }
}

// Completes `promise` as `future` is.
template <typename T>
void Forward(const Future<T>& future, Promise<T> promise) {
  const std::shared_ptr<FutureValue<T>>& state = FutureAccess::State(future);
  if (state == nullptr) return std::move(promise).Complete(NoFuture());
  promise.Follows(state);
  FutureState::WhenDone(state, [promise = std::move(promise)](
                                   const FutureState::Ref& done) mutable {
    auto& value = static_cast<FutureValue<T>&>(*done);
    std::move(promise).Complete(value.Result(/*may_move=*/false));
  });
}

// What `function` makes of `result`, as the result of a Future<U>.
template <typename U, typename F, typename Result>
FutureResult<U> CallWith(F& function, Result result) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<F, Result>>) {
      std::move(function)(std::move(result));
      return absl::OkStatus();
    } else {
      return std::move(function)(std::move(result));
    }
  } catch (...) {
    return ExceptionStatus();
  }
}
template <typename U, typename F, typename Result>
Future<U> FutureOfCallWith(F& function, Result result) {
  try {
    return std::move(function)(std::move(result));
  } catch (...) {
    return ExceptionStatus();
  }
}

// Completes `promise` with what `function` makes of `result`.
template <typename U, typename F, typename Result>
void CompleteByCalling(Promise<U> promise, F& function, Result result) {
  using R = std::remove_cvref_t<std::invoke_result_t<F, Result>>;
  if constexpr (IsFuture<R>::value) {
    Forward(FutureOfCallWith<U>(function, std::move(result)),
            std::move(promise));
  } else {
    std::move(promise).Complete(CallWith<U>(function, std::move(result)));
  }
}

// What runs when a FutureValue<T> is done: completes `promise` by `function`.
template <typename T, typename U, typename F>
auto Follow(Promise<U> promise, F function) {
  return [promise = std::move(promise), function = std::move(function)](
             const FutureState::Ref& done) mutable {
    auto& value = static_cast<FutureValue<T>&>(*done);
    CompleteByCalling(std::move(promise), function,
                      value.Result(/*may_move=*/false));
  };
}

}  // namespace actor

template <typename T>
Future<T>::Future(Ready /*tag*/, Result result)
    : state_(std::make_shared<actor::FutureValue<T>>()) {
  if constexpr (std::is_void_v<T>) {
    state_->BeginDone(std::move(result));
  } else {
    absl::Status status = result.status();
    if (status.ok()) state_->SetValue(*std::move(result));
    state_->BeginDone(std::move(status));
  }
}

template <typename T>
typename Future<T>::Result Future<T>::Wait(absl::Duration timeout,
                                           bool may_move) const {
  if (state_ == nullptr) return actor::NoFuture();
  if (!state_->IsDone()) {
    absl::Status waited = state_->WaitFor(timeout);
    if (!waited.ok()) return waited;
  }
  return state_->Result(may_move && state_.use_count() == 1);
}

template <typename T>
template <typename F>
Future<actor::ThenValue<T, F>> Future<T>::Then(F function) const {
  using U = actor::ThenValue<T, F>;
  if (state_ == nullptr) {
    return Future(actor::NoFuture()).Then(std::move(function));
  }
  actor::Promise<U> promise;
  Future<U> future = promise.future();
  promise.Follows(state_);
  actor::FutureState::WhenDone(
      state_, actor::Follow<T>(std::move(promise), std::move(function)));
  return future;
}

template <typename T>
template <typename F>
Future<actor::ThenValue<T, F>> Future<T>::Then(Executor& executor,
                                               F function) const {
  using U = actor::ThenValue<T, F>;
  if (state_ == nullptr) {
    return Future(actor::NoFuture()).Then(executor, std::move(function));
  }
  actor::Promise<U> promise;
  Future<U> future = promise.future();
  promise.Follows(state_);
  auto follow = actor::Follow<T>(std::move(promise), std::move(function));
  actor::FutureState::WhenDone(
      state_, [&executor, follow = std::move(follow)](
                  const actor::FutureState::Ref& done) mutable {
        executor.Post(
            [follow = std::move(follow), done]() mutable { follow(done); });
      });
  return future;
}

}  // namespace cohort
