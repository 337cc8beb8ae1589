#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace cohort {

inline constexpr size_t kHelpColumns = 80;

// CLI11's help with its long lines broken at spaces to `columns`; descriptions
// stay in their column, or go below their flag where lines are short.
std::string WrapHelp(absl::string_view help, size_t columns);

}  // namespace cohort
