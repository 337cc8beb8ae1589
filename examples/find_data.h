#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::examples {

// Where the data directory has `file`, such as "text/moby-dick.txt.gz": in
// $COHORT_DATA, or in data/ or share/cohort/data/ beside or above this program.
// NotFound, about `what`, says where it was looked for.
absl::StatusOr<std::string> FindData(absl::string_view file,
                                     absl::string_view what);

}  // namespace cohort::examples
