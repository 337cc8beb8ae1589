#pragma once

#include "absl/status/statusor.h"

#include "client/explanation.h"
#include "cohort/v1/cluster.pb.h"

namespace cohort::client {

// As client/wire.h says.
absl::StatusOr<Explanation> FromWire(const v1::ExplainJobResponse& wire);

}  // namespace cohort::client
