#pragma once

#include <string>

#include "absl/status/status.h"

#include "head/store/records.h"

namespace cohort::head {

// InvalidArgument, saying what is wrong and what would be right, when `spec` or
// the namespace can never be accepted, whatever nodes join.
absl::Status ValidateJobSpec(const JobSpec& spec,
                             const std::string& name_space);

}  // namespace cohort::head
