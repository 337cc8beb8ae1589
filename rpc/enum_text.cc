#include "rpc/enum_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "cohort/v1/json.pb.h"

namespace cohort {

std::string EnumText(const google::protobuf::EnumValueDescriptor& value) {
  // The first value is the prefix that all have, and one word.
  const std::string& first = value.type()->value(0)->name();
  return std::string(
      absl::StripPrefix(value.name(), first.substr(0, first.rfind('_') + 1)));
}

std::string EnumText(const google::protobuf::EnumDescriptor& type, int number) {
  const auto* const value = type.FindValueByNumber(number);
  if (value == nullptr) return absl::StrCat(number);
  const std::string& shown = value->options().GetExtension(v1::shown_as);
  return shown.empty() ? EnumText(*value) : shown;
}

}  // namespace cohort
