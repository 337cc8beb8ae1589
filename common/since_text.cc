#include "common/since_text.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/duration_text.h"

namespace cohort {

absl::StatusOr<absl::Time> ParseSince(absl::string_view text, absl::Time now) {
  if (const absl::StatusOr<absl::Duration> ago = ParseDuration(text);
      ago.ok() && *ago >= absl::ZeroDuration()) {
    return now - *ago;
  }
  absl::Time time;
  std::string error;
  // ParseTime takes "infinite-past" and surrounding spaces too.
  if (!text.empty() && absl::ascii_isdigit(text.front()) &&
      !absl::ascii_isspace(text.back()) &&
      absl::ParseTime(absl::RFC3339_full, std::string(text), &time, &error)) {
    return time;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::CHexEscape(text.substr(0, 64)),
      "\" is neither how long ago, as 10m or 2h30m, nor a time with its zone, "
      "as 2026-11-21T10:00:00Z"));
}

}  // namespace cohort
