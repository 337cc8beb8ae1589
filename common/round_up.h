#pragma once

#include <cstddef>

namespace cohort {

// The smallest multiple of `multiple` that is not less than `value`.
constexpr size_t RoundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace cohort
