#include "trainer/pinned_memory.h"

#include <memory>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "trainer/cuda/testing/fake_driver.h"

namespace cohort::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kUuid[] = "GPU-01010101-0101-0101-0101-010101010101";

class PinnedMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = cuda::Device::Open(driver_.table(), 0);
    COHORT_ASSERT_OK(device);
    device_ = *std::move(device);
    memory_ = std::make_unique<PinnedMemory>(*device_, [this] {
      ++awaited_;
      EXPECT_EQ(driver_.pinned_bytes(), pinned_when_awaited_);
      return copies_;
    });
  }

  cuda::FakeDriver driver_;
  std::unique_ptr<cuda::Device> device_;
  std::unique_ptr<PinnedMemory> memory_;
  size_t pinned_when_awaited_ = 0;
  absl::Status copies_;  // what waiting for them says
  int awaited_ = 0;
};

TEST_F(PinnedMemoryTest, PinsOnALoadersThread) {
  std::thread loader([this] {
    const auto memory = memory_->Allocate(1000);
    COHORT_ASSERT_OK(memory);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*memory) % 64, 0u);
    EXPECT_EQ(driver_.pinned_bytes(), 1000u);
    pinned_when_awaited_ = 1000;
    memory_->Free(*memory);
  });
  loader.join();
  EXPECT_EQ(awaited_, 1);
  EXPECT_EQ(driver_.pinned_bytes(), 0u);
}

// PM-1
TEST_F(PinnedMemoryTest, GivesNothingBackThatACopyMayStillRead) {
  const auto memory = memory_->Allocate(64);
  COHORT_ASSERT_OK(memory);
  pinned_when_awaited_ = 64;
  copies_ = absl::DeadlineExceededError("an upload: not over");
  memory_->Free(*memory);
  EXPECT_EQ(driver_.pinned_bytes(), 64u);
  EXPECT_EQ(driver_.faults().Count("cuMemFreeHost"), 0);
}

TEST_F(PinnedMemoryTest, TakesOtherMemoryWhenNoMoreCanBePinnedAndSaysSoOnce) {
  driver_.faults().FailAlways("cuMemHostAlloc", cuda::kOutOfMemory);
  ::testing::internal::CaptureStderr();
  const auto first = memory_->Allocate(64);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("batches_not_pinned"), HasSubstr(kUuid),
                    HasSubstr("cuMemHostAlloc of 64 bytes"),
                    HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")));
  ::testing::internal::CaptureStderr();
  const auto second = memory_->Allocate(64);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  COHORT_ASSERT_OK(first);
  COHORT_ASSERT_OK(second);
  memory_->Free(*first);
  memory_->Free(*second);
  EXPECT_EQ(awaited_, 2);
  EXPECT_EQ(driver_.faults().Count("cuMemFreeHost"), 0);
}

TEST_F(PinnedMemoryTest, NamesDeviceAndCallOfOtherFaults) {
  for (const char* const call : {"cuCtxSetCurrent", "cuMemHostAlloc"}) {
    driver_.faults().Fail(call, cuda::kEccUncorrectable);
    EXPECT_THAT(memory_->Allocate(64),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr(kUuid), HasSubstr(call))));
  }
}

}  // namespace
}  // namespace cohort::trainer
