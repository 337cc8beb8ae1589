#pragma once

#include <string>

#include "absl/status/status.h"

namespace cohort::cli {

// Moves what jobs left below `from`, a directory for each job, to `to`.  That
// is made only where there is a file, and what it has stays.  Unavailable,
// naming the first that could not be moved; the rest is moved all the same.
absl::Status KeepResults(const std::string& from, const std::string& to);

}  // namespace cohort::cli
