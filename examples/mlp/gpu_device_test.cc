#include "examples/mlp/gpu_device.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "examples/mlp/testing/fake_gpu.h"
#include "examples/mlp/testing/kernel_cases.h"
#include "trainer/cuda/call_watch.h"

namespace cohort::mlp {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
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
        "cuLaunchKernel", "cuEventCreate", "cuStreamWaitEvent"}) {
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
      if (auto done = (*gpu)->Await(0, nullptr); !done.ok()) return done;
      return (*gpu)->JoinUploads();
    };
    EXPECT_THAT(work(),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr(kUuid),
                               HasSubstr("CUDA_ERROR_ECC_UNCORRECTABLE"))))
        << call;
    driver.faults().Release();
  }
}

TEST(GpuDeviceTest, NamesDeviceAndCallOfAnUploadsFault) {
  for (const char* const call :
       {"cuStreamWaitEvent", "cuMemcpyAsync", "cuEventRecord"}) {
    const std::vector<std::byte> bytes(64);
    FakeDriver driver;
    auto gpu = OpenFakeGpu(driver);
    COHORT_ASSERT_OK(gpu);
    auto memory = (*gpu)->Allocate(64);
    COHORT_ASSERT_OK(memory);
    COHORT_ASSERT_OK((*gpu)->Mark(0));
    driver.faults().Fail(call, trainer::cuda::kEccUncorrectable);
    const Device::Copy copy = {*memory, bytes};
    EXPECT_THAT((*gpu)->BeginUploads(std::span(&copy, 1), 0),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr(kUuid), HasSubstr(std::string(call) +
                                                           " of an upload"))));
  }
}

// PM-1 where an upload fails when its copy is under way.
TEST(GpuDeviceTest, MemoryOfAnUploadWhoseEndNothingMarksIsNotGivenBack) {
  FakeDriver driver;
  auto gpu = OpenFakeGpu(driver);
  COHORT_ASSERT_OK(gpu);
  auto memory = (*gpu)->Allocate(64);
  COHORT_ASSERT_OK(memory);
  trainer::BatchMemory& source = (*gpu)->batch_memory();
  trainer::BatchBlock batch(*source.Allocate(64), {&source});
  const Device::Copy copy = {*memory, {batch.get(), 64}};
  driver.faults().Fail("cuEventRecord", trainer::cuda::kEccUncorrectable);
  EXPECT_THAT((*gpu)->BeginUploads(std::span(&copy, 1), 0),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT((*gpu)->AwaitUploads(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr(kUuid)));
  batch.reset();
  EXPECT_EQ(driver.pinned_bytes(), 64u);
}

// The event is set behind the copies before the one that fails.
TEST(GpuDeviceTest, AwaitsTheCopiesOfAnUploadThatFailsHalfWay) {
  FakeDriver driver;
  auto table = std::make_shared<DriverTable>(*driver.table());
  int copies = 0;
  table->cuMemcpyAsync = [&, real = driver.table()](auto to, auto from,
                                                    size_t bytes, auto stream) {
    return ++copies == 2 ? trainer::cuda::kEccUncorrectable
                         : real->cuMemcpyAsync(to, from, bytes, stream);
  };
  AddKernels(driver);
  auto gpu = GpuDevice::Open(table, 0, FakeImage(), absl::Seconds(10));
  COHORT_ASSERT_OK(gpu);
  auto memory = (*gpu)->Allocate(128);
  COHORT_ASSERT_OK(memory);
  {
    const std::vector<std::byte> first(64, std::byte{7}), second(64);
    const Device::Copy both[] = {{*memory, first}, {*memory + 64, second}};
    EXPECT_THAT((*gpu)->BeginUploads(both, 0),
                StatusIs(absl::StatusCode::kUnavailable));
    COHORT_EXPECT_OK((*gpu)->AwaitUploads());
  }
  EXPECT_EQ(**memory, std::byte{7});
}

// What streams are given, in order.  Streams and events are named by the order
// in which they were made: the kernels' and the uploads', the staging's event
// and the uploads'.
class StreamLog {
 public:
  explicit StreamLog(FakeDriver& driver)
      : table_(std::make_shared<DriverTable>(*driver.table())) {
    const auto& real = driver.table();
    table_->cuStreamCreate = [this, real](trainer::cuda::Stream* stream,
                                          unsigned flags) {
      const auto made = real->cuStreamCreate(stream, flags);
      streams_.push_back(*stream);
      return made;
    };
    table_->cuEventCreate = [this, real](trainer::cuda::Event* event,
                                         unsigned flags) {
      const auto made = real->cuEventCreate(event, flags);
      events_.push_back(*event);
      return made;
    };
    table_->cuStreamWaitEvent = [this, real](trainer::cuda::Stream stream,
                                             trainer::cuda::Event event,
                                             unsigned flags) {
      Add("wait", stream, Name("event", events_, event));
      return real->cuStreamWaitEvent(stream, event, flags);
    };
    table_->cuEventRecord = [this, real](trainer::cuda::Event event,
                                         trainer::cuda::Stream stream) {
      Add("record", stream, Name("event", events_, event));
      return real->cuEventRecord(event, stream);
    };
    table_->cuMemcpyAsync = [this, real](trainer::cuda::DevicePointer to,
                                         trainer::cuda::DevicePointer from,
                                         size_t bytes,
                                         trainer::cuda::Stream stream) {
      Add("copy", stream, std::to_string(bytes));
      return real->cuMemcpyAsync(to, from, bytes, stream);
    };
    table_->cuLaunchKernel = [this, real](auto function, auto... rest) {
      const auto all = std::tuple(rest...);
      Add("kernel", std::get<7>(all), "");
      return real->cuLaunchKernel(function, rest...);
    };
  }

  std::shared_ptr<const DriverTable> table() const { return table_; }
  trainer::cuda::Stream uploads() const { return streams_.at(1); }
  std::vector<std::string> Take() { return std::exchange(calls_, {}); }

 private:
  template <typename T>
  static std::string Name(const char* kind, const std::vector<T>& made,
                          T handle) {
    const auto found = std::find(made.begin(), made.end(), handle);
    return absl::StrCat(kind, " ", found - made.begin());
  }
  void Add(const char* call, trainer::cuda::Stream stream,
           const std::string& what) {
    calls_.push_back(absl::StrCat(Name("stream", streams_, stream), ": ", call,
                                  what.empty() ? "" : " ", what));
  }

  const std::shared_ptr<DriverTable> table_;
  std::vector<trainer::cuda::Stream> streams_;
  std::vector<trainer::cuda::Event> events_;
  std::vector<std::string> calls_;
};

TEST(GpuDeviceTest, UploadsRunBesideKernelsBehindTheMarkAndAheadOfTheJoin) {
  FakeDriver driver;
  AddKernels(driver);
  StreamLog log(driver);
  auto gpu = GpuDevice::Open(log.table(), 0, FakeImage());
  COHORT_ASSERT_OK(gpu);
  auto memory = (*gpu)->Allocate(128);
  COHORT_ASSERT_OK(memory);
  EXPECT_THAT(log.Take(),
              ElementsAre("stream 0: record event 0", "stream 1: wait event 0"))
      << "behind the zeroes";
  const trainer::BatchBlock batch(*(*gpu)->batch_memory().Allocate(96),
                                  {&(*gpu)->batch_memory()});
  std::fill_n(batch.get(), 96, std::byte{7});
  const Device::Copy copies[] = {{*memory, {batch.get(), 64}},
                                 {*memory + 64, {batch.get() + 64, 32}}};
  COHORT_ASSERT_OK((*gpu)->BeginUploads(copies, /*behind=*/0));
  EXPECT_THAT(log.Take(), ElementsAre("stream 1: copy 64", "stream 1: copy 32",
                                      "stream 1: record event 1"))
      << "nothing was marked";
  COHORT_ASSERT_OK((*gpu)->JoinUploads());
  COHORT_ASSERT_OK((*gpu)->Launch(
      DType::kF32,
      NonFiniteArgs{.values = *memory,
                    .found = reinterpret_cast<uint32_t*>(*memory + 96),
                    .count = 24}));
  COHORT_ASSERT_OK((*gpu)->Mark(0));
  COHORT_ASSERT_OK((*gpu)->AwaitUploads());
  COHORT_ASSERT_OK((*gpu)->BeginUploads(copies, /*behind=*/0));
  EXPECT_THAT(log.Take(),
              ElementsAre("stream 0: wait event 1", "stream 0: kernel",
                          "stream 0: record event 2", "stream 1: wait event 2",
                          "stream 1: copy 64", "stream 1: copy 32",
                          "stream 1: record event 1"));
  std::vector<std::byte> bytes(96);
  COHORT_ASSERT_OK((*gpu)->JoinUploads());
  COHORT_ASSERT_OK((*gpu)->Download(bytes, *memory));
  EXPECT_THAT(bytes, Each(std::byte{7}));
}

// PM-1, and nothing waits for ever, nor twice.
TEST(GpuDeviceTest, MemoryThatAnUploadReadsIsNotGivenBack) {
  FakeDriver driver;
  StreamLog log(driver);
  std::atomic<bool> go{false};
  {
    auto gpu = GpuDevice::Open(log.table(), 0, FakeImage(),
                               /*patience=*/absl::Milliseconds(20));
    COHORT_ASSERT_OK(gpu);
    auto memory = (*gpu)->Allocate(64);
    COHORT_ASSERT_OK(memory);
    trainer::BatchMemory& source = (*gpu)->batch_memory();
    trainer::BatchBlock batch(*source.Allocate(64), {&source});
    const Device::Copy copy = {*memory, {batch.get(), 64}};
    FakeDriver::Enqueue(log.uploads(), [&go] { go.wait(false); });
    COHORT_ASSERT_OK((*gpu)->BeginUploads(std::span(&copy, 1), 0));
    const auto late = StatusIs(
        absl::StatusCode::kDeadlineExceeded,
        AllOf(HasSubstr(kUuid), HasSubstr("an upload"), HasSubstr("20ms")));
    EXPECT_THAT((*gpu)->AwaitUploads(), late);
    batch.reset();
    EXPECT_EQ(driver.pinned_bytes(), 64u);
    // A new one is given back once all copies are over.
    trainer::BatchBlock other(*source.Allocate(100), {&source});
    go.store(true);
    go.notify_all();
    while (!(*gpu)->AwaitUploads().ok()) {
    }
    other.reset();
    EXPECT_EQ(driver.pinned_bytes(), 64u);
  }
  EXPECT_EQ(driver.streams() + driver.events(), 0);
}

// A kernel that never ends holds nobody for ever.
TEST(GpuDeviceTest, WaitsOnlyAsLongAsItWasTold) {
  FakeDriver driver;
  auto gpu = OpenFakeGpu(driver, /*patience=*/absl::Milliseconds(20));
  COHORT_ASSERT_OK(gpu);
  driver.faults().FailAlways("cuEventQuery", trainer::cuda::kNotReady);
  COHORT_ASSERT_OK((*gpu)->Mark(3));
  EXPECT_THAT((*gpu)->Await(3, nullptr),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(kUuid), HasSubstr("20ms"))));
  // Nor does the destructor wait again: one look at each stream.
  const int looks = driver.faults().Count("cuEventQuery");
  gpu->reset();
  EXPECT_LE(driver.faults().Count("cuEventQuery") - looks, 2);
  driver.faults().Release();
}

// What mlp ends by.
TEST(GpuDeviceTest, ACallThatHangsIsNamedWhereverItIsMade) {
  for (const char* const call :
       {"cuDeviceGetCount", "cuDevicePrimaryCtxRetain", "cuModuleLoadData",
        "cuStreamCreate", "cuMemAlloc", "cuMemHostAlloc", "cuMemcpyAsync",
        "cuLaunchKernel", "cuEventQuery", "cuMemFree",
        "cuDevicePrimaryCtxRelease"}) {
    FakeDriver driver;
    // Written before the call goes on.
    std::vector<std::string> told;
    trainer::cuda::CallWatch watch("GPU 0", absl::Milliseconds(20),
                                   [&](absl::string_view why) {
                                     told.emplace_back(why);
                                     driver.faults().Release();
                                   });
    AddKernels(driver);
    const auto table =
        watch.Load([&]() -> absl::StatusOr<std::shared_ptr<const DriverTable>> {
          return driver.table();
        });
    driver.faults().Hang(call);
    {
      auto gpu = GpuDevice::Open(*table, 0, FakeImage());
      COHORT_ASSERT_OK(gpu);
      auto memory = (*gpu)->Allocate(64);
      COHORT_ASSERT_OK(memory);
      std::vector<std::byte> bytes(64);
      COHORT_ASSERT_OK((*gpu)->Upload(*memory, bytes));
      COHORT_ASSERT_OK((*gpu)->Launch(
          DType::kF32,
          NonFiniteArgs{.values = *memory,
                        .found = reinterpret_cast<uint32_t*>(*memory + 32),
                        .count = 1}));
      COHORT_ASSERT_OK((*gpu)->Download(bytes, *memory));
    }
    EXPECT_THAT(told, Contains(absl::StrCat("GPU 0: ", call,
                                            " has not come back for 20ms")));
  }
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
