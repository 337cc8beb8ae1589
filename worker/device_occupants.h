#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "worker/device_source.h"

namespace cohort::worker {

// A process with memory on a device, and what /proc says of it.  A value.
struct Occupant {
  int64_t pid = 0;
  uint64_t start_time = 0;  // clock ticks after boot; 0: it cannot be seen
  std::string command;      // its short name; empty: it cannot be seen
  // That it says it is or is of, if any: ProcessKey::ToString.
  std::string process;
  // It says nothing of whose it is, and may come from a rank.
  bool untold = false;
  std::optional<int64_t> bytes;

  friend bool operator==(const Occupant&, const Occupant&) = default;
};

// Whether it is one process: a driver may name one for a while after its end.
bool IsSameProcess(const Occupant& before, const Occupant& now);

// Fills in all but `pid` and `bytes`.  Untold is one without an environment
// that we may read, as a process has none any more that hangs in the driver on
// its way out; without the cgroup of a process of ours either; and of our user,
// or of anybody where we are root (docs/design/0004-devices.md, "After a
// restart of the daemon").  Blocks as reading /proc does.
void InspectProcess(Occupant& occupant);
using InspectFunction = std::function<void(Occupant&)>;

// The processes with memory on a device, each once; nothing when that is not
// known.  Blocks as `source` does.
std::optional<std::vector<Occupant>> OccupantsOf(
    DeviceSource& source, const std::string& id,
    const InspectFunction& inspect);

// "process 17 (python3) with 3.2GiB".
std::string OccupantText(const Occupant& occupant);

}  // namespace cohort::worker
