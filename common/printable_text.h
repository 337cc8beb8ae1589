#pragma once

#include "absl/strings/string_view.h"

namespace cohort {

// No control characters of ASCII: one line that shows as what it is.
bool IsPrintable(absl::string_view text);

// As RFC 3629 has it, which protobuf's strings must be.
bool IsUtf8(absl::string_view text);

// Both, and none of the control characters beyond ASCII.
bool IsPrintableUtf8(absl::string_view text);

}  // namespace cohort
