#pragma once

#include <vector>

#include "head/store/records.h"

namespace cohort::head {

// Slots of an attempt that wait together: a dead one alone, those that a resize
// added all at once; with `all` whichever wait.
struct SlotAsk {
  int first = 0;
  int count = 1;

  friend bool operator==(const SlotAsk&, const SlotAsk&) = default;
};
std::vector<SlotAsk> AsksOf(const AttemptRecord& attempt, bool all);
// As many slots that wait as it has, from its first on.
std::vector<int> SlotsOf(const AttemptRecord& attempt, const SlotAsk& ask);

}  // namespace cohort::head
