#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/status.h"

namespace cohort {

// InvalidArgument, naming the flag, when one has an empty value, or one of
// spaces alone: a script whose variable is not set would get the default in
// place of what it asks for.

// Of what `app` has read.
absl::Status CheckNoEmptyOptions(const CLI::App& app);

// Of --FLAG=, before CLI11 reads it and takes the next word for the value.
absl::Status CheckNoEmptyAssignments(const std::vector<std::string>& arguments);

}  // namespace cohort
