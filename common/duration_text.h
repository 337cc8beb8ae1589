#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// Lengths of time as people write them.
namespace cohort {

// Reads "90s", "1.5m", "2h", "500ms", "1d", "1h30m", or a plain number of
// seconds.  InvalidArgument, naming the text, the column and what was expected
// there, otherwise and beyond a hundred years.
absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text);

// "1m30s", "500ms", "2h0m0.25s"; to the millisecond from a second on.  Reads
// back.
std::string DurationToText(absl::Duration duration);

}  // namespace cohort
