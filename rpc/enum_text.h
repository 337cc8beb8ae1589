#pragma once

#include <string>

#include "absl/strings/ascii.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"

// Values of the wire's enums, for people.  Stateless; thread-safe.
namespace cohort {

// "RUNNING" of JOB_STATE_RUNNING.
std::string EnumText(const google::protobuf::EnumValueDescriptor& value);
// What its `shown_as` says, or as above; the number where `type` has none of
// that name.
std::string EnumText(const google::protobuf::EnumDescriptor& type, int number);

template <typename Enum>
std::string EnumText(Enum value) {
  return EnumText(*google::protobuf::GetEnumDescriptor<Enum>(),
                  static_cast<int>(value));
}

// "rank_failed".
template <typename Enum>
std::string LowerEnumText(Enum value) {
  return absl::AsciiStrToLower(EnumText(value));
}

}  // namespace cohort
