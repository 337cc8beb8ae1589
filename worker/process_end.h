#pragma once

#include "cohort/v1/node.pb.h"
#include "worker/keeper_host.h"

// How a process ended, and whether that is its own doing.
namespace cohort::worker {

// Whether somebody else ended it: an order, its time limit, the end of its
// keeper, which it is not at fault for either.
bool EndedByOthers(const ExitReport& exit);

v1::ExitStatus ToWire(const ExitReport& exit);

// It failed, and nobody ended it.
bool FailedByItself(const v1::ObservedProcess& process);

}  // namespace cohort::worker
