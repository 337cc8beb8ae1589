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
  std::string attempt;      // COHORT_ATTEMPT_ID in its environment, if any
  std::optional<int64_t> bytes;

  friend bool operator==(const Occupant&, const Occupant&) = default;
};

// Whether it is one process: a driver may name one for a while after its end.
bool IsSameProcess(const Occupant& before, const Occupant& now);

// Fills in all but `pid` and `bytes`.  Blocks as reading /proc does.
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
