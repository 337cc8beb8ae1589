#include "actor/this_rank.h"

#include <utility>

namespace cohort {
namespace {

thread_local const GroupRank* rank_here = nullptr;

GroupRank& ProcessRank() {
  static auto* const rank = new GroupRank;
  return *rank;
}

}  // namespace

const GroupRank& ThisRank() {
  return rank_here != nullptr ? *rank_here : ProcessRank();
}

namespace actor {

void SetThisRank(GroupRank rank) { ProcessRank() = std::move(rank); }

RankHere::RankHere(const GroupRank& rank)
    : before_(std::exchange(rank_here, &rank)) {}

RankHere::~RankHere() { rank_here = before_; }

}  // namespace actor
}  // namespace cohort
