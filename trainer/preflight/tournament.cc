#include "trainer/preflight/tournament.h"

#include <cstdint>

namespace cohort::trainer {

int RoundsOf(int world) {
  if (world < 2) return 0;
  return world % 2 == 0 ? world - 1 : world;
}

// Seats 0 to m - 1, with m odd, stand in a circle that turns: in round r those
// meet whose seats sum to r modulo m.  Who would meet itself meets the seat m,
// which an odd world does not have.
std::optional<int> PeerOf(int rank, int round, int world) {
  const int seats = RoundsOf(world);
  if (rank == seats) {
    // The one that meets itself: 2 s = round, and 2 has an inverse.
    return static_cast<int>(int64_t{round} * ((seats + 1) / 2) % seats);
  }
  const int peer = (round - rank + seats) % seats;
  if (peer != rank) return peer;
  if (world % 2 == 0) return seats;
  return std::nullopt;
}

}  // namespace cohort::trainer
