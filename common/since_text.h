#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cohort {

// The moment that people mean by "10m", "2h30m" (so long before `now`), or by
// "2026-11-21T10:00:00Z", "2026-11-21T12:00:00.5+02:00" (RFC 3339).
// InvalidArgument, naming the text and what is accepted, otherwise, and for a
// time more than a day after `now`: no two clocks differ so much.
absl::StatusOr<absl::Time> ParseSince(absl::string_view text, absl::Time now);

// The moment that a time of that form names, past or to come.  InvalidArgument
// with the column otherwise.
absl::StatusOr<absl::Time> ParseMoment(absl::string_view text);

}  // namespace cohort
