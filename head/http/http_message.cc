#include "head/http/http_message.h"

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/hex_text.h"

namespace cohort::head {
namespace {

absl::Status Bad(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("not an HTTP request: ", what));
}

// None for a bad escape, or one of a control character.
std::optional<std::string> PercentDecoded(absl::string_view text,
                                          bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && plus_is_space) c = ' ';
    if (c == '%') {
      const absl::string_view digits = text.substr(i + 1, 2);
      if (digits.size() != 2 || !absl::ascii_isxdigit(digits[0]) ||
          !absl::ascii_isxdigit(digits[1])) {
        return std::nullopt;
      }
      c = HexToBytes(digits)[0];
      i += 2;
    }
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return std::nullopt;
    decoded.push_back(c);
  }
  return decoded;
}

}  // namespace

absl::Status ParseHttpTarget(absl::string_view target, HttpRequest& request) {
  // A proxy's form: http://host/path.
  if (absl::ConsumePrefix(&target, "http://")) {
    const size_t slash = target.find_first_of("/?");
    target = slash == absl::string_view::npos ? "/" : target.substr(slash);
  }
  if (!absl::StartsWith(target, "/")) return Bad("its target is not a path");
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  std::optional<std::string> path =
      PercentDecoded(target.substr(0, mark), /*plus_is_space=*/false);
  if (!path.has_value()) return Bad("a bad %-escape in its path");
  request.path = *std::move(path);
  if (mark == absl::string_view::npos) return absl::OkStatus();
  for (const absl::string_view pair :
       absl::StrSplit(target.substr(mark + 1), '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    auto name = PercentDecoded(parts.first, /*plus_is_space=*/true);
    auto value = PercentDecoded(parts.second, /*plus_is_space=*/true);
    if (!name.has_value() || !value.has_value()) {
      return Bad("a bad %-escape in its query");
    }
    request.query.emplace_back(*std::move(name), *std::move(value));
  }
  return absl::OkStatus();
}

}  // namespace cohort::head
