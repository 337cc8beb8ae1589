#include "head/state/slot_ask.h"

#include <iterator>

namespace cohort::head {

std::vector<SlotAsk> AsksOf(const AttemptRecord& attempt, bool all) {
  std::vector<SlotAsk> asks;
  for (const Process& process : attempt.processes) {
    if (!process.waits() || process.again || process.retired) continue;
    const bool is_new = process.incarnation == 0;
    const int last = process.slot - 1;
    const bool goes_with_last =
        is_new && !asks.empty() &&
        asks.back().first + asks.back().count - 1 == last &&
        attempt.processes[static_cast<size_t>(last)].incarnation == 0;
    if (goes_with_last || (all && !asks.empty())) {
      asks.back().count += 1;
    } else {
      asks.push_back({.first = process.slot, .count = 1});
    }
  }
  return asks;
}

std::vector<int> SlotsOf(const AttemptRecord& attempt, const SlotAsk& ask) {
  std::vector<int> slots;
  for (auto slot = static_cast<size_t>(ask.first);
       std::ssize(slots) < ask.count && slot < attempt.processes.size();
       ++slot) {
    const Process& process = attempt.processes[slot];
    if (process.waits() && !process.again && !process.retired) {
      slots.push_back(process.slot);
    }
  }
  return slots;
}

}  // namespace cohort::head
