#pragma once

#include <array>
#include <cstdint>

#include "head/store/records.h"

namespace cohort::head {

// What people are told of a node: what the head hears of it and what a person
// wants of it, in one word.
enum class ShownNodeState : uint8_t {
  kAlive = 1,
  kSuspect = 2,
  kDraining = 3,  // takes no new work; something is left there
  kDrained = 4,   // takes no new work; nothing is left there
  kDead = 5,
  kUnfit = 6,  // takes no new work, because it could not begin it
  // Takes no new work: this head has not heard of it yet, or its daemon goes.
  kAbsent = 7,
};

inline constexpr std::array<ShownNodeState, 7> kShownNodeStates = {
    ShownNodeState::kAlive,    ShownNodeState::kUnfit,
    ShownNodeState::kAbsent,   ShownNodeState::kSuspect,
    ShownNodeState::kDraining, ShownNodeState::kDrained,
    ShownNodeState::kDead};

// That it cannot be heard comes first: a drained node that is dead is DEAD, its
// drain is still in the record.  Then what a person wants, then what it says of
// itself.  `empty`: it holds nothing, orphans included.  A pure function of the
// row: that a node is ABSENT only a running head knows (NodeTable::ShownState).
ShownNodeState ShownStateOf(const NodeRecord& node, bool empty);

// DRAINING, as text.
const char* ShownNodeStateName(ShownNodeState state);

}  // namespace cohort::head
