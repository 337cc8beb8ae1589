#include "common/exception_text.h"

#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

constexpr absl::string_view kBefore = " (raised at ";

}  // namespace

std::string RaisedText(std::optional<absl::Time> at) {
  if (!at.has_value()) return "";
  return absl::StrCat(
      kBefore,
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", *at, absl::UTCTimeZone()), ")");
}

std::optional<absl::Time> RaisedAt(absl::string_view detail) {
  absl::string_view line = FirstLine(detail);
  // The last one: the message before it is the script's.
  const size_t before = line.rfind(kBefore);
  if (before == absl::string_view::npos) return std::nullopt;
  line.remove_prefix(before + kBefore.size());
  absl::Time time;
  if (!absl::ParseTime(absl::RFC3339_full, line.substr(0, line.find(')')),
                       &time, /*err=*/nullptr)) {
    return std::nullopt;
  }
  return time;
}

absl::string_view FirstLine(absl::string_view text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace cohort
