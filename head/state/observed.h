#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/store/records.h"
#include "head/store/unknown_fields.h"

// What a node says of itself and what it has.  Peers' words: every number and
// text is to be checked.
namespace cohort::head {

using GpuAbortLevel = v1::GpuAbortLevel;

// REQUIRES: ValidateObserved accepted it.
AttemptId AttemptOf(const v1::ObservedPlace& place);
JobId JobOf(const v1::ObservedPlace& place);
// What each of its processes holds, beside devices.
ResourceSet ResourcesPerProcess(const v1::ObservedPlace& place);
// What a process that holds `each` has of its devices.
std::map<std::string, Amount> DevicesOf(const ResourceSet& each,
                                        const v1::ObservedProcess& process);

// Where it serves calls.  A process says that, not its node: what cannot be is
// left out.
std::vector<std::string> AddressesOf(const v1::ObservedProcess& process);

// A part of it as a row may have it: fields that this build does not know, as
// of a worker that is newer, would make a row that no start reads.
template <typename Message>
Message WithoutUnknown(Message part) {
  DropUnknownFields(part);
  return part;
}

// Something of it runs, or is about to.
inline bool IsLive(const v1::ObservedProcess& process) {
  return process.state() >= v1::PROCESS_STATE_STARTING &&
         process.state() <= v1::PROCESS_STATE_EXITED;
}
bool IsLive(const v1::ObservedPlace& place);

struct Registration {
  NodeId id;
  v1::Node node;          // what it says of itself
  v1::Observed observed;  // everything that it has
  bool leaving = false;
  std::vector<v1::DeviceStatus> devices;  // those not named are healthy
};

// Attempts that one node may have, processes in each, and attempts that it may
// have though nobody wants them there.
inline constexpr int kObservedPlacesMax = 16'384;
inline constexpr int kObservedProcessesMax = 16'384;
inline constexpr size_t kOrphansMax = 4'096;

// InvalidArgument, naming what, when a node cannot be what it says.
absl::Status ValidateRegistration(const Registration& registration);
// The same of what it has.
absl::Status ValidateObserved(const v1::Observed& observed);

}  // namespace cohort::head
