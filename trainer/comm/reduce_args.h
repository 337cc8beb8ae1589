#pragma once

// The argument of every kernel in reduce.cu; also compiled by nvcc.

#include <cstdint>

namespace cohort::trainer {

// Ranks of one GPU; the argument stays below a kernel's 4 KiB.
inline constexpr uint32_t kReduceRanksMax = 64;

struct ReduceArgs {
  // First elements.  A destination is one of the sources or overlaps none.
  const void* source[kReduceRanksMax];
  void* destination[kReduceRanksMax];
  uint64_t count;  // elements
  uint32_t sources;
  uint32_t destinations;
  uint32_t divisor;     // 1: none; floating point only
  uint32_t is_aligned;  // every pointer is a multiple of 16 bytes
};
static_assert(sizeof(ReduceArgs) == 2 * 64 * 8 + 24);

}  // namespace cohort::trainer
