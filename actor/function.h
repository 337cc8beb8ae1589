#pragma once

#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/future.h"
#include "actor/method.h"
#include "actor/method_traits.h"
#include "actor/parameter.h"
#include "actor/task_executor.h"
#include "actor/task_options.h"
#include "actor/task_runner.h"

// Functions that run as tasks.  As with methods (actor/method.h), naming one in
// Run<&F> registers it; to the registry it is a method of TaskExecutor.
namespace cohort {
namespace actor {

// What a function is called with and gives.
template <typename F>
struct FunctionTraits {
  static constexpr bool kValid = false;
  using Result = void;
};
template <typename R, typename... P>
struct FunctionTraits<R (*)(P...)> {
  static constexpr bool kValid = true;
  using Result = R;
  using Parameters = TypeList<P...>;
};
template <typename R, typename... P>
struct FunctionTraits<R (*)(P...) noexcept> : FunctionTraits<R (*)(P...)> {};

template <auto F>
using TraitsOfFunction = FunctionTraits<std::remove_cv_t<decltype(F)>>;
template <auto F>
using FunctionResult = UnwrappedResult<typename TraitsOfFunction<F>::Result>;

template <auto F>
struct FunctionTag {};

template <auto F>
constexpr bool CheckFunction() {
  using Traits = TraitsOfFunction<F>;
  static_assert(Traits::kValid,
                "cohort: Run takes a free function or a static method, as in "
                "Run<&Function>");
  if constexpr (!Traits::kValid) {
    return false;
  } else {
    constexpr bool kNamed = !IsAnonymous<FunctionTag<F>>();
    static_assert(kNamed,
                  "cohort: a task must be a function outside of anonymous "
                  "namespaces: those of two files have the same name");
    return kNamed && CheckParameters(typename Traits::Parameters()) &&
           CheckResult<FunctionResult<F>>();
  }
}

template <auto F, typename... A>
constexpr bool CheckRun() {
  if constexpr (CheckFunction<F>()) {
    return CheckArguments<A...>(typename TraitsOfFunction<F>::Parameters());
  } else {
    return false;
  }
}

template <auto F, typename... P>
absl::StatusOr<std::string> CallFunction(std::tuple<Sent<P>...>& sent,
                                         TypeList<P...> /*types*/) {
  return std::apply(
      [](Sent<P>&... value) -> absl::StatusOr<std::string> {
        if constexpr (std::is_void_v<typename TraitsOfFunction<F>::Result>) {
          F(static_cast<P&&>(value)...);
          return std::string();
        } else {
          return EncodeResult(F(static_cast<P&&>(value)...));
        }
      },
      sent);
}

template <auto F>
absl::StatusOr<std::string> InvokeFunction(void* executor,
                                           absl::string_view arguments) {
  using Types = typename TraitsOfFunction<F>::Parameters;
  Decoder decoder(arguments);
  typename SentTuple<Types>::Type sent;
  if (!ReadParameters(decoder, sent)) return BadArguments();
  const TaskExecutor::Task task(*static_cast<TaskExecutor*>(executor));
  return CallFunction<F>(sent, Types());
}

// As AutoMethod.  REQUIRES: CheckFunction<F>().
template <auto F>
struct AutoFunction {
  static const char* Name() { return typeid(FunctionTag<F>).name(); }

  static inline const bool kRegistered =
      RegisterMethod(Name(), {&typeid(TaskExecutor), &InvokeFunction<F>});
};

// FAILED_PRECONDITION, kReasonNoDriver.
absl::Status NoTaskRunner();

// R: what the future is of.
template <typename R>
Future<R> RunTyped(const std::shared_ptr<TaskRunner>& runner,
                   const char* function, const TaskOptions& options,
                   absl::StatusOr<std::string> arguments) {
  if (runner == nullptr) return NoTaskRunner();
  if (!arguments.ok()) return std::move(arguments).status();
  Promise<R> promise;
  Future<R> future = promise.future();
  const uint64_t call =
      runner->Run(function, *std::move(arguments), options,
                  [promise = std::move(promise)](
                      absl::StatusOr<std::string> result) mutable {
                    std::move(promise).CompleteWithBytes(std::move(result));
                  });
  FutureAccess::State(future)->CancelsCall(runner, call);
  return future;
}

template <auto F, typename... Args>
Future<FunctionResult<F>> RunFunction(const std::shared_ptr<TaskRunner>& runner,
                                      const TaskOptions& options,
                                      Args&&... args) {
  using R = FunctionResult<F>;
  if constexpr (CheckRun<F, Args&&...>()) {
    (void)&AutoFunction<F>::kRegistered;
    using Parameters = typename TraitsOfFunction<F>::Parameters;
    return RunTyped<R>(
        runner, AutoFunction<F>::Name(), options,
        EncodeArguments(Parameters(), std::forward<Args>(args)...));
  } else {
    return Future<R>();
  }
}

template <typename... Args>
inline constexpr bool kBeginsWithOptions = false;
template <typename First, typename... Rest>
inline constexpr bool kBeginsWithOptions<First, Rest...> =
    std::is_same_v<std::remove_cvref_t<First>, TaskOptions>;

}  // namespace actor

// Runs function F somewhere in the cluster, as in  Run<&CountWords>(text): on a
// process of this program that is kept for tasks of these options' resources.
// Works in a program that has made a Runtime, by the one that was made first,
// as long as it lives (Runtime::Run), and in its tasks and its actors, whose
// driver it is; else the future is FAILED_PRECONDITION, kReasonNoDriver, as in
// a detached actor.
//
// The future is as that of Handle::Call (actor/call_error.h); it ends as
// kReasonMayHaveRun only once max_retries are used up.  Tasks are in no order.
// Waits as TaskOptions::when_full says: so not in a function of Future::Then.
template <auto F, typename... Args>
Future<actor::FunctionResult<F>> Run(const TaskOptions& options,
                                     Args&&... args) {
  return actor::RunFunction<F>(actor::ProcessTaskRunner(), options,
                               std::forward<Args>(args)...);
}
template <auto F, typename... Args>
requires(!actor::kBeginsWithOptions<Args...>)
    Future<actor::FunctionResult<F>> Run(Args&&... args) {
  return Run<F>(TaskOptions(), std::forward<Args>(args)...);
}

}  // namespace cohort
