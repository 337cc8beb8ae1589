#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/host_port.h"
#include "head/state/history_limits.h"

namespace cohort::head {

// What a head daemon is told; main.cc reads it from the command line.
struct HeadOptions {
  HostPort address = {.host = "127.0.0.1", .port = 7710};
  // Of /healthz, /metrics and /v1; nothing: HttpAddress says.
  std::optional<HostPort> http_address;
  std::string state_dir;
  std::string ready_file;
  // Silence after which a node is dead.  Ten heartbeats of a second: a pause of
  // the network is not a death.
  absl::Duration node_timeout = absl::Seconds(10);
  // What is remembered of what is over (head/state/history_limits.h).
  int64_t keep_jobs = HistoryLimits().jobs.count_max;
  absl::Duration keep_for = HistoryLimits().jobs.age_max;
  // The state directory may be on a tmpfs: everything is lost with the machine.
  bool is_volatile = false;
  // Where the credential of the store that is there is missing, make another.
  bool new_credential = false;
  // A cluster file, which is applied at the start; empty: what is stored.
  std::string cluster_file;
  // Say what the autoscaler would do, and do nothing.
  bool autoscaler_dry_run = false;
  // Plaintext, on loopback only.
  bool insecure = false;

  // As given, else 127.0.0.1:7711, with a free port where `address` asks for
  // one: who wants any port for a head wants no fixed one beside it.
  HostPort HttpAddress() const;

  // InvalidArgument, naming the flag.
  absl::Status Validate() const;
};

}  // namespace cohort::head
