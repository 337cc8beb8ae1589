#include "actor/this_rank.h"

namespace cohort {
namespace {

GroupRank& Rank() {
  static auto* const rank = new GroupRank;
  return *rank;
}

}  // namespace

const GroupRank& ThisRank() { return Rank(); }

namespace actor {

void SetThisRank(GroupRank rank) { Rank() = std::move(rank); }

}  // namespace actor
}  // namespace cohort
