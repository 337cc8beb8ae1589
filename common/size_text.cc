#include "common/size_text.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/numeric/int128.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/decimal_text.h"
#include "common/printable_text.h"

namespace cohort {
namespace {

constexpr absl::string_view kPrefixes = "kmgtp";
constexpr std::array<absl::string_view, 6> kBinaryUnits = {"B",   "KiB", "MiB",
                                                           "GiB", "TiB", "PiB"};

// Bytes of a unit such as "", "b", "k", "kb", "ki", "kib".
std::optional<uint64_t> UnitBytes(absl::string_view unit) {
  std::string lower = absl::AsciiStrToLower(unit);
  absl::string_view rest = lower;
  absl::ConsumeSuffix(&rest, "b");
  if (rest.empty()) return 1;
  const size_t power = kPrefixes.find(rest.front());
  if (power == absl::string_view::npos) return std::nullopt;
  rest.remove_prefix(1);
  if (!rest.empty() && rest != "i") return std::nullopt;
  const uint64_t base = rest.empty() ? 1000 : 1024;
  uint64_t bytes = 1;
  for (size_t i = 0; i <= power; ++i) bytes *= base;
  return bytes;
}

}  // namespace

absl::StatusOr<int64_t> ParseSize(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t digits =
      std::min(trimmed.find_first_not_of("0123456789."), trimmed.size());
  const std::optional<Decimal> number = ParseDecimal(trimmed.substr(0, digits));
  const std::optional<uint64_t> unit =
      UnitBytes(absl::StripAsciiWhitespace(trimmed.substr(digits)));
  if (number.has_value() && unit.has_value()) {
    const std::optional<int64_t> bytes = number->Times(*unit);
    if (bytes.has_value()) return *bytes;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Quoted(text),
      " is not a size: write 64GiB, 512MB, 1.5G, 1k or a number of bytes"));
}

std::string SizeToText(int64_t bytes, SizeRounding rounding) {
  size_t unit = 0;
  while (unit + 1 < kBinaryUnits.size() && bytes >> (10 * (unit + 1)) > 0) {
    ++unit;
  }
  // Of the unit; ten times as much as an int64 holds stays exact.
  const auto tenths = [bytes](size_t power) {
    return absl::int128(bytes) * 10 / (int64_t{1} << (10 * power));
  };
  const auto rest = [bytes](size_t power) {
    return absl::int128(bytes) * 10 % (int64_t{1} << (10 * power));
  };
  if (rounding == SizeRounding::kNone) {
    while (rest(unit) != 0) --unit;
  }
  auto number = static_cast<int64_t>(tenths(unit));
  const bool more = rounding == SizeRounding::kNearest
                        ? 2 * rest(unit) >= int64_t{1} << (10 * unit)
                        : rounding == SizeRounding::kUp;
  if (more && rest(unit) != 0) ++number;
  if (number == 10'240 && unit + 1 < kBinaryUnits.size()) {
    number = 10;
    ++unit;
  }
  return absl::StrCat(number / 10,
                      number % 10 == 0 ? "" : absl::StrCat(".", number % 10),
                      kBinaryUnits[unit]);
}

}  // namespace cohort
