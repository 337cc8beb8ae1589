#pragma once

#include <string>

#include "absl/strings/string_view.h"

#include "common/resources.h"
#include "common/size_text.h"

// Amounts of resources as people write them.
namespace cohort {

// "4", "0.5", "64GiB": without the resource's name.  Only memory is rounded.
std::string AmountText(absl::string_view resource, Amount amount,
                       SizeRounding rounding = SizeRounding::kNearest);

// As ResourceSet::ToString: "CPU 1.5, memory 64GiB"; "nothing" when empty.
std::string ResourcesText(const ResourceSet& resources, SizeRounding rounding);

}  // namespace cohort
