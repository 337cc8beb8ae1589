#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace cohort::cli {

// `cohort up` as it was typed; each value is per worker.  Texts are checked by
// the daemons that they are passed to, and here before anything starts.
struct UpOptions {
  int workers = 2;
  std::string num_cpus;              // empty: the machine's, divided
  std::optional<int> num_gpus;       // real ones
  std::optional<int> simulate_gpus;  // in place of real ones
  std::string memory;                // empty: the machine's, divided
  std::string resources;
  int port = 7710;  // 0: a free one
  // Of the head's HTTP service; empty: the head's default.
  std::string http_address;
  std::string state_dir;
  std::string ready_file;
  std::string node_timeout;  // empty: the head's default
  bool is_volatile = false;
  bool detach = false;
};

// Runs a head and its workers until SIGTERM or SIGINT, restarting what dies on
// the same port and state; then ends ranks, keepers, workers and head, in that
// order, within 15 s.  Gives the exit code; says what went wrong on stderr.
// With `detach` it returns once all serve, and the cluster runs on.
int RunUp(const UpOptions& options);

// Ends the cluster that runs in `state_dir`, as SIGTERM does, and waits for it.
// NotFound: none runs there; DeadlineExceeded: it is still ending.
absl::Status RunDown(const std::string& state_dir);

}  // namespace cohort::cli
