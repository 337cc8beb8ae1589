#include "trainer/reducer.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/check.h"
#include "common/random.h"
#include "common/testing/status_matchers.h"
#include "trainer/adam.h"
#include "trainer/comm/float16.h"
#include "trainer/comm/testing/gpu_world.h"
#include "trainer/comm/testing/ranks.h"
#include "trainer/finite.h"
#include "trainer/local_comm.h"
#include "trainer/loss_scaler.h"
#include "trainer/testing/thread_gang.h"

namespace cohort::trainer {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<size_t> Order(const Bucket& bucket) {
  std::vector<size_t> order;
  for (const BucketSlice& slice : bucket.slices) {
    order.push_back(slice.gradient);
  }
  return order;
}

template <typename T>
std::span<T> As(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

TEST(PlanBucketsTest, FillsFromTheLastGradientWithASmallFirstBucket) {
  const std::vector<GradientShape> shapes = {{"a", 100, DType::kF32},
                                             {"b", 100, DType::kF32},
                                             {"c", 100, DType::kF32},
                                             {"d", 100, DType::kF32},
                                             {"e", 10, DType::kF32}};
  const auto buckets = PlanBuckets(shapes, {.first = 400, .next = 900});
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_THAT(Order(buckets[0]), ElementsAre(4, 3));
  EXPECT_THAT(Order(buckets[1]), ElementsAre(2, 1, 0));
}

TEST(PlanBucketsTest, IsContiguousAndAligned) {
  const std::vector<GradientShape> shapes = {{"a", 1, DType::kF64},
                                             {"b", 17, DType::kF32},
                                             {"c", 3, DType::kF32},
                                             {"d", 1000, DType::kF32}};
  const auto buckets = PlanBuckets(shapes, {.first = 64, .next = 128});
  size_t end = 0;
  for (const Bucket& bucket : buckets) {
    EXPECT_EQ(bucket.offset, end);
    for (const BucketSlice& slice : bucket.slices) {
      EXPECT_EQ(slice.offset % 64, 0u);
      EXPECT_GE(slice.offset, end);
      end = (slice.offset + slice.bytes + 63) / 64 * 64;
    }
    EXPECT_EQ(bucket.bytes, end - bucket.offset);
  }
  EXPECT_EQ(buckets.back().dtype, DType::kF64);
}

TEST(ReducerTest, AveragesOverTheGangWithTheSameBitsOnEveryRank) {
  constexpr int kWorld = 3;
  std::vector<std::vector<float>> results(kWorld);
  RunThreadGang(kWorld, [&](Comm& comm) {
    auto reducer = GradientReducer::Create(
        comm, {{"w", 1001, DType::kF32}, {"b", 7, DType::kF64}},
        {.first_bucket_bytes = 64});
    COHORT_ASSERT_OK(reducer);
    for (int round = 0; round < 3; ++round) {
      (*reducer)->Clear();
      for (size_t i = 0; i < 1001; ++i) {
        As<float>((*reducer)->gradient(0))[i] =
            0.1f * static_cast<float>(i) + static_cast<float>(comm.rank());
      }
      for (double& value : As<double>((*reducer)->gradient(1))) {
        value = round + comm.rank();
      }
      COHORT_ASSERT_OK((*reducer)->Reduce());
      for (const double value : As<double>((*reducer)->gradient(1))) {
        EXPECT_DOUBLE_EQ(value, round + 1.0);
      }
    }
    const auto mean = As<float>((*reducer)->gradient(0));
    results[comm.rank()].assign(mean.begin(), mean.end());
  });
  for (size_t i = 0; i < 1001; ++i) {
    EXPECT_NEAR(results[0][i], 0.1f * static_cast<float>(i) + 1.0f, 1e-4);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

// RD-4: sums that depend on their order, in buckets of every size, also where a
// rank's part of a bucket ends in the middle of a gradient.
TEST(ReducerTest, GivesTheSameBitsHoweverBucketsAreCut) {
  constexpr int kWorld = 3;
  const std::vector<GradientShape> shapes = {{"a", 4099, DType::kF32},
                                             {"b", 70000, DType::kF32},
                                             {"c", 513, DType::kF16},
                                             {"d", 1, DType::kF32},
                                             {"e", 30001, DType::kF32}};
  const std::vector<BucketBytes> cuts = {
      {0, 0}, {1, 1}, {130000, 100000}, {size_t{1} << 20, size_t{25} << 20}};
  std::vector<size_t> buckets(cuts.size());
  std::vector<std::vector<std::byte>> results(cuts.size() * kWorld);
  for (size_t cut = 0; cut < cuts.size(); ++cut) {
    RunThreadGang(kWorld, [&](Comm& comm) {
      auto reducer =
          GradientReducer::Create(comm, shapes,
                                  {.first_bucket_bytes = cuts[cut].first,
                                   .bucket_bytes_max = cuts[cut].next});
      COHORT_ASSERT_OK(reducer);
      SeededRandom random(100 + comm.rank());
      for (size_t i = 0; i < shapes.size(); ++i) {
        const auto draw = [&random] {
          return static_cast<float>(2 * random.Double() - 1);
        };
        if (shapes[i].dtype == DType::kF16) {
          for (Float16& value : As<Float16>((*reducer)->gradient(i))) {
            value = ToFloat16(draw());
          }
        } else {
          for (float& value : As<float>((*reducer)->gradient(i))) {
            value = draw();
          }
        }
      }
      COHORT_ASSERT_OK((*reducer)->Reduce());
      std::vector<std::byte>& result = results[cut * kWorld + comm.rank()];
      for (size_t i = 0; i < shapes.size(); ++i) {
        const auto gradient = (*reducer)->gradient(i);
        result.insert(result.end(), gradient.begin(), gradient.end());
      }
      if (comm.rank() == 0) buckets[cut] = (*reducer)->buckets().size();
    });
  }
  // One for each run of a type where the communicator says; then one each.
  EXPECT_THAT(buckets, ElementsAre(3, 5, 4, 3));
  EXPECT_THAT(results, Each(results[0]));
}

// Mixed precision: 16-bit gradients of one scaled loss, f32 masters.
struct Trained {
  std::vector<float> masters;
  std::vector<uint16_t> rounded;

  friend bool operator==(const Trained&, const Trained&) = default;
};

Trained TrainInHalves(Comm& comm) {
  constexpr size_t kSize = 3001;
  auto reducer = GradientReducer::Create(comm, {{"w", kSize, DType::kF16}}, {});
  COHORT_CHECK(reducer.ok()) << reducer.status();
  std::vector<float> masters(kSize, 0.5f), exp_avg(kSize), exp_avg_sq(kSize);
  std::vector<Float16> rounded(kSize);
  auto scaler = LossScaler::Create();
  for (int step = 1; step <= 5; ++step) {
    const auto gradients = As<Float16>((*reducer)->gradient(0));
    for (size_t i = 0; i < kSize; ++i) {
      const float gradient =
          1e-7f * static_cast<float>((i + 7 * comm.rank() + step) % 1000);
      gradients[i] = ToFloat16(gradient * scaler->scale());
    }
    const absl::Status reduced = (*reducer)->Reduce();
    COHORT_CHECK(reduced.ok()) << reduced;
    const bool finite = AllFinite((*reducer)->buffers());
    EXPECT_TRUE(finite);
    COHORT_EXPECT_OK(scaler->Update(finite));
    AdamStep(AdamFactors<float>({}, step), scaler->inverse_scale(), gradients,
             masters, exp_avg, exp_avg_sq, std::span(rounded));
  }
  Trained trained{.masters = masters};
  for (const Float16 value : rounded) trained.rounded.push_back(value.bits);
  return trained;
}

TEST(ReducerTest, MastersStayBitEqualOverHalfPrecisionGradients) {
  std::vector<Trained> results(6);
  for (int run = 0; run < 2; ++run) {
    RunThreadGang(3, [&](Comm& comm) {
      results[3 * run + comm.rank()] = TrainInHalves(comm);
    });
  }
  EXPECT_THAT(results, Each(results[0]));
  EXPECT_NE(results[0].masters[500], 0.5f);
}

// The arena is the GPU's (which tests can read), reduced in place: by NCCL
// where each rank has a GPU, by a kernel where all share one.
class GpuReducerTest
    : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  static std::vector<int> Gpus() {
    const auto& [over, world] = GetParam();
    std::vector<int> gpus(world);
    if (over == "nccl") std::iota(gpus.begin(), gpus.end(), 0);
    return gpus;
  }
  // How many all-reduces the GPUs were given, as `rank` sees it: every rank
  // calls NCCL, one rank launches the kernel for all.
  static int Launches(GpuWorld& gang, int rank) {
    int launches = gang.nccl(rank).faults().Count("ncclAllReduce");
    for (int each = 0; each < gang.size(); ++each) {
      launches += gang.driver(each).faults().Count("cuLaunchKernel");
    }
    return launches;
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, GpuReducerTest,
                         ::testing::Combine(::testing::Values("nccl", "ipc"),
                                            ::testing::Range(1, 9)),
                         [](const auto& row) {
                           return absl::StrCat(std::get<0>(row.param), "x",
                                               std::get<1>(row.param));
                         });

TEST_P(GpuReducerTest, AveragesEachStepInPlace) {
  GpuWorld gang(Gpus());
  RunRanks(gang.size(), [&gang](int rank) {
    auto comm = gang.Join(rank);
    COHORT_ASSERT_OK(comm);
    auto reducer = GradientReducer::Create(**comm,
                                           {{"w", 3000, DType::kF32},
                                            {"h", 500, DType::kF16},
                                            {"b", 7, DType::kBF16}},
                                           {.first_bucket_bytes = 64});
    COHORT_ASSERT_OK(reducer);
    const float mean = static_cast<float>(gang.size() - 1) / 2;
    for (int step = 0; step < 4; ++step) {
      (*reducer)->Clear();
      const auto floats = As<float>((*reducer)->gradient(0));
      const auto halves = As<Float16>((*reducer)->gradient(1));
      EXPECT_EQ(floats[2999], 0.0f);
      for (float& value : floats) value = static_cast<float>(rank + step);
      for (Float16& value : halves) value = ToFloat16(static_cast<float>(rank));
      COHORT_ASSERT_OK((*reducer)->Reduce());
      if (gang.size() == 1) continue;
      EXPECT_EQ(floats[2999], mean + static_cast<float>(step));
      EXPECT_EQ(ToFloat(halves[499]), mean);
    }
    // Nothing was copied to or from the host.
    EXPECT_EQ(gang.driver(rank).faults().Count("cuMemcpyAsync"), 0);
  });
}

// RD-3: each bucket is reduced before the next one is written.
TEST_P(GpuReducerTest, ReducesABucketWhileTheNextOnesAreNotWritten) {
  GpuWorld gang(Gpus());
  gang.Run([&gang](int rank, GpuComm& comm) {
    auto reducer = GradientReducer::Create(
        comm,
        {{"a", 300, DType::kF16},
         {"b", 300, DType::kF32},
         {"c", 9, DType::kF32}},
        {.first_bucket_bytes = 16, .bucket_bytes_max = 16});
    COHORT_ASSERT_OK(reducer);
    ASSERT_EQ((*reducer)->buckets().size(), 3u);
    const float mean = static_cast<float>(gang.size() - 1) / 2;
    const auto write = [&](size_t bucket) {
      EXPECT_EQ(Launches(gang, rank),
                gang.size() == 1 ? 0 : static_cast<int>(bucket));
      const float value = static_cast<float>(rank);
      if (bucket == 2) {
        As<Float16>((*reducer)->gradient(0))[299] = ToFloat16(value);
      } else {
        As<float>((*reducer)->gradient(2 - bucket))[8] = value;
      }
      return absl::OkStatus();
    };
    COHORT_ASSERT_OK((*reducer)->ReduceAsReady(write));
    EXPECT_EQ(As<float>((*reducer)->gradient(2))[8], mean);
    EXPECT_EQ(As<float>((*reducer)->gradient(1))[8], mean);
    EXPECT_EQ(ToFloat(As<Float16>((*reducer)->gradient(0))[299]), mean);
  });
}

// What PyTorch's buckets are, unless the options say otherwise.
TEST(NcclReducerBucketsTest, AreTheCommunicatorsWhereOptionsSayNothing) {
  GpuWorld gang(2);
  gang.Run([](int, GpuComm& comm) {
    const std::vector<GradientShape> shapes = {
        {"a", size_t{8} << 20, DType::kF32},
        {"b", size_t{1} << 18, DType::kF32},
        {"c", size_t{1} << 18, DType::kF32}};
    const auto count = [&](const ReducerOptions& options) {
      auto reducer = GradientReducer::Create(comm, shapes, options);
      EXPECT_THAT(reducer, IsOk());
      return (*reducer)->buckets().size();
    };
    EXPECT_EQ(count({}), 2u);  // c has 1 MiB; b and a
    EXPECT_EQ(count({.bucket_bytes_max = 1024}), 3u);
    EXPECT_EQ(count({.first_bucket_bytes = size_t{100} << 20}), 1u);
  });
}

TEST(NcclReducerBucketsTest, RanksOfOneGpuHaveNoSmallFirstOne) {
  constexpr size_t kSmall = size_t{1} << 20, kLarge = size_t{25} << 20;
  GpuWorld one_gpu(std::vector<int>{0, 0});
  one_gpu.Run([](int, GpuComm& comm) {
    EXPECT_EQ(comm.bucket_bytes(), (BucketBytes{kLarge, kLarge}));
  });
  GpuWorld two_gpus(2);
  two_gpus.Run([](int, GpuComm& comm) {
    EXPECT_EQ(comm.bucket_bytes(), (BucketBytes{kSmall, kLarge}));
  });
}

TEST(NcclReducerFailureTest, EndsAtTheFirstBucketThatCannotBeAwaited) {
  GpuWorld gang(2);
  gang.Run([&gang](int rank, GpuComm& comm) {
    auto reducer = GradientReducer::Create(
        comm, {{"a", 300, DType::kF32}, {"b", 300, DType::kF32}},
        {.first_bucket_bytes = 16, .bucket_bytes_max = 16});
    COHORT_ASSERT_OK(reducer);
    const auto fail = [](size_t bucket) {
      return bucket == 0 ? absl::OkStatus()
                         : absl::UnavailableError("the GPU is lost");
    };
    EXPECT_THAT((*reducer)->ReduceAsReady(fail),
                StatusIs(absl::StatusCode::kUnavailable));
    EXPECT_EQ(gang.nccl(rank).faults().Count("ncclAllReduce"), 1);
  });
}

TEST(NcclReducerFailureTest, TellsAtReduceThatClearFailed) {
  GpuWorld gang(1);
  auto comm = gang.Join(0);
  COHORT_ASSERT_OK(comm);
  auto reducer = GradientReducer::Create(**comm, {{"w", 10, DType::kF32}}, {});
  COHORT_ASSERT_OK(reducer);
  gang.driver(0).faults().Fail("cuMemsetD8Async", cuda::kIllegalAddress);
  (*reducer)->Clear();
  EXPECT_THAT((*reducer)->Reduce(),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS")));
}

// On CPUs everything is there before anything is reduced.
TEST(ReducerTest, AwaitsAllBucketsOnCpus) {
  RunThreadGang(2, [](Comm& comm) {
    auto reducer = GradientReducer::Create(
        comm, {{"a", 30, DType::kF32}, {"b", 30, DType::kF32}},
        {.first_bucket_bytes = 16, .bucket_bytes_max = 16});
    COHORT_ASSERT_OK(reducer);
    const uint64_t before = comm.sequence();
    std::vector<size_t> awaited;
    COHORT_ASSERT_OK((*reducer)->ReduceAsReady([&](size_t bucket) {
      awaited.push_back(bucket);
      EXPECT_EQ(comm.sequence(), before);
      As<float>((*reducer)->gradient(1 - bucket))[7] =
          static_cast<float>(comm.rank());
      return absl::OkStatus();
    }));
    EXPECT_THAT(awaited, ElementsAre(0, 1));
    EXPECT_EQ(As<float>((*reducer)->gradient(0))[7], 0.5f);
    EXPECT_EQ(comm.sequence(), before + 1);
  });
}

TEST(ReducerTest, ClearsEverythingAndAlignsEachGradient) {
  LocalComm comm;
  auto reducer = GradientReducer::Create(
      comm, {{"a", 3, DType::kF32}, {"b", 5, DType::kF32}}, {});
  COHORT_ASSERT_OK(reducer);
  for (size_t i = 0; i < 2; ++i) {
    const auto gradient = As<float>((*reducer)->gradient(i));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(gradient.data()) % 64, 0u);
    for (float& value : gradient) value = 4;
  }
  COHORT_EXPECT_OK((*reducer)->Reduce());
  EXPECT_THAT(As<float>((*reducer)->gradient(0)), ElementsAre(4, 4, 4));
  (*reducer)->Clear();
  EXPECT_THAT(As<float>((*reducer)->gradient(1)), ElementsAre(0, 0, 0, 0, 0));
}

TEST(ReducerTest, RefusesGradientsThatHaveNoMean) {
  LocalComm comm;
  EXPECT_THAT(GradientReducer::Create(comm, {{"ids", 4, DType::kI64}}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ids")));
  EXPECT_THAT(GradientReducer::Create(comm, {{"none", 0, DType::kF32}}, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none")));
}

}  // namespace
}  // namespace cohort::trainer
