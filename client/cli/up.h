#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/cli/local_cluster.h"

namespace cohort::cli {

// Runs a head and its workers until SIGTERM or SIGINT, restarting what dies on
// the same port and state; then ends ranks, keepers, workers and head, in that
// order, within 15 s.  Gives the exit code; says what went wrong on stderr.
// With `detach` it returns once all serve, and the cluster runs on.
int RunUp(const UpOptions& options);

// Ends the cluster that runs in `state_dir`, as SIGTERM does, and waits for it.
// NotFound: none runs there; DeadlineExceeded: it is still ending.
absl::Status RunDown(const std::string& state_dir);

}  // namespace cohort::cli
