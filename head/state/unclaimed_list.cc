#include "head/state/unclaimed_list.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "head/state/unclaimed.h"

namespace cohort::head {
namespace {

bool IsHere(const NodeTable& nodes, const NodeId& id) {
  const NodeRecord* node = nodes.Find(id);
  return node != nullptr && node->state == NodeState::kAlive &&
         nodes.IsOffered(id);
}

ListedAttempt Listed(const ClusterState& state,
                     const UnclaimedTable::Entry& entry) {
  ListedAttempt listed{.attempt = entry.attempt,
                       .job = entry.job,
                       .has_row = entry.has_row,
                       .since = entry.since};
  size_t nodes = entry.seen.size();
  if (const AttemptRecord* row = state.attempts().Find(entry.attempt)) {
    nodes = row->parts.size();
    for (const AttemptPart& part : row->parts) {
      listed.nodes.push_back(part.node);
    }
  } else {
    for (const auto& [node, observed] : entry.seen) {
      listed.nodes.push_back(node);
      if (!observed.wanted.has_value()) continue;
      nodes = static_cast<size_t>(observed.wanted->node_count);
    }
  }
  std::set<NodeId> away;
  for (const NodeId& node : listed.nodes) {
    if (!IsHere(state.nodes(), node)) away.insert(node);
  }
  listed.state = StateOf(entry, nodes, away);
  return listed;
}

std::vector<NodeId> LeftOf(const AttemptRecord& attempt) {
  std::vector<NodeId> left;
  for (const AttemptPart& part : attempt.parts) {
    if (!IsOver(part)) left.push_back(part.node);
  }
  return left;
}

}  // namespace

std::vector<ListedAttempt> ListUnclaimed(const ClusterState& state,
                                         size_t most) {
  std::vector<ListedAttempt> all;
  for (const auto& [id, entry] : state.unclaimed().all()) {
    if (all.size() == most) return all;
    all.push_back(Listed(state, entry));
  }
  for (const AttemptId& id : state.attempts().ended_unclaimed()) {
    if (all.size() == most) return all;
    const AttemptRecord& attempt = *state.attempts().Find(id);
    all.push_back({.attempt = id,
                   .job = attempt.job,
                   .has_row = true,
                   .nodes = LeftOf(attempt),
                   .state = "ENDING"});
  }
  return all;
}

std::string NotSaidGone(const AttemptRecord& attempt, const NodeTable& nodes) {
  std::vector<std::string> left;
  for (const NodeId& id : LeftOf(attempt)) {
    const NodeRecord* node = nodes.Find(id);
    if (node == nullptr) {
      left.push_back(id.ToHex());
    } else {
      left.push_back(absl::StrCat(node->name,
                                  IsHere(nodes, id) ? "" : ", which is away,"));
    }
  }
  if (left.empty()) return "";
  return absl::StrCat(absl::StrJoin(left, " and "),
                      left.size() == 1 ? " has" : " have",
                      " not said yet that it is gone");
}

std::string EndedUnclaimedReason(const AttemptRecord& attempt,
                                 const NodeTable& nodes) {
  const std::string left = NotSaidGone(attempt, nodes);
  return absl::StrCat("a person has ended attempt ", attempt.id.ToHex(),
                      ", unclaimed since the store was restored",
                      left.empty() ? "" : "; ", left);
}

std::vector<NodeId> LostNodesOf(const AttemptRecord& attempt) {
  std::vector<NodeId> lost;
  for (const AttemptPart& part : attempt.parts) {
    if (part.phase == PartPhase::kLost) lost.push_back(part.node);
  }
  return lost;
}

}  // namespace cohort::head
