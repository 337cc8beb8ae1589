#pragma once

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace cohort {

// A number that is not negative, as people write it, kept exactly: whole units
// and billionths.  What size, duration and amount texts are made of.
struct Decimal {
  uint64_t whole = 0;
  uint64_t billionths = 0;

  // The number in parts of a unit, rounded down; none beyond int64.
  std::optional<int64_t> Times(uint64_t parts) const;
};

// Reads digits, or digits "." digits with up to nine decimals, and nothing
// else: no sign, exponent, inf or nan.  None when `text` is something else or
// is 10^18 or more.
std::optional<Decimal> ParseDecimal(absl::string_view text);

}  // namespace cohort
