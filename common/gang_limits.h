#pragma once

namespace cohort {

// Ranks of one attempt on one node: the largest machines have 16 GPUs; a CPU
// rank a core on 64 cores is past what one attempt uses.  They share one arena
// (shm/arena_layout.h).
inline constexpr int kRanksPerNodeMax = 64;

}  // namespace cohort
