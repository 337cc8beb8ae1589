#include "trainer/sampler.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cohort::trainer {
namespace {

// torch.randperm below kDatasetSizeMax: Fisher-Yates from the front, 32-bit
// draws, the generator seeded with the low 32 bits.
std::vector<int64_t> EpochOrder(const SamplerOptions& options, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(options.dataset_size));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!options.shuffle) {
    return order;
  }
  std::mt19937 generator(
      static_cast<uint32_t>(options.seed + static_cast<uint64_t>(epoch)));
  const int64_t size = options.dataset_size;
  for (int64_t i = 0; i + 1 < size; ++i) {
    const int64_t jump = static_cast<int64_t>(generator()) % (size - i);
    std::swap(order[static_cast<size_t>(i)],
              order[static_cast<size_t>(i + jump)]);
  }
  return order;
}

// `count` brought to a multiple of `world`, as drop_last says.
int64_t EvenSize(int64_t count, int world, bool drop_last) {
  const int64_t whole = count / world;
  const bool uneven = count % world != 0;
  return (whole + (uneven && !drop_last ? 1 : 0)) * world;
}

}  // namespace

uint64_t MixSampleId(int64_t id) {
  uint64_t z = static_cast<uint64_t>(id) + 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

absl::StatusOr<DistributedSampler> DistributedSampler::Create(
    SamplerOptions options) {
  if (options.dataset_size < 1 || options.dataset_size > kDatasetSizeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a sampler needs between 1 and ", kDatasetSizeMax,
                     " samples, not ", options.dataset_size));
  }
  if (options.world < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a world of ", options.world, " ranks cannot sample"));
  }
  if (options.rank < 0 || options.rank >= options.world) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", options.rank, " is not in a world of ", options.world));
  }
  return DistributedSampler(options);
}

absl::Status DistributedSampler::StartEpoch(int64_t epoch, int64_t cursor) {
  const int64_t size = options_.dataset_size;
  if (epoch < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch ", epoch, " must not be negative"));
  }
  if (cursor < 0 || cursor > size) {
    return absl::InvalidArgumentError(
        absl::StrCat("cursor ", cursor, " is outside an epoch of ", size,
                     " samples: the checkpoint is of another dataset"));
  }
  const int64_t rest =
      EvenSize(size - cursor, options_.world, options_.drop_last);
  const std::vector<int64_t> order = EpochOrder(options_, epoch);
  const auto id_at = [&order, size](int64_t position) {
    return order[static_cast<size_t>(position % size)];
  };
  hash_ = 0;
  for (int64_t at = options_.rank; at < cursor; at += options_.world) {
    hash_ += MixSampleId(id_at(at));
  }
  mine_.clear();
  for (int64_t at = cursor + options_.rank; at < cursor + rest;
       at += options_.world) {
    // Padding repeats the epoch's first ids, as PyTorch does.
    mine_.push_back(id_at(at));
  }
  epoch_ = epoch;
  epoch_size_ = cursor + rest;
  start_ = cursor;
  taken_ = 0;
  return absl::OkStatus();
}

int64_t DistributedSampler::cursor() const {
  return std::min(start_ + taken_ * options_.world, options_.dataset_size);
}

std::span<const int64_t> DistributedSampler::Take(int64_t count) {
  const int64_t n = std::clamp<int64_t>(count, 0, remaining());
  const std::span<const int64_t> ids(mine_.data() + taken_,
                                     static_cast<size_t>(n));
  for (const int64_t id : ids) {
    hash_ += MixSampleId(id);
  }
  taken_ += n;
  return ids;
}

}  // namespace cohort::trainer
