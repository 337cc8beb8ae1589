#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expression`, an absl::Status, is
// not OK:  COHORT_RETURN_IF_ERROR(store_.Append(batch));
#define COHORT_RETURN_IF_ERROR(expression)                                \
  do {                                                                    \
    if (absl::Status cohort_status = (expression); !cohort_status.ok()) { \
      return cohort_status;                                               \
    }                                                                     \
  } while (false)

// Assigns the value of `expression`, an absl::StatusOr, to `target` (a variable
// or its declaration), or returns its error.  `target` may have no bare comma.
//   COHORT_ASSIGN_OR_RETURN(const Record record, Decode(bytes));
#define COHORT_ASSIGN_OR_RETURN(target, ...) \
  COHORT_INTERNAL_ASSIGN_OR_RETURN(          \
      COHORT_INTERNAL_CONCAT(cohort_statusor_, __LINE__), target, __VA_ARGS__)

#define COHORT_INTERNAL_CONCAT(a, b) COHORT_INTERNAL_CONCAT_AGAIN(a, b)
#define COHORT_INTERNAL_CONCAT_AGAIN(a, b) a##b
#define COHORT_INTERNAL_ASSIGN_OR_RETURN(result, target, ...) \
  auto result = (__VA_ARGS__);                                \
  if (!result.ok()) return std::move(result).status();        \
  target = *std::move(result)
