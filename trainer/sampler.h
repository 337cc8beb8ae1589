#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::trainer {

struct SamplerOptions {
  int64_t dataset_size = 0;
  int world = 1;
  int rank = 0;
  uint64_t seed = 0;
  bool shuffle = true;
  // True: leave out the tail that does not divide evenly; false: repeat samples
  // from the front until it does.
  bool drop_last = false;
};

// PyTorch changes its shuffle above this size (2^32 / 20); we refuse instead of
// differing silently.
inline constexpr int64_t kDatasetSizeMax = 214748364;

// The 64-bit mix (splitmix64's) of a sample id.  Sums of it, modulo 2^64, do
// not depend on order, so the hashes of all ranks add up to that of the epoch.
uint64_t MixSampleId(int64_t id);

// Which samples a rank sees, in which order: bit-equal to PyTorch's
// torch.utils.data.DistributedSampler, and exact across a restart.
//
//   SA-1: without a cursor, the ids of an epoch equal PyTorch's for the same
//         size, world, rank, seed, epoch, shuffle and drop_last.
//   SA-2: an epoch started at cursor() goes on with the very ids that an
//         undisturbed one would have given, when the world is unchanged.
//   SA-3: with another world the rest of the epoch is strided again: every id
//         of the epoch is seen once over both parts, but for the padding.
//
// Thread-compatible.
class DistributedSampler {
 public:
  // InvalidArgument names the option that makes no sense.
  static absl::StatusOr<DistributedSampler> Create(SamplerOptions options);

  // Begins pass `epoch` behind the first `cursor` samples that the gang has
  // consumed of it.  InvalidArgument when the dataset has fewer samples or a
  // number is negative; unchanged on error.
  absl::Status StartEpoch(int64_t epoch, int64_t cursor = 0);

  // The next ids of this rank, at most `count`: fewer at the epoch's end, none
  // after it.  Valid until the next StartEpoch.
  std::span<const int64_t> Take(int64_t count);

  int64_t epoch() const { return epoch_; }
  // Samples of this epoch that the gang has consumed when every rank has taken
  // as many as this one, padding not counted: what a checkpoint keeps.
  int64_t cursor() const;
  int64_t remaining() const {
    return static_cast<int64_t>(mine_.size()) - taken_;
  }
  // What the gang consumes in this epoch, padding included.
  int64_t epoch_size() const { return epoch_size_; }
  // Sum of MixSampleId over the ids that this rank has consumed in the epoch;
  // of those before the cursor, it counts the ones of its own stride.
  uint64_t hash() const { return hash_; }

 private:
  explicit DistributedSampler(SamplerOptions options) : options_(options) {}

  SamplerOptions options_;
  std::vector<int64_t> mine_;  // this rank's ids behind start_
  int64_t epoch_ = 0;
  int64_t epoch_size_ = 0;
  int64_t start_ = 0;  // the cursor at StartEpoch
  int64_t taken_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace cohort::trainer
