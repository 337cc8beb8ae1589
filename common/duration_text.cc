#include "common/duration_text.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/decimal_text.h"

namespace cohort {
namespace {

constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 100);

// Nanoseconds in a unit; none for an unknown one.
std::optional<uint64_t> UnitNanoseconds(absl::string_view unit) {
  constexpr uint64_t kSecond = 1'000'000'000;
  if (unit == "ns") return 1;
  if (unit == "us") return 1'000;
  if (unit == "ms") return 1'000'000;
  if (unit == "s" || unit.empty()) return kSecond;
  if (unit == "m") return 60 * kSecond;
  if (unit == "h") return 3600 * kSecond;
  if (unit == "d") return 24 * 3600 * kSecond;
  return std::nullopt;
}

// Takes one number and its unit off the front of `rest`.
std::optional<absl::Duration> TakePart(absl::string_view& rest) {
  const size_t digits =
      std::min(rest.find_first_not_of("0123456789."), rest.size());
  const std::optional<Decimal> number = ParseDecimal(rest.substr(0, digits));
  rest.remove_prefix(digits);
  const size_t letters =
      std::min(rest.find_first_of("0123456789."), rest.size());
  const std::optional<uint64_t> unit = UnitNanoseconds(rest.substr(0, letters));
  rest.remove_prefix(letters);
  if (!number.has_value() || !unit.has_value()) return std::nullopt;
  const std::optional<int64_t> nanoseconds = number->Times(*unit);
  if (!nanoseconds.has_value()) return std::nullopt;
  return absl::Nanoseconds(*nanoseconds);
}

std::optional<absl::Duration> Parse(absl::string_view rest) {
  absl::Duration sum;
  do {
    const std::optional<absl::Duration> part = TakePart(rest);
    if (!part.has_value()) return std::nullopt;
    sum += *part;
  } while (!rest.empty());
  if (sum > kLongest) return std::nullopt;
  return sum;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  const std::optional<absl::Duration> duration =
      Parse(absl::StripAsciiWhitespace(text));
  if (duration.has_value()) return *duration;
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)),
                   "\" is not a duration: write 90s, 1.5m, 2h, 500ms, 1d or a "
                   "number of seconds"));
}

std::string DurationToText(absl::Duration duration) {
  const bool long_enough = absl::AbsDuration(duration) >= absl::Seconds(1);
  return absl::FormatDuration(
      long_enough ? absl::Trunc(duration, absl::Milliseconds(1)) : duration);
}

}  // namespace cohort
