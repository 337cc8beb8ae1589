#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort::worker {

// What is known of the Python of a process with `environment` (NAME=VALUE)
// whose program is `program`: "its Python is /a/python3" of one that is called
// python..., else "python3 on its PATH is /a/python3", since others choose one
// for themselves, or "no python3 is on its PATH".
// InvalidArgument when COHORT_PYTHON, which --python sets, is not there.
//
// Touches the disk.
absl::StatusOr<std::string> DescribePython(
    const std::vector<std::string>& environment, const std::string& program);

}  // namespace cohort::worker
