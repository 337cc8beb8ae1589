#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint.h"

namespace cohort::trainer {

// A file that one rank writes: some of a part's tensors.
struct CheckpointShare {
  std::string file;  // "model-00001-of-00002.safetensors"
  std::string part;
  std::vector<TensorView> tensors;
  TensorMetadata metadata;
};

// A part that is smaller is one file: it is written in a moment, and one is
// easier to handle.
inline constexpr size_t kSplitBytesMin = size_t{16} << 20;

// What `rank` of `world` writes of `files`.  Whole tensors, and whole parts of
// less than `split_bytes_min`, are dealt out so that all ranks write about as
// many bytes.  Pure: ranks that give the same names, types and shapes get
// shares that fit together.
std::vector<CheckpointShare> ShareOf(const std::vector<CheckpointFile>& files,
                                     int rank, int world,
                                     size_t split_bytes_min = kSplitBytesMin);

// Of what ranks must have alike for that: names, types and shapes of the parts
// that all ranks have.
uint64_t FingerprintOf(const std::vector<CheckpointFile>& files);

}  // namespace cohort::trainer
