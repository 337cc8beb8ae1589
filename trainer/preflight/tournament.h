#pragma once

#include <optional>

namespace cohort::trainer {

// Who is tried with whom: rounds of disjoint pairs in which everyone meets
// everyone once (the circle method of round-robin tournaments).  Pure.

// n - 1 rounds for an even world, n for an odd one; 0 for a world of one.
int RoundsOf(int world);

// The peer of `rank` in `round`; none when it sits out.  REQUIRES: 0 <= rank <
// world, 0 <= round < RoundsOf(world).
std::optional<int> PeerOf(int rank, int round, int world);

}  // namespace cohort::trainer
