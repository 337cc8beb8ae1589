#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/strong_id.h"
#include "head/state/node_table.h"

namespace cohort::head {

// The node that a person means by `text`: its id, its name, or the beginning of
// its id, in this order.  Dead nodes are meant only when no other has the name
// or the beginning: a machine that was set up again keeps its name.
// InvalidArgument: empty or too long; NotFound (reason "unknown_node");
// FailedPrecondition (reason "ambiguous_node"), naming the candidates.
absl::StatusOr<NodeId> FindNode(const NodeTable& nodes, absl::string_view text);

}  // namespace cohort::head
