#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

#include "cohort/v1/domain.pb.h"
#include "common/resources.h"
#include "common/taint.h"

// The values of common/ as the wire writes them.
namespace cohort::rpc {

v1::ResourceSet ToWire(const ResourceSet& resources);
// InvalidArgument, naming the resource, as ResourceSet::Validate, and for a
// name that comes twice.
absl::StatusOr<ResourceSet> FromWire(const v1::ResourceSet& wire);

v1::Taint ToWire(const Taint& taint);
Taint FromWire(const v1::Taint& wire);

v1::Toleration ToWire(const Toleration& toleration);
Toleration FromWire(const v1::Toleration& wire);

google::protobuf::Duration ToWire(absl::Duration duration);
absl::Duration FromWire(const google::protobuf::Duration& wire);

// To the microsecond.
google::protobuf::Timestamp ToWire(absl::Time time);
absl::Time FromWire(const google::protobuf::Timestamp& wire);

}  // namespace cohort::rpc
