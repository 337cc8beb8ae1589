#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "google/protobuf/timestamp.pb.h"

#include "cohort/v1/domain.pb.h"
#include "common/resources.h"

// What is in messages of the head, as people read it.  Thread-safe.
namespace cohort {

// Of the bytes of any id: "ab01...", "ab01....7" for an element of an array;
// empty when there are none.
std::string IdText(absl::string_view bytes);

// "2026-11-21T10:00:00.123Z".
std::string TimeText(absl::Time time);
// "-" when it is not set.
std::string TimeText(const google::protobuf::Timestamp& time);

// "RUNNING" of JOB_STATE_RUNNING; the number where this program knows no name.
std::string EnumText(const google::protobuf::EnumDescriptor& type, int number);
template <typename Enum>
std::string EnumText(Enum value) {
  return EnumText(*google::protobuf::GetEnumDescriptor<Enum>(),
                  static_cast<int>(value));
}
// "user" of FAILURE_CLASS_USER.
std::string LowerEnumText(const google::protobuf::EnumDescriptor& type,
                          int number);
template <typename Enum>
std::string LowerEnumText(Enum value) {
  return LowerEnumText(*google::protobuf::GetEnumDescriptor<Enum>(),
                       static_cast<int>(value));
}

// Whatever the head says: a sum over many nodes is more than one may offer.
ResourceSet ResourcesOf(const v1::ResourceSet& wire);

}  // namespace cohort
