#include "actor/this_rank.h"

namespace cohort {
namespace {

GroupRank& ProcessRank() {
  static auto* const rank = new GroupRank;
  return *rank;
}

}  // namespace

const GroupRank& ThisRank() { return ProcessRank(); }

namespace actor {

void SetThisRank(GroupRank rank) { ProcessRank() = std::move(rank); }

}  // namespace actor
}  // namespace cohort
