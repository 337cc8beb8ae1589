#include "head/state/orphan_list.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "head/state/orphans.h"

namespace cohort::head {
namespace {

bool IsHere(const NodeTable& nodes, const NodeId& id) {
  const NodeRecord* node = nodes.Find(id);
  return node != nullptr && node->state == v1::NODE_STATE_ALIVE &&
         nodes.IsOffered(id);
}

ListedAttempt Listed(const ClusterState& state,
                     const OrphanTable::Entry& entry) {
  ListedAttempt listed{
      .attempt = entry.attempt, .job = entry.job, .since = entry.since};
  std::set<NodeId> away;
  for (const auto& [node, part] : entry.parts) {
    listed.nodes.push_back(node);
    if (!IsHere(state.nodes(), node)) away.insert(node);
  }
  listed.state = StateOf(entry, away);
  return listed;
}

std::vector<NodeId> LeftOf(const AttemptRecord& attempt) {
  std::vector<NodeId> left;
  std::set<NodeId> seen;
  for (const Process& process : attempt.processes) {
    if (!process.over() && seen.insert(process.node).second) {
      left.push_back(process.node);
    }
  }
  return left;
}

}  // namespace

std::vector<ListedAttempt> ListOrphans(const ClusterState& state, size_t most) {
  std::vector<ListedAttempt> all;
  for (const auto& [id, entry] : state.orphans().all()) {
    if (all.size() == most) return all;
    all.push_back(Listed(state, entry));
  }
  for (const AttemptId& id : state.attempts().ended_orphans()) {
    if (all.size() == most) return all;
    const AttemptRecord& attempt = *state.attempts().Find(id);
    all.push_back({.attempt = id,
                   .job = attempt.job,
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
      left.push_back(absl::StrCat(node->node.name(),
                                  IsHere(nodes, id) ? "" : ", which is away,"));
    }
  }
  if (left.empty()) return "";
  return absl::StrCat(absl::StrJoin(left, " and "),
                      left.size() == 1 ? " has" : " have",
                      " not said yet that it is gone");
}

std::string EndedOrphanReason(const AttemptRecord& attempt,
                              const NodeTable& nodes) {
  const std::string left = NotSaidGone(attempt, nodes);
  return absl::StrCat("a person has ended attempt ", attempt.id.ToHex(),
                      ", an orphan since the store was restored",
                      left.empty() ? "" : "; ", left);
}

std::vector<NodeId> LostNodesOf(const AttemptRecord& attempt) {
  std::vector<NodeId> lost;
  for (const Place& place : attempt.places) {
    if (place.phase == v1::PLACE_PHASE_LOST) lost.push_back(place.node);
  }
  return lost;
}

}  // namespace cohort::head
