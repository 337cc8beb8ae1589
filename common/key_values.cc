#include "common/key_values.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/printable_text.h"

namespace cohort {

absl::StatusOr<std::map<std::string, std::string>> ParseKeyValues(
    absl::string_view text) {
  std::map<std::string, std::string> values;
  if (absl::StripAsciiWhitespace(text).empty()) return values;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const absl::string_view key = absl::StripAsciiWhitespace(pair.first);
    if (key.empty() || part.find('=') == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(part), " is not key=value: write k=v,k2=v2"));
    }
    const bool fresh =
        values
            .emplace(std::string(key),
                     std::string(absl::StripAsciiWhitespace(pair.second)))
            .second;
    if (!fresh) {
      return absl::InvalidArgumentError(
          absl::StrCat(Quoted(part), " gives its key a second value"));
    }
  }
  return values;
}

}  // namespace cohort
