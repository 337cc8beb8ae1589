#include "actor/wait.h"

#include "common/real_clock.h"
#include "common/status_macros.h"

namespace cohort::actor {

absl::Status WaitForAll(const std::vector<FutureState*>& states,
                        absl::Duration timeout) {
  const absl::Duration deadline = MonotonicNow() + timeout;
  for (FutureState* const state : states) {
    if (state == nullptr || state->IsDone()) continue;
    const absl::Status waited = state->WaitFor(deadline - MonotonicNow());
    if (absl::IsDeadlineExceeded(waited)) return NotDoneWithin(timeout);
    COHORT_RETURN_IF_ERROR(waited);
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> WaitForOne(const std::vector<FutureState*>& states,
                                  absl::Duration timeout) {
  if (states.empty()) {
    return absl::InvalidArgumentError("there is no future to wait for");
  }
  return FutureState::WaitForAny(states, timeout);
}

}  // namespace cohort::actor
