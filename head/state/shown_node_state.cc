#include "head/state/shown_node_state.h"

namespace cohort::head {

ShownNodeState ShownStateOf(const NodeRecord& node, bool empty) {
  if (node.state == v1::NODE_STATE_DEAD) return ShownNodeState::kDead;
  if (node.state == v1::NODE_STATE_SUSPECT) return ShownNodeState::kSuspect;
  if (!node.node.has_drain()) {
    return node.node.unfit().empty() ? ShownNodeState::kAlive
                                     : ShownNodeState::kUnfit;
  }
  return empty ? ShownNodeState::kDrained : ShownNodeState::kDraining;
}

const char* ShownNodeStateName(ShownNodeState state) {
  switch (state) {
    case ShownNodeState::kAlive:
      return "ALIVE";
    case ShownNodeState::kSuspect:
      return "SUSPECT";
    case ShownNodeState::kDraining:
      return "DRAINING";
    case ShownNodeState::kDrained:
      return "DRAINED";
    case ShownNodeState::kDead:
      return "DEAD";
    case ShownNodeState::kUnfit:
      return "UNFIT";
    case ShownNodeState::kAbsent:
      return "ABSENT";
  }
  return "UNKNOWN";
}

}  // namespace cohort::head
