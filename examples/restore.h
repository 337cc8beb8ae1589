#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "trainer/checkpoint.h"
#include "trainer/session.h"

namespace cohort::examples {

// Reads the checkpoint that this run goes on from, if there is one, has
// `restore` take it over, and says so.  Errors, `restore`'s too, name the
// checkpoint; NotFound when this node does not see it.
absl::Status RestoreRun(
    const trainer::Session& session,
    absl::FunctionRef<absl::Status(const trainer::Checkpoint&)> restore);

}  // namespace cohort::examples
