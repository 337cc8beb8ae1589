#include "common/resources.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

#include "common/check.h"
#include "common/decimal_text.h"
#include "common/key_values.h"
#include "common/printable_text.h"
#include "common/resource_text.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort {
namespace {

constexpr int64_t kUnitsMax = 1'000'000'000;
constexpr int64_t kMemoryBytesMax = 900'000'000'000'000;
// More names than that in one request or on one node is a mistake.
constexpr size_t kResourcesMax = 64;

int64_t UnitsMax(absl::string_view name) {
  return name == kMemory ? kMemoryBytesMax : kUnitsMax;
}

int64_t AddWithinBounds(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b > 0 ? std::numeric_limits<int64_t>::max()
               : std::numeric_limits<int64_t>::min();
}

int64_t SubtractWithinBounds(int64_t a, int64_t b) {
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? std::numeric_limits<int64_t>::max()
               : std::numeric_limits<int64_t>::min();
}

int64_t MultiplyWithinBounds(int64_t a, int64_t b) {
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a > 0) == (b > 0) ? std::numeric_limits<int64_t>::max()
                            : std::numeric_limits<int64_t>::min();
}

bool NameBefore(const ResourceSet::Entry& entry, absl::string_view name) {
  return absl::string_view(entry.first) < name;
}

absl::StatusOr<Amount> ParseAmountOf(absl::string_view name,
                                     absl::string_view text) {
  if (name != kMemory) return Amount::Parse(text);
  COHORT_ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(text));
  return Amount::FromUnits(bytes);
}

}  // namespace

Amount Amount::FromUnits(int64_t units) {
  return Amount(MultiplyWithinBounds(units, kScale));
}

absl::StatusOr<Amount> Amount::FromDouble(double units) {
  const double scaled = std::round(units * kScale);
  // Written so that NaN fails it.
  const bool sound = units >= 0 && units <= static_cast<double>(kUnitsMax) &&
                     (units == 0 || scaled >= 1);
  if (!sound) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%g is not an amount: it must be 0, or from 0.0001 to 1000000000",
        units));
  }
  return Amount(static_cast<int64_t>(scaled));
}

absl::StatusOr<Amount> Amount::Parse(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const std::optional<Decimal> number = ParseDecimal(trimmed);
  const std::optional<int64_t> parts =
      number.has_value() ? number->Times(kScale) : std::nullopt;
  const bool sound = parts.has_value() &&
                     number->billionths % (1'000'000'000 / kScale) == 0 &&
                     *parts <= kUnitsMax * kScale;
  if (!sound) {
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(text),
                     " is not an amount: write 2 or 0.5, at most four "
                     "decimals, from 0 to 1000000000"));
  }
  return Amount(*parts);
}

double Amount::ToDouble() const {
  return static_cast<double>(n_) / static_cast<double>(kScale);
}

std::string Amount::ToString() const {
  const int64_t decimals = std::abs(n_ % kScale);
  const std::string whole =
      absl::StrCat(n_ < 0 && n_ > -kScale ? "-" : "", n_ / kScale);
  if (decimals == 0) return whole;
  std::string text = absl::StrFormat("%s.%04d", whole, decimals);
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

Amount& Amount::operator+=(Amount other) {
  n_ = AddWithinBounds(n_, other.n_);
  return *this;
}

Amount& Amount::operator-=(Amount other) {
  n_ = SubtractWithinBounds(n_, other.n_);
  return *this;
}

Amount Amount::Times(int64_t times) const {
  COHORT_CHECK(times >= 0);
  return Amount(MultiplyWithinBounds(n_, times));
}

Amount ResourceSet::Get(absl::string_view name) const {
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), name, NameBefore);
  const bool present =
      found != entries_.end() && absl::string_view(found->first) == name;
  return present ? found->second : Amount();
}

void ResourceSet::Set(absl::string_view name, Amount amount) {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), name, NameBefore);
  const bool present =
      place != entries_.end() && absl::string_view(place->first) == name;
  if (present && amount.IsZero()) {
    entries_.erase(place);
  } else if (present) {
    place->second = amount;
  } else if (!amount.IsZero()) {
    entries_.emplace(place, std::string(name), amount);
  }
}

void ResourceSet::AddTo(const std::string& name, Amount amount) {
  const auto place =
      std::lower_bound(entries_.begin(), entries_.end(), name, NameBefore);
  if (place == entries_.end() || place->first != name) {
    if (!amount.IsZero()) entries_.emplace(place, name, amount);
    return;
  }
  place->second += amount;
  if (place->second.IsZero()) entries_.erase(place);
}

bool ResourceSet::Fits(const ResourceSet& need) const {
  return std::all_of(need.begin(), need.end(), [this](const Entry& entry) {
    return entry.second <= Get(entry.first);
  });
}

ResourceSet ResourceSet::Shortfall(const ResourceSet& need) const {
  ResourceSet missing;
  for (const auto& [name, amount] : need) {
    const Amount here = Get(name);
    if (amount > here) missing.Set(name, amount - here);
  }
  return missing;
}

void ResourceSet::Add(const ResourceSet& other) {
  for (const auto& [name, amount] : other) AddTo(name, amount);
}

bool ResourceSet::Take(const ResourceSet& other) {
  if (!Fits(other)) return false;
  for (const auto& [name, amount] : other) AddTo(name, Amount() - amount);
  return true;
}

ResourceSet ResourceSet::Times(int64_t times) const {
  if (times == 0) return {};
  ResourceSet product = *this;
  for (auto& [name, amount] : product.entries_) amount = amount.Times(times);
  return product;
}

absl::Status ResourceSet::Validate() const {
  if (entries_.size() > kResourcesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(entries_.size(), " resources are named, at most ",
                     kResourcesMax, " may be"));
  }
  for (const auto& [name, amount] : entries_) {
    COHORT_RETURN_IF_ERROR(ValidateResourceName(name));
    if (amount < Amount() || amount > Amount::FromUnits(UnitsMax(name))) {
      if (name == kMemory) {
        return absl::InvalidArgumentError(
            absl::StrCat("resource memory must be from 0 to ", kMemoryBytesMax,
                         " bytes (", SizeToText(kMemoryBytesMax), ")"));
      }
      return absl::InvalidArgumentError(
          absl::StrCat("resource ", name, " is ", amount.ToString(),
                       ": it must be from 0 to ", UnitsMax(name)));
    }
  }
  return absl::OkStatus();
}

std::string ResourceSet::ToString() const {
  return ResourcesText(*this, SizeRounding::kNearest);
}

absl::Status ValidateResourceName(absl::string_view name) {
  const bool sound =
      !name.empty() && name.size() <= 63 && absl::ascii_isalpha(name.front()) &&
      std::all_of(name.begin(), name.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-';
      });
  if (sound) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Quoted(name),
                   " is not a resource name: a letter, then up to 62 "
                   "letters, digits, or any of _.-"));
}

absl::StatusOr<ResourceSet> ParseResources(absl::string_view text) {
  COHORT_ASSIGN_OR_RETURN(const auto values, ParseKeyValues(text));
  ResourceSet set;
  for (const auto& [name, value] : values) {
    COHORT_RETURN_IF_ERROR(ValidateResourceName(name));
    const absl::StatusOr<Amount> amount = ParseAmountOf(name, value);
    if (!amount.ok()) {
      return Annotate(amount.status(), absl::StrCat("resource ", name));
    }
    set.Set(name, *amount);
  }
  COHORT_RETURN_IF_ERROR(set.Validate());
  return set;
}

}  // namespace cohort
