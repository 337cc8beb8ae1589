#include "examples/mlp/gpu_device.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "examples/mlp/testing/fake_gpu.h"
#include "examples/mlp/testing/kernel_cases.h"

namespace cohort::mlp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using trainer::DType;
using trainer::cuda::DriverTable;
using trainer::cuda::FakeDriver;

constexpr char kUuid[] = "GPU-01010101-0101-0101-0101-010101010101";

class GpuDevicePrecisionTest : public ::testing::TestWithParam<DType> {};

INSTANTIATE_TEST_SUITE_P(Types, GpuDevicePrecisionTest,
                         ::testing::Values(DType::kF32, DType::kF16,
                                           DType::kBF16),
                         [](const auto& test) {
                           return std::string(ToString(test.param));
                         });

TEST_P(GpuDevicePrecisionTest, RunsKernelsInOrderAndGivesEverythingBack) {
  FakeDriver driver;
  {
    auto gpu = OpenFakeGpu(driver);
    COHORT_ASSERT_OK(gpu);
    EXPECT_THAT((*gpu)->name(), HasSubstr(kUuid));
    CpuDevice cpu;
    EXPECT_EQ(KernelCases(**gpu, GetParam()).Run(),
              KernelCases(cpu, GetParam()).Run());
    EXPECT_GT(driver.device_bytes(), 0u);
  }
  EXPECT_EQ(driver.device_bytes(), 0u);
  EXPECT_EQ(driver.pinned_bytes(), 0u);
  EXPECT_EQ(driver.streams() + driver.events() + driver.modules(), 0);
  EXPECT_EQ(driver.contexts(), 0);
}

// The fake runs a kernel whatever its grid is.
TEST(GpuDeviceTest, GridsCoverTheirWork) {
  FakeDriver driver;
  AddKernels(driver);
  auto table = std::make_shared<DriverTable>(*driver.table());
  unsigned x = 0, y = 0, block = 0;
  table->cuLaunchKernel =
      [&](trainer::cuda::Function, unsigned grid_x, unsigned grid_y, unsigned,
          unsigned block_x, unsigned, unsigned, unsigned, trainer::cuda::Stream,
          void**, void**) -> trainer::cuda::Result {
    x = grid_x;
    y = grid_y;
    block = block_x;
    return trainer::cuda::kSuccess;
  };
  auto gpu = GpuDevice::Open(table, 0, FakeImage());
  COHORT_ASSERT_OK(gpu);
  COHORT_ASSERT_OK(
      (*gpu)->Launch(DType::kF32, ProductArgs{.m = 65, .n = 33, .depth = 1}));
  EXPECT_EQ(block, kThreads);
  EXPECT_EQ(x, 2u);  // columns of 33
  EXPECT_EQ(y, 3u);  // rows of 65
  COHORT_ASSERT_OK(
      (*gpu)->Launch(DType::kF32, ColumnSumArgs{.rows = 9, .columns = 257}));
  EXPECT_EQ(x, 2u);
  COHORT_ASSERT_OK(
      (*gpu)->Launch(DType::kF32, SoftmaxArgs{.rows = 256, .classes = 10}));
  EXPECT_EQ(x, 1u);
  AdamArgs adam{};
  adam.count = 1 << 20;
  COHORT_ASSERT_OK((*gpu)->Launch(DType::kF32, adam));
  EXPECT_EQ(x, 4096u);
  COHORT_ASSERT_OK((*gpu)->Launch(DType::kF32, NonFiniteArgs{.count = 513}));
  EXPECT_EQ(x, 3u);
  EXPECT_EQ(y, 1u);
}

TEST(GpuDeviceTest, SaysWhyItCannotBeOpened) {
  FakeDriver driver;
  EXPECT_THAT(GpuDevice::Open(driver.table(), 0, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("built without nvcc")));
  driver.faults().Fail("cuModuleLoadData", trainer::cuda::kNoBinaryForGpu);
  EXPECT_THAT(OpenFakeGpu(driver),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(kUuid), HasSubstr("kernels"))));
  FakeDriver none({.device_count = 0});
  EXPECT_THAT(OpenFakeGpu(none),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no GPU 0: 0 visible here")));
  EXPECT_EQ(driver.contexts(), 0);
}

TEST(GpuDeviceTest, NamesDeviceAndCallOfEveryFault) {
  for (const char* const call :
       {"cuMemAlloc", "cuMemsetD8Async", "cuMemHostAlloc", "cuMemcpyAsync",
        "cuEventRecord", "cuEventQuery", "cuModuleGetFunction",
        "cuLaunchKernel", "cuEventCreate"}) {
    FakeDriver driver;
    auto gpu = OpenFakeGpu(driver);
    COHORT_ASSERT_OK(gpu);
    driver.faults().FailAlways(call, trainer::cuda::kEccUncorrectable);
    const auto work = [&]() -> absl::Status {
      auto memory = (*gpu)->Allocate(64);
      if (!memory.ok()) return memory.status();
      std::vector<std::byte> bytes(64);
      if (auto done = (*gpu)->Upload(*memory, bytes); !done.ok()) return done;
      if (auto done = (*gpu)->Launch(
              DType::kF32,
              NonFiniteArgs{.values = *memory,
                            .found = reinterpret_cast<uint32_t*>(*memory + 32),
                            .count = 1});
          !done.ok()) {
        return done;
      }
      if (auto done = (*gpu)->Mark(0); !done.ok()) return done;
      return (*gpu)->Await(0);
    };
    EXPECT_THAT(work(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr(kUuid),
                               HasSubstr("CUDA_ERROR_ECC_UNCORRECTABLE"))))
        << call;
    driver.faults().Release();
  }
}

// A kernel that never ends holds nobody for ever.
TEST(GpuDeviceTest, WaitsOnlyAsLongAsItWasTold) {
  FakeDriver driver;
  auto gpu = OpenFakeGpu(driver, /*patience=*/absl::Milliseconds(20));
  COHORT_ASSERT_OK(gpu);
  driver.faults().FailAlways("cuEventQuery", trainer::cuda::kNotReady);
  COHORT_ASSERT_OK((*gpu)->Mark(3));
  EXPECT_THAT((*gpu)->Await(3),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(kUuid), HasSubstr("20ms"))));
  driver.faults().Release();
}

TEST(GpuDeviceTest, NamesAKernelThatIsNotThere) {
  FakeDriver driver;
  auto gpu = OpenFakeGpu(driver);
  COHORT_ASSERT_OK(gpu);
  EXPECT_THAT((*gpu)->Launch(DType::kF64, NonFiniteArgs{.count = 1}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("cohort_mlp_non_finite_f64")));
}

}  // namespace
}  // namespace cohort::mlp
