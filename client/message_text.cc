#include "client/message_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/job_id.h"
#include "rpc/wire_values.h"

namespace cohort {

std::string IdText(absl::string_view bytes) {
  const absl::StatusOr<JobId> id = JobId::FromBytes(bytes);
  return id.ok() ? id->ToText() : absl::BytesToHexString(bytes);
}

std::string TimeText(absl::Time time) {
  const absl::Time cut = absl::FromUnixMillis(absl::ToUnixMillis(time));
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", cut, absl::UTCTimeZone());
}

std::string TimeText(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0 && time.nanos() == 0) return "-";
  return TimeText(rpc::FromWire(time));
}

std::string EnumText(const google::protobuf::EnumDescriptor& type, int number) {
  const auto* const value = type.FindValueByNumber(number);
  if (value == nullptr) return absl::StrCat(number);
  const std::string& shown = value->options().GetExtension(v1::shown_as);
  if (!shown.empty()) return shown;
  // The first value is the prefix that all have, and one word.
  const std::string& first = type.value(0)->name();
  return std::string(
      absl::StripPrefix(value->name(), first.substr(0, first.rfind('_') + 1)));
}

std::string LowerEnumText(const google::protobuf::EnumDescriptor& type,
                          int number) {
  return absl::AsciiStrToLower(EnumText(type, number));
}

ResourceSet ResourcesOf(const v1::ResourceSet& wire) {
  ResourceSet resources;
  for (const v1::ResourceSet::Amount& amount : wire.amounts()) {
    resources.Set(amount.name(),
                  Amount::FromTenThousandths(amount.ten_thousandths()));
  }
  return resources;
}

}  // namespace cohort
