#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "head/store/records.h"

namespace cohort::head {

// What a person asks for with a drain.
struct DrainOrder {
  std::string reason;
  // How long what runs there may go on.
  absl::Duration deadline = absl::InfiniteDuration();
};

// InvalidArgument, naming what, when it cannot be.
absl::Status ValidateDrainOrder(const DrainOrder& order);

// What is left of the deadline of a drain that an earlier head stored;
// InfiniteDuration: it has none.
//
//   DR-2: a deadline is counted on the monotonic clock.  A head that starts
//         goes on with what the record's wall times leave of it, never with
//         more than was asked for, however the clock was set meanwhile.
//
// It comes from wall time and does not start again, as leases do: somebody
// plans to switch the machine off at that time.
absl::Duration RestOf(const Drain& drain, absl::Time now);

}  // namespace cohort::head
