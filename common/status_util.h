#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// The code of a status tells a caller what to do, the reason tells a program
// why, the message tells a person.  Nobody parses messages.
namespace cohort {

// The payload under which a status carries its reason.
inline constexpr char kReasonTypeUrl[] = "cohort/reason";

// `status` with its message read as "context: message"; code and payloads stay.
// OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// `status` carrying `reason`, a lower_snake_case word that programs compare,
// such as "busy_port".  OK stays OK.
absl::Status SetReason(absl::Status status, absl::string_view reason);

// The reason, or "" when there is none.
std::string GetReason(const absl::Status& status);

// Whether the same request may be sent again as it is, after a wait:
// UNAVAILABLE and RESOURCE_EXHAUSTED.  Not ABORTED (read again and start over)
// and not DEADLINE_EXCEEDED (the outcome is unknown: idempotent calls only).
bool IsRetryable(const absl::Status& status);

// The status for errno value `error_number`; `what` says what was tried, as in
// "open /path":  "open /path: No such file or directory".
absl::Status ErrnoStatus(int error_number, absl::string_view what);

}  // namespace cohort
