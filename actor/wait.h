#pragma once

#include <concepts>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "actor/future.h"

// Several futures at once.  A range is anything of Future<T> that a loop goes
// over; Future<void> too.
namespace cohort {
namespace actor {

template <typename Range>
using RangeFuture =
    std::remove_cvref_t<decltype(*std::begin(std::declval<Range&>()))>;

// Of what a loop goes over and finds futures.
template <typename Range>
concept FutureRange = IsFuture<RangeFuture<Range>>::value;

template <typename Range>
std::vector<FutureState*> StatesOf(const Range& futures) {
  std::vector<FutureState*> states;
  for (const auto& future : futures) {
    states.push_back(FutureAccess::State(future).get());
  }
  return states;
}

// As WaitAll and WaitAny.  Null is ready.
absl::Status WaitForAll(const std::vector<FutureState*>& states,
                        absl::Duration timeout);
absl::StatusOr<size_t> WaitForOne(const std::vector<FutureState*>& states,
                                  absl::Duration timeout);

template <typename T>
struct AllResultOf {
  using Type = absl::StatusOr<std::vector<T>>;
};
template <>
struct AllResultOf<void> {
  using Type = absl::Status;
};

}  // namespace actor

// OK once all are ready, however they ended; DEADLINE_EXCEEDED,
// kReasonDeadline, when `timeout` passed first.
template <actor::FutureRange Range>
absl::Status WaitAll(const Range& futures,
                     absl::Duration timeout = absl::InfiniteDuration()) {
  return actor::WaitForAll(actor::StatesOf(futures), timeout);
}

// The index of one that is ready, the first of those; as WaitAll when there is
// none.  INVALID_ARGUMENT of no futures.
template <actor::FutureRange Range>
absl::StatusOr<size_t> WaitAny(
    const Range& futures, absl::Duration timeout = absl::InfiniteDuration()) {
  return actor::WaitForOne(actor::StatesOf(futures), timeout);
}

// The values in their order, or the first error in that order, once all are
// ready; absl::Status of Future<void>.  As WaitAll when `timeout` passed first.
// Moves values out when the range itself is moved in, as Future::Get.
template <typename Range>
requires actor::FutureRange<Range>
auto GetAll(Range&& futures, absl::Duration timeout = absl::InfiniteDuration())
    -> typename actor::AllResultOf<
        typename actor::RangeFuture<Range>::value_type>::Type {
  using T = typename actor::RangeFuture<Range>::value_type;
  constexpr bool kMoves =
      !std::is_lvalue_reference_v<Range> && !std::is_const_v<Range>;
  absl::Status waited = WaitAll(futures, timeout);
  if (!waited.ok()) return waited;
  std::vector<std::conditional_t<std::is_void_v<T>, char, T>> values;
  for (auto& future : futures) {
    auto get = [&future] {
      if constexpr (kMoves) return std::move(future).Get();
      if constexpr (!kMoves) return future.Get();
    };
    auto result = get();
    if constexpr (std::is_void_v<T>) {
      if (!result.ok()) return result;
    } else {
      if (!result.ok()) return std::move(result).status();
      values.push_back(*std::move(result));
    }
  }
  if constexpr (std::is_void_v<T>) {
    return absl::OkStatus();
  } else {
    return values;
  }
}

}  // namespace cohort
