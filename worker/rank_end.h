#pragma once

#include "cohort/v1/node.pb.h"
#include "worker/keeper_host.h"

// How a rank ended, and whether that is its own doing.
namespace cohort::worker {

// Not with code 0.
bool Failed(const ExitStatus& status);

// Whether somebody else ended it: an order, its time limit, the end of its
// keeper, which it is not at fault for either.
bool EndedByOthers(const ExitStatus& status);

void ToWire(const ExitStatus& status, v1::ExitStatus& proto);

// The same of a rank that was observed: it failed, and nobody ended it.
bool FailedByItself(const v1::ObservedRank& rank);

// Null when none failed by itself.
const v1::ObservedRank* FirstToFail(const v1::ObservedAttempt& observed);

}  // namespace cohort::worker
