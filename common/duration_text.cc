#include "common/duration_text.h"

#include <algorithm>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "common/decimal_text.h"
#include "common/printable_text.h"

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

// Where reading stopped, and why.
struct Fault {
  size_t at = 0;  // in the text, from 0
  const char* what = "";
};

constexpr char kTooLong[] = "longer than a hundred years";

// Takes one number and its unit off the front of `text` from `at` on.
std::optional<absl::Duration> TakePart(absl::string_view text, size_t& at,
                                       Fault& fault) {
  const size_t begin = at;
  at = std::min(text.find_first_not_of("0123456789.", begin), text.size());
  const absl::string_view digits = text.substr(begin, at - begin);
  const std::optional<Decimal> number = ParseDecimal(digits);
  if (!number.has_value()) {
    const bool is_large = digits.find('.') == digits.npos && !digits.empty();
    fault = {begin, is_large ? kTooLong : "expected a number"};
    return std::nullopt;
  }
  const size_t letters = at;
  at = std::min(text.find_first_of("0123456789.", letters), text.size());
  const std::optional<uint64_t> unit =
      UnitNanoseconds(text.substr(letters, at - letters));
  // Of "1h30" nobody knows whether minutes or seconds are meant.
  if (!unit.has_value() || (begin > 0 && letters == at)) {
    fault = {letters, "expected a unit (ns, us, ms, s, m, h or d)"};
    return std::nullopt;
  }
  const std::optional<int64_t> nanoseconds = number->Times(*unit);
  if (!nanoseconds.has_value()) {
    fault = {begin, kTooLong};
    return std::nullopt;
  }
  return absl::Nanoseconds(*nanoseconds);
}

std::optional<absl::Duration> Parse(absl::string_view text, Fault& fault) {
  absl::Duration sum;
  size_t at = 0;
  do {
    const size_t begin = at;
    const std::optional<absl::Duration> part = TakePart(text, at, fault);
    if (!part.has_value()) return std::nullopt;
    sum += *part;
    if (sum > kLongest) {
      fault = {begin, kTooLong};
      return std::nullopt;
    }
  } while (at < text.size());
  return sum;
}

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  const absl::string_view stripped = absl::StripLeadingAsciiWhitespace(text);
  Fault fault;
  const std::optional<absl::Duration> duration =
      Parse(absl::StripTrailingAsciiWhitespace(stripped), fault);
  if (duration.has_value()) return *duration;
  return absl::InvalidArgumentError(absl::StrCat(
      Quoted(text), " is not a duration: column ",
      text.size() - stripped.size() + fault.at + 1, ": ", fault.what,
      "; write 90s, 1.5m, 2h, 500ms, 1d or a number of seconds"));
}

std::string DurationToText(absl::Duration duration) {
  const bool long_enough = absl::AbsDuration(duration) >= absl::Seconds(1);
  return absl::FormatDuration(
      long_enough ? absl::Trunc(duration, absl::Milliseconds(1)) : duration);
}

}  // namespace cohort
