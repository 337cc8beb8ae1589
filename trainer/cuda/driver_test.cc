#include "trainer/cuda/driver.h"

#include <stdlib.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "trainer/cuda/device.h"
#include "trainer/cuda/testing/fake_driver.h"

namespace cohort::trainer::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kUuid[] = "GPU-01010101-0101-0101-0101-010101010101";
const auto kUnmet = absl::StatusCode::kFailedPrecondition;

TEST(LoadDriverTest, SaysThatThereIsNone) {
  EXPECT_THAT(LoadDriver("libcuda-not-there.so.1"),
              StatusIs(kUnmet, AllOf(HasSubstr("no CUDA driver"),
                                     HasSubstr("libcuda-not-there.so.1"))));
}

TEST(LoadDriverTest, NamesTheSymbolThatIsMissing) {
  EXPECT_THAT(LoadDriver("libc.so.6"),
              StatusIs(kUnmet, AllOf(HasSubstr("cuInit"), HasSubstr("11.4"))));
}

TEST(InitDriverTest, RefusesADriverThatIsTooOldByItsVersion) {
  FakeDriver old({.version = 11020});
  EXPECT_THAT(InitDriver(*old.table()),
              StatusIs(kUnmet, AllOf(HasSubstr("11.2"), HasSubstr("11.4"))));
  EXPECT_EQ(old.faults().Count("cuInit"), 0);
  FakeDriver enough({.version = kDriverVersionMin});
  EXPECT_THAT(InitDriver(*enough.table()), IsOk());
}

// What may never come back is named before it is called.
TEST(InitDriverTest, NamesEachCallBeforeItIsMade) {
  FakeDriver driver;
  std::vector<std::string> calls;
  const auto note = [&](const char* call) {
    EXPECT_EQ(driver.faults().Count(call), 0);
    calls.push_back(call);
  };
  COHORT_ASSERT_OK(InitDriver(*driver.table(), note));
  COHORT_ASSERT_OK(Device::Open(driver.table(), 0, note));
  EXPECT_THAT(calls,
              ElementsAre("cuDriverGetVersion", "cuInit", "cuDeviceGetCount",
                          "cuDeviceGet", "cuDeviceGetUuid", "cuDeviceGetName",
                          "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"));
  calls.clear();
  EXPECT_FALSE(LoadDriver("libcuda-not-there.so.1", note).ok());
  EXPECT_THAT(calls, ElementsAre("dlopen of the CUDA driver"));
}

TEST(InitDriverTest, SaysWhatCuInitAnswered) {
  FakeDriver driver;
  driver.faults().Fail("cuInit", kNoDevice);
  EXPECT_THAT(InitDriver(*driver.table()),
              StatusIs(kUnmet, AllOf(HasSubstr("cuInit"), HasSubstr("100"))));
}

TEST(DeviceTest, IsNamedByUuidAndModelAndGivesItsContextBack) {
  FakeDriver driver;
  {
    const auto device = Device::Open(driver.table(), 0);
    ASSERT_THAT(device, IsOk());
    EXPECT_EQ((*device)->uuid(), kUuid);
    EXPECT_EQ((*device)->name(), std::string(kUuid) + " (Fake GPU)");
    EXPECT_EQ(driver.contexts(), 1);
  }
  EXPECT_EQ(driver.contexts(), 0);
}

TEST(DeviceTest, IsTheOneOfItsOrdinal) {
  FakeDriver driver({.device_count = 3});
  const auto device = Device::Open(driver.table(), 2);
  COHORT_ASSERT_OK(device);
  EXPECT_THAT((*device)->uuid(), HasSubstr("GPU-03"));
  EXPECT_THAT(Device::Open(driver.table(), 3),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no GPU 3: 3 visible here")));
}

// A rank sees its siblings' GPUs, and takes its own.
TEST(VisibleOrdinalTest, IsThatOfTheOneThatThisRankWasGranted) {
  unsetenv("COHORT_GPU_IDS");
  EXPECT_EQ(VisibleOrdinal(2), 2);
  setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c", 1);
  setenv("COHORT_GPU_IDS", "GPU-b", 1);
  EXPECT_EQ(VisibleOrdinal(0), 1);
  setenv("COHORT_GPU_IDS", "GPU-c,GPU-a", 1);
  EXPECT_EQ(VisibleOrdinal(0), 2);
  EXPECT_EQ(VisibleOrdinal(1), 0);
  // The rank's own business, once it has set the variable itself.
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  EXPECT_EQ(VisibleOrdinal(1), 1);
  unsetenv("CUDA_VISIBLE_DEVICES");
  unsetenv("COHORT_GPU_IDS");
}

TEST(VisibleNameTest, IsTheUuidWhereOneIsShown) {
  setenv("CUDA_VISIBLE_DEVICES", "GPU-a,MIG-b,2", 1);
  EXPECT_EQ(VisibleName(0), "GPU-a");
  EXPECT_EQ(VisibleName(1), "MIG-b");
  EXPECT_EQ(VisibleName(2), "GPU 2");
  EXPECT_EQ(VisibleName(3), "GPU 3");
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(VisibleName(0), "GPU 0");
}

TEST(DeviceTest, RefusesAnOrdinalThatIsNotThere) {
  FakeDriver driver;
  EXPECT_THAT(Device::Open(driver.table(), 1),
              StatusIs(kUnmet, HasSubstr("no GPU 1: 1 visible")));
  EXPECT_THAT(Device::Open(driver.table(), -1), StatusIs(kUnmet));
}

TEST(DeviceTest, FailsWhereAnyCallOfItsStartFails) {
  for (const char* const call :
       {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetUuid", "cuDeviceGetName",
        "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"}) {
    FakeDriver driver;
    driver.faults().Fail(call, kUnknown);
    EXPECT_THAT(Device::Open(driver.table(), 0),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr(call)));
    EXPECT_EQ(driver.contexts(), 0) << call;
  }
}

TEST(DeviceTest, SaysHowMuchMemoryThereIsWhenItIsNotEnough) {
  FakeDriver driver({.memory_bytes = 1000});
  const auto device = Device::Open(driver.table(), 0);
  ASSERT_THAT(device, IsOk());
  const auto first = (*device)->Allocate(600);
  ASSERT_THAT(first, IsOk());
  EXPECT_THAT((*device)->Allocate(600),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(kUuid), HasSubstr("600 bytes"),
                             HasSubstr("400 of 1000 free"))));
  (*device)->Free(*first);
  EXPECT_EQ(driver.device_bytes(), 0u);
}

TEST(DeviceTest, TellsItsMemoryFromTheHosts) {
  FakeDriver driver;
  const auto device = Device::Open(driver.table(), 0);
  ASSERT_THAT(device, IsOk());
  const auto memory = (*device)->Allocate(100);
  const auto pinned = (*device)->AllocatePinned(100);
  ASSERT_THAT(memory, IsOk());
  ASSERT_THAT(pinned, IsOk());
  const auto* const bytes =
      reinterpret_cast<const std::byte*>(static_cast<uintptr_t>(*memory));
  EXPECT_TRUE((*device)->Reaches(bytes));
  EXPECT_TRUE((*device)->Reaches(bytes + 99));
  EXPECT_FALSE((*device)->Reaches(bytes + 100));
  EXPECT_FALSE((*device)->Reaches(*pinned));
  const int on_stack = 0;
  EXPECT_FALSE((*device)->Reaches(&on_stack));
  (*device)->Free(*memory);
  (*device)->FreePinned(*pinned);
  EXPECT_EQ(driver.pinned_bytes(), 0u);
}

TEST(DeviceTest, NamesItselfInFaults) {
  FakeDriver driver;
  const auto device = Device::Open(driver.table(), 0);
  ASSERT_THAT(device, IsOk());
  EXPECT_THAT((*device)->Check(kEccUncorrectable, "cuEventQuery"),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(kUuid), HasSubstr("cuEventQuery"),
                             HasSubstr("CUDA_ERROR_ECC_UNCORRECTABLE (214)"))));
}

// What the tests of everything above it rely on.
TEST(FakeDriverTest, WorksInOrderAndTellsWhenItIsDone) {
  FakeDriver driver;
  const DriverTable& t = *driver.table();
  Stream stream = nullptr;
  Event event = nullptr;
  ASSERT_EQ(t.cuStreamCreate(&stream, kStreamDefault), kSuccess);
  ASSERT_EQ(t.cuEventCreate(&event, kEventDisableTiming), kSuccess);
  EXPECT_EQ(t.cuEventQuery(event), kSuccess) << "nothing recorded";
  DevicePointer memory = 0;
  ASSERT_EQ(t.cuMemAlloc(&memory, 4), kSuccess);
  std::atomic<bool> go{false};
  FakeDriver::Enqueue(stream, [&go] { go.wait(false); });
  ASSERT_EQ(t.cuMemsetD8Async(memory, 7, 4, stream), kSuccess);
  unsigned char copy[4] = {};
  ASSERT_EQ(
      t.cuMemcpyAsync(reinterpret_cast<uintptr_t>(copy), memory, 4, stream),
      kSuccess);
  ASSERT_EQ(t.cuEventRecord(event, stream), kSuccess);
  EXPECT_EQ(t.cuEventQuery(event), kNotReady);
  go.store(true);
  go.notify_all();
  while (t.cuEventQuery(event) == kNotReady) {
  }
  EXPECT_EQ(copy[3], 7);
  EXPECT_EQ(t.cuMemFree(memory), kSuccess);
  EXPECT_EQ(t.cuEventDestroy(event), kSuccess);
  EXPECT_EQ(t.cuStreamDestroy(stream), kSuccess);
  EXPECT_EQ(driver.streams() + driver.events(), 0);
}

TEST(FakeDriverTest, AStreamWaitsForWhatAnotherHadBegun) {
  FakeDriver driver;
  const DriverTable& t = *driver.table();
  Stream first = nullptr, second = nullptr;
  Event event = nullptr, done = nullptr;
  ASSERT_EQ(t.cuStreamCreate(&first, kStreamNonBlocking), kSuccess);
  ASSERT_EQ(t.cuStreamCreate(&second, kStreamNonBlocking), kSuccess);
  ASSERT_EQ(t.cuEventCreate(&event, kEventDisableTiming), kSuccess);
  ASSERT_EQ(t.cuEventCreate(&done, kEventDisableTiming), kSuccess);
  EXPECT_EQ(t.cuStreamWaitEvent(second, event, 0), kSuccess) << "not recorded";
  std::atomic<bool> go{false};
  std::string order;
  FakeDriver::Enqueue(first, [&] {
    go.wait(false);
    order += "1";
  });
  ASSERT_EQ(t.cuEventRecord(event, first), kSuccess);
  ASSERT_EQ(t.cuStreamWaitEvent(second, event, 0), kSuccess);
  FakeDriver::Enqueue(second, [&] { order += "2"; });
  ASSERT_EQ(t.cuEventRecord(done, second), kSuccess);
  EXPECT_EQ(t.cuEventQuery(done), kNotReady);
  go.store(true);
  go.notify_all();
  while (t.cuEventQuery(done) == kNotReady) {
  }
  EXPECT_EQ(order, "12");
  EXPECT_EQ(t.cuStreamDestroy(first), kSuccess);
  EXPECT_EQ(t.cuStreamDestroy(second), kSuccess);
  EXPECT_EQ(t.cuEventDestroy(event), kSuccess);
  EXPECT_EQ(t.cuEventDestroy(done), kSuccess);
}

}  // namespace
}  // namespace cohort::trainer::cuda
