#include "head/state/later_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::head {

void LaterStore::Note(const NodeId& node, std::string name, uint64_t term,
                      absl::Duration now) {
  std::erase_if(
      nodes_, [now](const auto& each) { return now - each.second.at > kKept; });
  if (nodes_.size() >= kNodesMax && !nodes_.contains(node)) return;
  nodes_[node] = {.name = std::move(name), .term = term, .at = now};
}

bool LaterStore::Follows(const NodeId& node, absl::Duration now) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && now - found->second.at <= kKept;
}

std::optional<LaterStore::Sight> LaterStore::Look(absl::Duration now) const {
  Sight sight;
  for (const auto& [id, node] : nodes_) {
    if (now - node.at > kKept) continue;
    sight.term = std::max(sight.term, node.term);
    sight.nodes.insert(id);
    sight.names.push_back(node.name);
  }
  if (sight.nodes.empty()) return std::nullopt;
  return sight;
}

std::string LaterStoreReason(const LaterStore::Sight& sight,
                             uint64_t our_term) {
  constexpr size_t kNamed = 3;
  const size_t nodes = sight.names.size();
  std::vector<std::string> named(
      sight.names.begin(),
      sight.names.begin() + static_cast<ptrdiff_t>(std::min(nodes, kNamed)));
  if (nodes > kNamed) named.push_back(absl::StrCat(nodes - kNamed, " more"));
  return absl::StrCat(
      absl::StrJoin(named, ", "), nodes == 1 ? " follows" : " follow",
      " a store of this cluster (term ", sight.term,
      ") that was restored later than this head's (term ", our_term,
      "), or that this head's is an older copy of, and ",
      nodes == 1 ? "refuses" : "refuse",
      " it: start the head on that one, or restore this one again");
}

}  // namespace cohort::head
