#include "head/state/node_finder.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/printable_text.h"
#include "common/status_util.h"

namespace cohort::head {
namespace {

constexpr size_t kNodeNameBytesMax = 256;
constexpr size_t kCandidatesShown = 8;

using NodesMeant = std::vector<const NodeRecord*>;

// Those that are not dead, unless all are.
NodesMeant Preferred(NodesMeant all) {
  NodesMeant living;
  for (const NodeRecord* node : all) {
    if (node->state != v1::NODE_STATE_DEAD) living.push_back(node);
  }
  return living.empty() ? all : living;
}

absl::Status Ambiguous(absl::string_view text, const NodesMeant& nodes) {
  std::string message =
      absl::StrCat(Quoted(text), " is ", nodes.size(), " nodes:");
  for (size_t i = 0; i < nodes.size() && i < kCandidatesShown; ++i) {
    absl::StrAppend(&message, i == 0 ? " " : ", ", nodes[i]->id.ToHex(), " (",
                    nodes[i]->node.name(), " on ", nodes[i]->node.host(), ")");
  }
  if (nodes.size() > kCandidatesShown) absl::StrAppend(&message, ", ...");
  absl::StrAppend(&message, ": give more of the id");
  return SetReason(absl::FailedPreconditionError(message), "ambiguous_node");
}

}  // namespace

absl::StatusOr<NodeId> FindNode(const NodeTable& nodes,
                                absl::string_view text) {
  if (text.empty() || text.size() > kNodeNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a node is named by its id, the beginning of its id, or its name, in 1 "
        "to ",
        kNodeNameBytesMax, " bytes; this has ", text.size()));
  }
  const std::string lower = absl::AsciiStrToLower(text);
  NodesMeant named;
  NodesMeant begun;
  for (const auto& [id, record] : nodes.records()) {
    const std::string hex = id.ToHex();
    if (hex == lower) return id;
    if (record.node.name() == text) named.push_back(&record);
    if (absl::StartsWith(hex, lower)) begun.push_back(&record);
  }
  const NodesMeant matches = Preferred(named.empty() ? begun : named);
  if (matches.empty()) {
    return SetReason(
        absl::NotFoundError(absl::StrCat("there is no node ", Quoted(text),
                                         " here: `cohort nodes` lists them")),
        "unknown_node");
  }
  if (matches.size() > 1) return Ambiguous(text, matches);
  return matches.front()->id;
}

}  // namespace cohort::head
