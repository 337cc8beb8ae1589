#include "trainer/sampler.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int64_t> TakeAll(DistributedSampler& sampler, int64_t step = 7) {
  std::vector<int64_t> all;
  for (;;) {
    const auto ids = sampler.Take(step);
    if (ids.empty()) return all;
    all.insert(all.end(), ids.begin(), ids.end());
  }
}

DistributedSampler Make(SamplerOptions options) {
  return DistributedSampler::Create(options).value();
}

std::vector<int64_t> Epoch(SamplerOptions options, int64_t epoch) {
  DistributedSampler sampler = Make(options);
  EXPECT_TRUE(sampler.StartEpoch(epoch).ok());
  return TakeAll(sampler);
}

// FNV-1a over the ids as little-endian 64-bit numbers.
uint64_t Fingerprint(const std::vector<int64_t>& ids) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const int64_t id : ids) {
    for (int shift = 0; shift < 64; shift += 8) {
      hash ^= (static_cast<uint64_t>(id) >> shift) & 0xff;
      hash *= 0x100000001b3ULL;
    }
  }
  return hash;
}

// Golden values of these tests: list(DistributedSampler(...)) after
// set_epoch(epoch), PyTorch 1.13 of Debian 12 (torch.utils.data).
TEST(SamplerTest, EqualsPyTorchOnSmallShuffledEpochs) {
  EXPECT_THAT(Epoch({.dataset_size = 10}, 0),
              ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(Epoch({.dataset_size = 10, .world = 3, .rank = 0}, 0),
              ElementsAre(4, 5, 0, 2));
  EXPECT_THAT(Epoch({.dataset_size = 10, .world = 3, .rank = 1}, 0),
              ElementsAre(1, 3, 8, 4));
  EXPECT_THAT(Epoch({.dataset_size = 10, .world = 3, .rank = 2}, 0),
              ElementsAre(7, 9, 6, 1));
  EXPECT_THAT(Epoch({.dataset_size = 17, .world = 2, .rank = 1, .seed = 42}, 7),
              ElementsAre(14, 12, 0, 2, 1, 8, 7, 9, 5));
}

TEST(SamplerTest, DropsTheTailAsPyTorchDoes) {
  EXPECT_THAT(
      Epoch({.dataset_size = 10, .world = 3, .rank = 2, .drop_last = true}, 0),
      ElementsAre(7, 9, 6));
  EXPECT_THAT(Epoch({.dataset_size = 10,
                     .world = 3,
                     .rank = 2,
                     .shuffle = false,
                     .drop_last = true},
                    0),
              ElementsAre(2, 5, 8));
  EXPECT_THAT(
      Epoch({.dataset_size = 3, .world = 8, .rank = 1, .drop_last = true}, 0),
      IsEmpty());
}

TEST(SamplerTest, PadsAsPyTorchDoesAlsoWhenTheWorldIsLarger) {
  EXPECT_THAT(
      Epoch({.dataset_size = 10, .world = 3, .rank = 0, .shuffle = false}, 0),
      ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(
      Epoch({.dataset_size = 10, .world = 3, .rank = 2, .shuffle = false}, 0),
      ElementsAre(2, 5, 8, 1));
  EXPECT_THAT(Epoch({.dataset_size = 3, .world = 8, .rank = 7, .seed = 5}, 2),
              ElementsAre(1));
  EXPECT_THAT(Epoch({.dataset_size = 2, .world = 5, .rank = 4, .seed = 9}, 1),
              ElementsAre(1));
  EXPECT_THAT(Epoch({.dataset_size = 1, .world = 4, .rank = 3}, 0),
              ElementsAre(0));
}

TEST(SamplerTest, EqualsPyTorchOnLargeEpochsAndSeedsOverThirtyTwoBits) {
  EXPECT_EQ(Fingerprint(Epoch({.dataset_size = 60000, .world = 2}, 0)),
            0xc3d02354f99cfd5aULL);
  EXPECT_EQ(
      Fingerprint(Epoch({.dataset_size = 60000, .world = 2, .rank = 1}, 0)),
      0xae2b1c04b583f246ULL);
  EXPECT_EQ(
      Fingerprint(Epoch(
          {.dataset_size = 60000, .world = 2, .rank = 1, .seed = 1234}, 2)),
      0x2a4a17c9a0e2dd08ULL);
  EXPECT_EQ(Fingerprint(Epoch(
                {.dataset_size = 1000, .seed = (uint64_t{1} << 32) + 5}, 0)),
            0x55fe06d97c52a10dULL);
  EXPECT_EQ(Fingerprint(
                Epoch({.dataset_size = 100000, .seed = uint64_t{1} << 40}, 3)),
            0xa95a4dc0c123776dULL);
}

// SA-2
TEST(SamplerTest, GoesOnFromAnyCursorAsIfUndisturbed) {
  for (const bool drop_last : {false, true}) {
    for (const int64_t size : {1, 2, 5, 23, 24}) {
      for (int rank = 0; rank < 3; ++rank) {
        const SamplerOptions options{.dataset_size = size,
                                     .world = 3,
                                     .rank = rank,
                                     .seed = 8,
                                     .drop_last = drop_last};
        DistributedSampler whole = Make(options);
        ASSERT_TRUE(whole.StartEpoch(4).ok());
        while (whole.remaining() > 0) {
          whole.Take(1);
          DistributedSampler resumed = Make(options);
          ASSERT_TRUE(resumed.StartEpoch(4, whole.cursor()).ok());
          EXPECT_EQ(resumed.cursor(), whole.cursor());
          if (whole.remaining() > 0) {
            EXPECT_EQ(resumed.hash(), whole.hash());
          }
          DistributedSampler rest = whole;
          EXPECT_EQ(TakeAll(resumed), TakeAll(rest));
        }
      }
    }
  }
}

// SA-3
TEST(SamplerTest, SeesEachIdOnceWhenTheWorldChangesInTheMiddle) {
  std::map<int64_t, int> seen;
  int64_t cursor = 0;
  for (int rank = 0; rank < 4; ++rank) {
    DistributedSampler sampler =
        Make({.dataset_size = 61, .world = 4, .rank = rank, .seed = 3});
    ASSERT_TRUE(sampler.StartEpoch(1).ok());
    for (const int64_t id : sampler.Take(5)) ++seen[id];
    cursor = sampler.cursor();
  }
  EXPECT_EQ(cursor, 20);
  for (int rank = 0; rank < 3; ++rank) {
    DistributedSampler sampler = Make({.dataset_size = 61,
                                       .world = 3,
                                       .rank = rank,
                                       .seed = 3,
                                       .drop_last = true});
    ASSERT_TRUE(sampler.StartEpoch(1, cursor).ok());
    for (const int64_t id : TakeAll(sampler)) ++seen[id];
  }
  EXPECT_EQ(seen.size(), 59u);  // 41 left over, 2 of them dropped
  for (const auto& [id, times] : seen) {
    EXPECT_EQ(times, 1) << "sample " << id;
  }
}

TEST(SamplerTest, HashesOfAllRanksAddUpToTheEpoch) {
  uint64_t all = 0;
  for (int64_t id = 0; id < 1000; ++id) all += MixSampleId(id);
  uint64_t ranks = 0;
  for (int rank = 0; rank < 4; ++rank) {
    DistributedSampler sampler =
        Make({.dataset_size = 1000, .world = 4, .rank = rank, .seed = 1});
    ASSERT_TRUE(sampler.StartEpoch(0).ok());
    TakeAll(sampler);
    ranks += sampler.hash();
  }
  EXPECT_EQ(ranks, all);
}

TEST(SamplerTest, RefusesOptionsAndCursorsThatMakeNoSense) {
  const auto code = [](SamplerOptions options) {
    return DistributedSampler::Create(options).status().code();
  };
  EXPECT_EQ(code({.dataset_size = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.dataset_size = kDatasetSizeMax + 1}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.dataset_size = 9, .world = 0}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.dataset_size = 9, .world = 2, .rank = 2}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.dataset_size = 9, .world = 2, .rank = -1}),
            absl::StatusCode::kInvalidArgument);

  DistributedSampler sampler = Make({.dataset_size = 9});
  ASSERT_TRUE(sampler.StartEpoch(1).ok());
  sampler.Take(2);
  EXPECT_FALSE(sampler.StartEpoch(1, 10).ok());
  EXPECT_FALSE(sampler.StartEpoch(1, -1).ok());
  EXPECT_FALSE(sampler.StartEpoch(-1).ok());
  EXPECT_EQ(sampler.cursor(), 2);  // unchanged by what was refused
}

}  // namespace
}  // namespace cohort::trainer
