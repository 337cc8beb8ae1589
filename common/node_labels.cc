#include "common/node_labels.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

#include "common/label_selector.h"
#include "common/printable_text.h"

namespace cohort {
namespace {

constexpr size_t kNodeLabelsMax = 256;

}  // namespace

absl::Status CheckNodeLabels(const std::map<std::string, std::string>& labels) {
  if (labels.size() > kNodeLabelsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", labels.size(), " labels, at most ",
                     kNodeLabelsMax, " are possible"));
  }
  for (const auto& [key, value] : labels) {
    if (key == kHostLevel) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the label ", Quoted(absl::StrCat(key, "=", value)),
          " cannot be given: every node has it, as its name; choose another "
          "key"));
    }
    if (key.size() > LabelSelector::kKeyBytesMax || !IsNameText(key) ||
        value.size() > LabelSelector::kValueBytesMax ||
        !IsPrintableUtf8(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the label ", Quoted(absl::StrCat(key, "=", value)),
          " has no key of 1 to ", LabelSelector::kKeyBytesMax,
          " bytes without spaces at its ends, or no value of at most ",
          LabelSelector::kValueBytesMax, ", both printable UTF-8"));
    }
  }
  return absl::OkStatus();
}

}  // namespace cohort
