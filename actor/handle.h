#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "actor/call_target.h"
#include "actor/codec_base.h"
#include "actor/future.h"
#include "actor/method.h"
#include "actor/method_traits.h"
#include "common/job_id.h"

namespace cohort {
namespace actor {

// FAILED_PRECONDITION: a handle that names no actor.
absl::Status NoActor();
// INVALID_ARGUMENT: a rank or a slice of a group cannot be killed.
absl::Status EndsAsAWhole();

// The same name, of a group or a function, as long as the program lives: one
// copy of each is kept.  Others send names, too: beyond kNamesMax, and of a
// name that is too long, it is kNameTooMany, which nothing has, so that calls
// of it end as kReasonNoMethod and say it.  Thread-safe.
inline constexpr size_t kNamesMax = 1024;
inline constexpr char kNameTooMany[] =
    "a name beyond the 1024 that a process keeps";
const char* KeptText(const std::string& text);

// What a handle is, as a value: Codec<Handle<T>> writes and reads it.
struct SentHandle {
  ActorRef actor;  // a nil job: none
  std::string group;
};
void WriteHandle(const char* class_name, const CallTarget* target,
                 const char* group, Encoder& encoder);
// False when what comes next in `decoder` is not a handle of that class.
bool ReadHandle(const char* class_name, Decoder& decoder, SentHandle& sent);
// The way to it from this process; calls end as FAILED_PRECONDITION,
// kReasonSessionOver, in one that has none.
std::shared_ptr<CallTarget> FindActor(const ActorRef& ref);

// Calls `method` of `target`.  R: what the future is of.
template <typename R>
Future<R> CallTyped(const std::shared_ptr<CallTarget>& target,
                    CalledMethod method,
                    absl::StatusOr<std::string> arguments) {
  if (target == nullptr) return NoActor();
  if (!arguments.ok()) return std::move(arguments).status();
  Promise<R> promise;
  Future<R> future = promise.future();
  const uint64_t call =
      target->Call(method, *std::move(arguments),
                   [promise = std::move(promise)](
                       absl::StatusOr<std::string> result) mutable {
                     std::move(promise).CompleteWithBytes(std::move(result));
                   });
  FutureAccess::State(future)->CancelsCall(target, call);
  return future;
}

// The arguments of a method with parameters P, as bytes.  What is of another
// type than its parameter becomes one first.
template <typename... P>
absl::StatusOr<std::string> EncodeArguments(TypeList<P...> /*types*/,
                                            const Sent<P>&... args) {
  return WriteParameters<Sent<P>...>(args...);
}

}  // namespace actor

// An actor of class T, wherever it runs.  Copies are handles of the same actor.
// A value; thread-safe as long as nobody assigns to it.
//
// A handle can be passed to a call and returned from one, also inside a vector
// or a struct.  Who receives it, an actor, a task or another program of the
// cluster, calls the actor directly.  A
// Handle of a class that is not T is refused there (kReasonBadArguments).
//
// It does not keep the actor alive.
template <typename T>
class Handle {
 public:
  // Names no actor: calls end as FAILED_PRECONDITION.
  Handle() = default;
  Handle(std::shared_ptr<actor::CallTarget> target, const JobId& id)
      : target_(std::move(target)), id_(id) {}

  // An actor is a job: its id.
  const JobId& id() const { return id_; }

  // A handle whose calls are of that concurrency group of the actor
  // (ActorOptions::concurrency_groups): they do not wait for those of others.
  // UNIMPLEMENTED, kReasonNoMethod, are calls of a group that it has not.
  Handle InGroup(const std::string& group) const {
    Handle handle = *this;
    handle.group_ = actor::KeptText(group);
    return handle;
  }

  // Calls method M, as in  counter.Call<&Counter::Add>(32).
  //
  // Never waits for the actor.  Calls of one thread and group begin in their
  // order.  A
  // future of what the method returns: T of T, absl::StatusOr<T> and Future<T>;
  // void of void and absl::Status, which is what the future then holds.
  // The arguments are written before it returns, and are as before, moved ones
  // too.  INVALID_ARGUMENT when they cannot be (Encoder::Finish).
  template <auto M, typename... Args>
  Future<actor::MethodResult<M>> Call(Args&&... args) const {
    using R = actor::MethodResult<M>;
    if constexpr (actor::CheckCall<T, M, Args&&...>()) {
      using Method = actor::AutoMethod<T, M>;
      (void)&Method::kRegistered;
      using Parameters = typename actor::TraitsOf<M>::Parameters;
      return actor::CallTyped<R>(
          target_, {Method::Name(), group_},
          actor::EncodeArguments(Parameters(), std::forward<Args>(args)...));
    } else {
      return Future<R>();
    }
  }

  // Has the actor save its state (actor/saved_state.h) in its turn, as a call:
  // once the future is OK, its next incarnation begins with it.
  // INVALID_ARGUMENT (too_large) beyond 64 MiB; what Save returned; why it
  // cannot be written.
  Future<void> Save() const {
    constexpr bool kHasState = actor::CheckState<T>();
    static_assert(kHasState,
                  "cohort: the actor's class has no Save() and Restore(state)");
    return actor::CallTyped<void>(target_, {actor::kSaveMethod, group_},
                                  std::string());
  }

 private:
  friend struct Codec<Handle<T>>;

  // Shared: with other handles, and with the futures of calls under way.
  std::shared_ptr<actor::CallTarget> target_;
  JobId id_;
  const char* group_ = "";
};

// The class, and what of an actor another process must know.  Who can read it
// can call the actor.
template <typename T>
struct Codec<Handle<T>> {
  static void Encode(const Handle<T>& handle, Encoder& encoder) {
    actor::WriteHandle(typeid(T).name(), handle.target_.get(), handle.group_,
                       encoder);
  }
  static bool Decode(Decoder& decoder, Handle<T>& handle) {
    actor::SentHandle sent;
    if (!actor::ReadHandle(typeid(T).name(), decoder, sent)) return false;
    if (sent.actor.job.IsNil()) return true;
    handle = Handle<T>(actor::FindActor(sent.actor), sent.actor.job)
                 .InGroup(sent.group);
    return true;
  }
};

}  // namespace cohort
