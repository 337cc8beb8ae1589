#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cohort::cli {

// Becomes the daemon `name`, a program beside this one, as git does with its
// commands.  Returns only when that cannot be done: why.
absl::Status BecomeDaemon(const std::string& name,
                          const std::vector<std::string>& arguments);

}  // namespace cohort::cli
