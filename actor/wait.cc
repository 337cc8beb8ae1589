#include "actor/wait.h"

#include "common/real_clock.h"

namespace cohort::actor {

absl::Status WaitForAll(const std::vector<FutureState*>& states,
                        absl::Duration timeout) {
  const absl::Duration deadline = MonotonicNow() + timeout;
  for (FutureState* const state : states) {
    if (state == nullptr || state->IsDone()) continue;
    if (!state->WaitFor(deadline - MonotonicNow())) {
      return NotDoneWithin(timeout);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<size_t> WaitForOne(const std::vector<FutureState*>& states,
                                  absl::Duration timeout) {
  if (states.empty()) {
    return absl::InvalidArgumentError("there is no future to wait for");
  }
  const size_t first = FutureState::WaitForAny(states, timeout);
  if (first == FutureState::kNone) return NotDoneWithin(timeout);
  return first;
}

}  // namespace cohort::actor
