#include "trainer/cuda/kernel_module.h"

#include <cstddef>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "trainer/cuda/testing/fake_driver.h"

namespace cohort::trainer::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::byte kImage[1] = {};

#if defined(COHORT_CUDA_TOOLKIT)
constexpr int kToolkit = COHORT_CUDA_TOOLKIT;
#else
constexpr int kToolkit = 0;
#endif

absl::Status Load(FakeDriver& driver) {
  return KernelModule::Load(driver.table(), kImage).status();
}

TEST(KernelModuleTest, ADriverOlderThanTheToolkitIsToldWithBothVersions) {
  if (kToolkit == 0) GTEST_SKIP() << "built without nvcc";
  FakeDriver driver({.version = kDriverVersionMin});
  for (const Result result :
       {kUnsupportedPtxVersion, kNoBinaryForGpu, kInvalidImage}) {
    driver.faults().Fail("cuModuleLoadData", result);
    EXPECT_THAT(Load(driver),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("built by CUDA " +
                                         DriverVersionText(kToolkit)),
                               HasSubstr("the driver is of CUDA 11.4"),
                               HasSubstr("update the driver"))));
  }
}

TEST(KernelModuleTest, AGpuThatKernelsAreNotForIsNoFaultOfTheDriver) {
  FakeDriver driver({.version = 99000});
  driver.faults().Fail("cuModuleLoadData", kNoBinaryForGpu);
  EXPECT_THAT(Load(driver),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("the driver is of CUDA 99.0"),
                             HasSubstr("compute capability 8.0"),
                             Not(HasSubstr("update")))));
}

TEST(KernelModuleTest, OtherFaultsAreWhatTheyAre) {
  FakeDriver driver;
  driver.faults().Fail("cuModuleLoadData", kOutOfMemory);
  EXPECT_THAT(Load(driver), StatusIs(absl::StatusCode::kResourceExhausted,
                                     Not(HasSubstr("built by"))));
  COHORT_EXPECT_OK(Load(driver));
  EXPECT_EQ(driver.modules(), 0);
}

}  // namespace
}  // namespace cohort::trainer::cuda
