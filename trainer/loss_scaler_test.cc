#include "trainer/loss_scaler.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/check.h"
#include "common/testing/status_matchers.h"
#include "trainer/comm/float16.h"
#include "trainer/comm/testing/gpu_world.h"
#include "trainer/finite.h"
#include "trainer/reducer.h"
#include "trainer/testing/thread_gang.h"

namespace cohort::trainer {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(LossScalerTest, DoublesAfterEnoughGoodStepsAndHalvesOnABadOne) {
  auto scaler = LossScaler::Create();
  COHORT_ASSERT_OK(scaler);
  EXPECT_EQ(scaler->scale(), 65536);
  EXPECT_EQ(scaler->inverse_scale(), 0x1.0p-16f);
  for (int step = 0; step < 1999; ++step) {
    COHORT_ASSERT_OK(scaler->Update(true));
  }
  EXPECT_EQ(scaler->scale(), 65536);
  COHORT_ASSERT_OK(scaler->Update(true));
  EXPECT_EQ(scaler->scale(), 131072);
  // A bad step begins the count anew.
  for (int step = 0; step < 1999; ++step) {
    COHORT_ASSERT_OK(scaler->Update(true));
  }
  COHORT_ASSERT_OK(scaler->Update(false));
  EXPECT_EQ(scaler->state(), (LossScalerState{65536, 0}));
  COHORT_ASSERT_OK(scaler->Update(true));
  EXPECT_EQ(scaler->state(), (LossScalerState{65536, 1}));
}

TEST(LossScalerTest, SaysThatItIsNotTheScaleWhenHalvingDoesNotHelp) {
  auto scaler = LossScaler::Create();
  COHORT_ASSERT_OK(scaler);
  for (int step = 0; step < 32; ++step) {
    COHORT_ASSERT_OK(scaler->Update(false));
  }
  EXPECT_EQ(scaler->scale(), kLossScaleMin);
  EXPECT_THAT(scaler->Update(false),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("NaN")));
  EXPECT_EQ(scaler->scale(), kLossScaleMin);
}

TEST(LossScalerTest, StaysWhereItsInverseIsANormalNumber) {
  auto scaler = LossScaler::Create(
      {.initial_scale = kLossScaleMax, .growth_interval = 1});
  COHORT_ASSERT_OK(scaler);
  COHORT_ASSERT_OK(scaler->Update(true));
  EXPECT_EQ(scaler->state(), (LossScalerState{kLossScaleMax, 0}));
  EXPECT_TRUE(std::isnormal(scaler->inverse_scale()));
}

// LS-2
TEST(LossScalerTest, GoesOnAsItWouldHaveFromItsState) {
  auto whole = LossScaler::Create({.growth_interval = 3});
  auto second = LossScaler::Create({.growth_interval = 3});
  COHORT_ASSERT_OK(whole);
  COHORT_ASSERT_OK(second);
  const std::vector<bool> verdicts = {true, true, false, true, true,
                                      true, true, true,  true, false};
  for (size_t step = 0; step < verdicts.size(); ++step) {
    if (step == 5) {
      COHORT_ASSERT_OK(second->Restore(whole->state()));
    }
    if (step >= 5) {
      COHORT_ASSERT_OK(second->Update(verdicts[step]));
    }
    COHORT_ASSERT_OK(whole->Update(verdicts[step]));
  }
  EXPECT_EQ(whole->state(), second->state());
}

TEST(LossScalerTest, RefusesOptionsAndStatesThatMakeNoSense) {
  for (const float scale : {0.0f, -1.0f, kInfinity, kNan, 1e-10f}) {
    EXPECT_THAT(LossScaler::Create({.initial_scale = scale}),
                StatusIs(absl::StatusCode::kInvalidArgument));
    auto scaler = LossScaler::Create();
    EXPECT_THAT(scaler->Restore({.scale = scale}),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(scaler->state(), LossScalerState{});
  }
  for (const float factor : {1.0f, 0.5f, kNan, kInfinity}) {
    EXPECT_THAT(LossScaler::Create({.growth_factor = factor}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("growth factor")));
  }
  for (const float factor : {0.0f, 1.0f, -0.5f, kNan}) {
    EXPECT_THAT(LossScaler::Create({.backoff_factor = factor}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("backoff factor")));
  }
  EXPECT_THAT(LossScaler::Create({.growth_interval = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(LossScaler::Create()->Restore({.good_steps = -1}),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

// LS-1: one rank alone has a value that is not finite, or values whose sum is
// not; all of them leave out the same steps.
constexpr int kSteps = 5;

float ValueOf(int rank, int step) {
  switch (step) {
    case 1:
      return rank == 1 ? kNan : 1;
    case 2:
      return rank == 0 ? kInfinity : 1;
    case 3:
      return rank == 0 ? kInfinity : -kInfinity;
    default:
      return static_cast<float>(rank);
  }
}

std::vector<bool> Verdicts(Comm& comm) {
  std::vector<bool> verdicts;
  auto scaler = LossScaler::Create();
  auto reducer = GradientReducer::Create(comm,
                                         {{"a", 1000, DType::kF32},
                                          {"b", 1000, DType::kF16},
                                          {"c", 1000, DType::kBF16}},
                                         {.first_bucket_bytes = 64});
  COHORT_CHECK(reducer.ok()) << reducer.status();
  for (int step = 0; step < kSteps * 3; ++step) {
    (*reducer)->Clear();
    const float value = ValueOf(comm.rank(), step / 3);
    std::byte* const at = (*reducer)->gradient(step % 3).data();
    if (step % 3 == 0) reinterpret_cast<float*>(at)[999] = value;
    if (step % 3 == 1) reinterpret_cast<Float16*>(at)[999] = ToFloat16(value);
    if (step % 3 == 2) reinterpret_cast<BFloat16*>(at)[999] = ToBFloat16(value);
    const absl::Status reduced = (*reducer)->Reduce();
    COHORT_CHECK(reduced.ok()) << reduced;
    verdicts.push_back(AllFinite((*reducer)->buffers()));
    const absl::Status updated = scaler->Update(verdicts.back());
    COHORT_CHECK(updated.ok()) << updated;
  }
  EXPECT_EQ(scaler->scale(), 65536.0f / 512);
  return verdicts;
}

const std::vector<bool>& ExpectedVerdicts() {
  static const auto& expected = *new std::vector<bool>{
      true,  true,  true,  false, false, false, false, false,
      false, false, false, false, true,  true,  true};
  return expected;
}

TEST(LossScalerTest, AllRanksLeaveOutTheSameStepsInSharedMemory) {
  std::vector<std::vector<bool>> verdicts(3);
  RunThreadGang(3, [&](Comm& comm) { verdicts[comm.rank()] = Verdicts(comm); });
  EXPECT_THAT(verdicts, Each(ExpectedVerdicts()));
}

TEST(LossScalerTest, AllRanksLeaveOutTheSameStepsOverNccl) {
  GpuWorld gang(2);
  std::vector<std::vector<bool>> verdicts(2);
  gang.Run([&](int rank, GpuComm& comm) { verdicts[rank] = Verdicts(comm); });
  EXPECT_THAT(verdicts, Each(ExpectedVerdicts()));
}

}  // namespace
}  // namespace cohort::trainer
