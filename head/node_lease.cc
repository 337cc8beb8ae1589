#include "head/node_lease.h"

namespace cohort::head {

NodeLeases::NodeLeases(LeaseOptions options, const Clock& clock)
    : options_(options), clock_(clock) {}

void NodeLeases::Grant(const NodeId& node) {
  leases_[node] = {.ends = clock_.Monotonic() + options_.timeout};
}

void NodeLeases::Renew(const NodeId& node) {
  if (leases_.contains(node)) Grant(node);
}

void NodeLeases::Drop(const NodeId& node) { leases_.erase(node); }

std::vector<NodeId> NodeLeases::Tick() {
  const absl::Duration now = clock_.Monotonic();
  const absl::Duration gap =
      last_tick_.has_value() ? now - *last_tick_ : absl::ZeroDuration();
  last_tick_ = now;
  // This process did not run: what it did not hear then proves nothing.
  const bool paused = gap > 2 * options_.tick_period;
  std::vector<NodeId> silent;
  for (auto& [node, lease] : leases_) {
    if (paused) lease.ends += gap;
    if (lease.ends > now) {
      lease.suspect = false;
    } else if (lease.suspect) {
      silent.push_back(node);
    } else {
      lease.suspect = true;
    }
  }
  for (const NodeId& node : silent) leases_.erase(node);
  return silent;
}

}  // namespace cohort::head
