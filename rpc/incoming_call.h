#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/mutex.h"
#include "rpc/call_context.h"
#include "rpc/principal.h"
#include "rpc/router.h"
#include "rpc/stamp.h"
#include "rpc/transport.h"

namespace cohort::rpc {

class IncomingCall;

// The calls in flight that may last, by the token of their caller. Thread-safe.
class LastingCalls {
 public:
  void Add(const std::string& token, const std::shared_ptr<IncomingCall>& call);
  // Of a call that was perhaps never added.
  void Remove(const std::string& token, const IncomingCall* call);

  std::vector<std::string> Tokens() const;
  std::vector<std::shared_ptr<IncomingCall>> CallsOf(
      const std::string& token) const;

 private:
  mutable Mutex mutex_;
  absl::flat_hash_map<
      std::string,
      absl::flat_hash_map<const IncomingCall*, std::weak_ptr<IncomingCall>>>
      calls_ ABSL_GUARDED_BY(mutex_);
};

// What calls need of their Router, also after it is gone.  Thread-safe.
class RouterCore {
 public:
  RouterCore(RouterOptions options, const Clock& clock)
      : options_(options), clock_(clock), admission_(options.calls) {}

  const RouterOptions& options() const { return options_; }
  const Clock& clock() const { return clock_; }

  void SetStamp(Stamp stamp);
  std::optional<Stamp> stamp() const;

  Admission& admission() { return admission_; }
  LastingCalls& lasting() { return lasting_; }

  // Before the first call.
  void SetObserver(CallObserver& observer) { observer_ = &observer; }
  // Before the first call.
  void SetAround(Router::Around around) { around_ = std::move(around); }
  const Router::Around& around() const { return around_; }
  void Observe(absl::string_view path, bool is_stream, absl::StatusCode code,
               absl::Duration took) const {
    if (observer_ != nullptr) {
      observer_->OnAnswered(path, is_stream, code, took);
    }
  }
  void NoteRefusal(absl::string_view path, const std::string& peer,
                   const Principal* who, const absl::Status& why) const {
    if (observer_ != nullptr) observer_->OnRefused(path, peer, who, why);
  }

 private:
  const RouterOptions options_;
  const Clock& clock_;
  Admission admission_;
  LastingCalls lasting_;
  CallObserver* observer_ = nullptr;
  Router::Around around_;
  mutable Mutex mutex_;
  std::optional<Stamp> stamp_ ABSL_GUARDED_BY(mutex_);
};

// A call that may be made: which, by whom, and its place among others.
struct Admitted {
  // Shared: the Router and its calls.
  std::shared_ptr<const Router::Method> method;
  Principal principal;
  std::string caller;  // whose turn it takes
  Admission::Place place;
};

// What unary calls and streams have in common: who calls, until when, and the
// transport until the call is finished.  Keeps its place until then; when it
// is cancelled, as long as it lives, for its handler may still be at work.
// Thread-safe.
class IncomingCall : public ServerCall, public CallContext {
 public:
  IncomingCall(std::shared_ptr<RouterCore> core, Admitted admitted,
               const CallInfo& info, ServerTransport& transport);
  ~IncomingCall() override;

  // Tells the transport what to do first.  Called once, by Accept.
  virtual void Start() = 0;

  // Ends it with `status`, as if its caller had gone; after its end nothing.
  virtual void End(absl::Status status) = 0;

  // CallContext.
  const Principal& principal() const override { return admitted_.principal; }
  const std::string& peer() const override { return peer_; }
  absl::Duration DeadlineLeft() const override;
  bool IsCancelled() const override {
    return cancelled_.load(std::memory_order_acquire);
  }
  void OnCancel(absl::AnyInvocable<void() &&> callback) override;

 protected:
  RouterCore& core() { return *core_; }
  const Router::Method& method() const { return *admitted_.method; }
  // Runs `task` on the method's strand when it is this caller's turn.
  void Post(Task task);
  // The same, inside this call where the strand can (Executor::Dispatch).
  void Dispatch(Task task);
  bool IsLate() const { return DeadlineLeft() <= absl::ZeroDuration(); }

  // Why a cancelled call ended: its deadline or its caller.
  absl::Status CancelStatus(absl::Status by_caller) const;

  // Ends the call at the transport.  REQUIRES: transport_ != nullptr.
  void FinishLocked(absl::Status status, std::optional<std::string> message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks the call cancelled and gives the callback of OnCancel to the caller,
  // which posts it without the lock.
  absl::AnyInvocable<void() &&> CancelLocked()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PostUnlessNull(absl::AnyInvocable<void() &&> callback);

  mutable Mutex mutex_;
  // Null once the call is finished or abandoned.
  ServerTransport* transport_ ABSL_GUARDED_BY(mutex_);
  absl::AnyInvocable<void() &&> on_cancel_ ABSL_GUARDED_BY(mutex_);

 private:
  // Shared: the Router and its calls.
  const std::shared_ptr<RouterCore> core_;
  Admission::Place place_ ABSL_GUARDED_BY(mutex_);
  const Admitted admitted_;  // but its place
  const std::string peer_;
  const absl::Duration began_;  // on the monotonic clock
  // On the monotonic clock; infinite when there is none.
  const absl::Duration deadline_;
  std::atomic<bool> cancelled_ = false;
};

// The Router's end of a unary call.
std::shared_ptr<IncomingCall> NewUnaryCall(std::shared_ptr<RouterCore> core,
                                           Admitted admitted,
                                           const CallInfo& info,
                                           ServerTransport& transport);

// The Router's end of a stream.
std::shared_ptr<IncomingCall> NewStreamCall(std::shared_ptr<RouterCore> core,
                                            Admitted admitted,
                                            const CallInfo& info,
                                            ServerTransport& transport);

}  // namespace cohort::rpc
