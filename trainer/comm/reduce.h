#pragma once

#include <cstddef>
#include <span>

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// One reduction: how elements of `sources`, one a rank and in rank order,
// become those of `destinations`.
struct Reduction {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::span<const std::byte* const> sources = {};
  // Each is one of the sources, at the same address, or overlaps none.
  std::span<std::byte* const> destinations = {};
  // Of so many values kAverage gives the mean, these being some of them; 0: it
  // is theirs.
  int mean_of = 0;
};

// Reduces elements [begin, end): ((source 0 op source 1) op source 2) ..., for
// kAverage divided by their number, or by mean_of, at the end; its sum is of
// values times a power of two, so that a mean is finite where they are.  The
// same bits on every machine and for any split into ranges: no reassociation
// and no fused multiply-add. Integer sums wrap; NaN wins over everything;
// 16-bit floats are combined in f32 and rounded once.
void Reduce(const Reduction& reduction, size_t begin, size_t end);

}  // namespace cohort::trainer
