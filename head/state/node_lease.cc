#include "head/state/node_lease.h"

#include <algorithm>
#include <utility>

namespace cohort::head {

NodeLeases::NodeLeases(LeaseOptions options, const Clock& clock)
    : options_(options), clock_(clock), last_tick_(clock.Monotonic()) {}

void NodeLeases::Grant(const NodeId& node) {
  leases_[node] = {.ends = clock_.Monotonic() + options_.timeout};
}

void NodeLeases::Renew(const NodeId& node) {
  const auto lease = leases_.find(node);
  if (lease == leases_.end()) return;
  lease->second = {.ends = clock_.Monotonic() + options_.timeout};
}

void NodeLeases::Drop(const NodeId& node) { leases_.erase(node); }

NodeLeases::Silent NodeLeases::Tick() {
  const absl::Duration now = clock_.Monotonic();
  const absl::Duration gap = now - std::exchange(last_tick_, now);
  // This process did not run: what it did not hear then proves nothing.
  const bool paused = gap > 2 * options_.tick_period;
  const absl::Duration suspect_by = now + options_.timeout / 2;
  Silent silent;
  for (auto& [node, lease] : leases_) {
    if (paused) lease.ends += gap;
    const bool was_late = std::exchange(lease.late, lease.ends <= suspect_by);
    const bool was_expired = std::exchange(lease.expired, lease.ends <= now);
    if (lease.expired && was_expired) {
      silent.dead.push_back(node);
    } else if (lease.late && was_late && !std::exchange(lease.suspect, true)) {
      silent.suspect.push_back(node);
    }
  }
  for (const NodeId& node : silent.dead) leases_.erase(node);
  std::sort(silent.suspect.begin(), silent.suspect.end());
  std::sort(silent.dead.begin(), silent.dead.end());
  return silent;
}

}  // namespace cohort::head
