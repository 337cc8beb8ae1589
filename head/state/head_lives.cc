#include "head/state/head_lives.h"

#include <algorithm>
#include <vector>

namespace cohort::head {
namespace {

void ForgetOne(const NodeTable& nodes,
               google::protobuf::RepeatedPtrField<HeadLife>& lives) {
  std::vector<bool> followed(static_cast<size_t>(lives.size()));
  for (const auto& [id, node] : nodes.records()) {
    const auto next =
        std::upper_bound(lives.begin(), lives.end(), node.node.incarnation(),
                         [](uint64_t incarnation, const HeadLife& life) {
                           return incarnation < life.first_incarnation();
                         });
    if (next == lives.begin()) continue;  // of one that is forgotten
    followed[static_cast<size_t>(next - lives.begin()) - 1] = true;
  }
  const auto idle = std::find(followed.begin(), followed.end(), false);
  lives.erase(lives.begin() +
              (idle == followed.end() ? 0 : idle - followed.begin()));
}

}  // namespace

void BeginLife(uint64_t nonce, const NodeTable& nodes, ClusterRecord& cluster) {
  auto& lives = *cluster.mutable_lives();
  if (lives.size() >= kHeadLivesMax) ForgetOne(nodes, lives);
  HeadLife& life = *lives.Add();
  life.set_term(cluster.term());
  life.set_nonce(nonce);
  life.set_first_incarnation(cluster.next_incarnation());
}

bool KnowsLife(const ClusterRecord& cluster, uint64_t term, uint64_t nonce) {
  return std::any_of(cluster.lives().begin(), cluster.lives().end(),
                     [term, nonce](const HeadLife& life) {
                       return life.term() == term && life.nonce() == nonce;
                     });
}

}  // namespace cohort::head
