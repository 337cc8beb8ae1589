#pragma once

#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"

// Matchers for absl::Status and absl::StatusOr, which Abseil has only since
// 2024:  EXPECT_THAT(Parse("1k"), IsOkAndHolds(1000));
//
// These two look at the status alone: printing a value, which GoogleTest would
// do, does not compile for each type (LibTorch has an operator<< for any
// std::vector that fails on most).
#define COHORT_EXPECT_OK(expression) \
  EXPECT_THAT(::cohort::internal::StatusOf(expression), ::cohort::IsOk())
#define COHORT_ASSERT_OK(expression) \
  ASSERT_THAT(::cohort::internal::StatusOf(expression), ::cohort::IsOk())

namespace cohort {
namespace internal {

inline const absl::Status& StatusOf(const absl::Status& status) {
  return status;
}
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

}  // namespace internal

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << internal::StatusOf(arg).ToString();
  return internal::StatusOf(arg).ok();
}

// The code: one, or a matcher for it.
MATCHER_P(StatusIs, code,
          "has a code that " +
              ::testing::DescribeMatcher<absl::StatusCode>(code, negation)) {
  const absl::Status& status = internal::StatusOf(arg);
  *result_listener << status.ToString();
  return ::testing::Matches(code)(status.code());
}

// The code, and a matcher for the message.
MATCHER_P2(StatusIs, code, message,
           "has a code that " +
               ::testing::DescribeMatcher<absl::StatusCode>(code) +
               " and a message that " +
               ::testing::DescribeMatcher<std::string>(message)) {
  const absl::Status& status = internal::StatusOf(arg);
  *result_listener << status.ToString();
  return ::testing::Matches(code)(status.code()) &&
         ::testing::Matches(message)(std::string(status.message()));
}

// OK, with a value that equals `value` or matches it.
MATCHER_P(IsOkAndHolds, value,
          "is OK and holds " + ::testing::PrintToString(value)) {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(
      ::testing::SafeMatcherCast<
          const typename std::decay_t<decltype(arg)>::value_type&>(value),
      *arg, result_listener);
}

}  // namespace cohort
