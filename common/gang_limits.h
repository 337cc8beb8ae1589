#pragma once

namespace cohort {

// Ranks on one node of an attempt whose ranks begin and end together: the
// largest machines have 16 GPUs; a CPU rank a core on 64 cores is past what one
// attempt uses.  They share one arena (shm/arena_layout.h).
inline constexpr int kRanksPerNodeMax = 64;

// The same of any attempt: as many processes as one keeper runs
// (worker/keeper/spec.h).
inline constexpr int kProcessesPerNodeMax = 1024;

}  // namespace cohort
