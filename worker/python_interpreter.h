#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort::worker {

// The Python of a process with `environment` (NAME=VALUE) whose program is
// `program`: the one that COHORT_PYTHON names, `program` itself if it is called
// python..., else python3 on its PATH; empty when there is none.
// InvalidArgument when COHORT_PYTHON, which --python sets, is not there.
//
// Touches the disk.
absl::StatusOr<std::string> FindPython(
    const std::vector<std::string>& environment, const std::string& program);

}  // namespace cohort::worker
