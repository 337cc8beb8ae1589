#pragma once

#include "absl/status/status.h"

#include "actor/options.h"
#include "actor/task_options.h"

namespace cohort::actor {

// INVALID_ARGUMENT, naming the option as the program does, for what no actor or
// task can have; what a job cannot have either is for others to refuse.
// Stateless; thread-safe.
absl::Status CheckOptions(const ActorOptions& options, bool is_group);
absl::Status CheckOptions(const TaskOptions& options);

}  // namespace cohort::actor
