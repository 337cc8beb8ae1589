#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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

// Whatever the head says: a sum over many nodes is more than one may offer.
ResourceSet ResourcesOf(const v1::ResourceSet& wire);

}  // namespace cohort
