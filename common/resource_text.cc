#include "common/resource_text.h"

#include "absl/strings/str_cat.h"

namespace cohort {

std::string AmountText(absl::string_view resource, Amount amount,
                       SizeRounding rounding) {
  if (resource != kMemory || amount.IsZero()) return amount.ToString();
  const bool part = amount != Amount::FromUnits(amount.WholeUnits());
  const bool more = part && rounding == SizeRounding::kUp;
  return SizeToText(amount.WholeUnits() + (more ? 1 : 0), rounding);
}

std::string ResourcesText(const ResourceSet& resources, SizeRounding rounding) {
  if (resources.empty()) return "nothing";
  std::string text;
  for (const auto& [name, amount] : resources) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", name, " ",
                    AmountText(name, amount, rounding));
  }
  return text;
}

}  // namespace cohort
