#pragma once

// The argument of every kernel in reduce.cu; also compiled by nvcc.

#include <cstdint>

namespace cohort::trainer {

// Ranks of one GPU; the argument stays far below a kernel's 4 KiB.
inline constexpr uint32_t kReduceRanksMax = 64;

struct ReduceArgs {
  void* rank[kReduceRanksMax];  // the range's first element, by rank
  uint64_t count;               // elements
  uint32_t world;
  uint32_t is_aligned;  // every rank's pointer is a multiple of 16 bytes
};
static_assert(sizeof(ReduceArgs) == 64 * 8 + 16);

}  // namespace cohort::trainer
