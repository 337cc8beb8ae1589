#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// What each rank of `comm` gives, for all of them, by rank: one all-reduce of
// world x `bytes_max`.  All ranks call it, with the same bounds.
// InvalidArgument, after the others have got theirs, when `mine` is larger;
// errors of Comm.
absl::StatusOr<std::vector<std::string>> GatherBlobs(Comm& comm,
                                                     absl::string_view mine,
                                                     size_t bytes_max,
                                                     absl::Duration deadline);

}  // namespace cohort::trainer
