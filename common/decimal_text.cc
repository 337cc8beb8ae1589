#include "common/decimal_text.h"

#include <algorithm>
#include <limits>

#include "absl/numeric/int128.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace cohort {
namespace {

constexpr uint64_t kBillion = 1'000'000'000;

bool IsDigits(absl::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

}  // namespace

std::optional<int64_t> Decimal::Times(uint64_t parts) const {
  const absl::uint128 product = absl::uint128(whole) * parts +
                                absl::uint128(billionths) * parts / kBillion;
  if (product > absl::uint128(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return static_cast<int64_t>(absl::Uint128Low64(product));
}

std::optional<Decimal> ParseDecimal(absl::string_view text) {
  const size_t point = text.find('.');
  const absl::string_view whole = text.substr(0, point);
  Decimal decimal;
  if (!IsDigits(whole) || !absl::SimpleAtoi(whole, &decimal.whole) ||
      decimal.whole >= kBillion * kBillion) {
    return std::nullopt;
  }
  if (point == absl::string_view::npos) return decimal;
  const absl::string_view decimals = text.substr(point + 1);
  if (!IsDigits(decimals) || decimals.size() > 9) return std::nullopt;
  uint64_t unit = kBillion;
  for (const char digit : decimals) {
    unit /= 10;
    decimal.billionths += static_cast<uint64_t>(digit - '0') * unit;
  }
  return decimal;
}

}  // namespace cohort
