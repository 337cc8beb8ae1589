#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/host_port.h"
#include "common/taint.h"
#include "worker/node_inventory.h"
#include "worker/run_as.h"

namespace cohort::worker {

// What a worker daemon is told; main.cc reads it from the command line.
struct WorkerOptions {
  HostPort head;
  std::string credential_file;
  std::string join;       // a token, by which the node gets a credential
  std::string name;       // shown to people; the host's name when empty
  std::string state_dir;  // survives restarts: node id, journal, logs, results
  std::string ready_file;
  // Address at which ranks of other nodes reach the ranks here; empty: that of
  // the interface towards the head.
  std::string host;
  InventoryOptions inventory;
  std::map<std::string, std::string> labels;
  std::vector<Taint> taints;
  // In place of the machine's devices.
  std::optional<int> simulated_gpus;
  // The driver's management library: a name that the loader looks for, or a
  // path.
  std::string nvml_library = "libnvidia-ml.so.1";
  // That results in the state directory may have; nothing: any number.
  std::optional<int64_t> keep_results_bytes;
  // That logs may have; nothing: a tenth of their disk.
  std::optional<int64_t> keep_logs_bytes;
  // Ranks run on the CPUs near their GPUs.
  bool pin_ranks = true;
  // As whom ranks run; nobody: as the worker.
  RunAs run_as;
  // SIGTERM also ends what runs here (`cohort up` wants that); without it ranks
  // outlive the daemon and the next one takes them over.
  bool end_ranks = false;
  // SIGTERM lets what runs here go on for so long at most, drained; nothing:
  // the daemon ends at once.
  std::optional<absl::Duration> drain_on_sigterm;

  // InvalidArgument, naming the flag.
  absl::Status Validate() const;
};

// What an `end_ranks` shutdown leaves the ranks between SIGTERM and SIGKILL:
// within the 15 s that `cohort up` promises for everything.
inline constexpr absl::Duration kDrainRanksGrace = absl::Seconds(10);

}  // namespace cohort::worker
