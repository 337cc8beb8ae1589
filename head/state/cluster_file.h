#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "head/store/records.h"

namespace cohort::head {

// Reads a cluster file: YAML, as docs/autoscaling.md describes it, with what it
// leaves out filled in.  InvalidArgument, with the line, for what is not YAML,
// a key that is not known, and a value that cannot be.
//
// Names and defaults are Ray's where it has them (upscaling_speed 1.0,
// idle_timeout 5 min, as idle_timeout_minutes there).
absl::StatusOr<ClusterFile> ParseClusterFile(absl::string_view text);

}  // namespace cohort::head
