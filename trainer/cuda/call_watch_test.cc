#include "trainer/cuda/call_watch.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/testing/status_matchers.h"
#include "trainer/cuda/device.h"
#include "trainer/cuda/testing/fake_driver.h"

namespace cohort::trainer::cuda {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

// A fake driver under a watch that lets go of what hangs once it has told.
class CallWatchTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<const DriverTable>> Load(CallWatch& watch) {
    return watch.Load(
        [this]() -> absl::StatusOr<std::shared_ptr<const DriverTable>> {
          const absl::Status ready = InitDriver(*driver_.table());
          if (!ready.ok()) return ready;
          return driver_.table();
        });
  }

  CallWatch::Hung Note() {
    return [this](absl::string_view why) {
      MutexLock lock(mutex_);
      told_.emplace_back(why);
      driver_.faults().Release();
    };
  }

  std::vector<std::string> told() {
    MutexLock lock(mutex_);
    return told_;
  }

  FakeDriver driver_;

 private:
  Mutex mutex_;
  std::vector<std::string> told_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(CallWatchTest, NamesTheCallThatHangs) {
  CallWatch watch("GPU 0", absl::Milliseconds(20), Note());
  const auto driver = Load(watch);
  ASSERT_THAT(driver, IsOk());
  driver_.faults().Hang("cuDevicePrimaryCtxRetain");
  // The call goes on only when it was told of.
  const auto device = Device::Open(*driver, 0);
  EXPECT_THAT(told(),
              Contains("GPU 0: cuDevicePrimaryCtxRetain has not come back "
                       "for 20ms"));
  ASSERT_THAT(device, IsOk());
  watch.SetPlace((*device)->name());
  driver_.faults().Hang("cuMemAlloc");
  EXPECT_THAT((*device)->Allocate(64), IsOk());
  EXPECT_THAT(told(), Contains((*device)->name() + ": cuMemAlloc has not come "
                                                   "back for 20ms"));
}

TEST_F(CallWatchTest, WatchesTheLoadItself) {
  CallWatch watch("GPU 0", absl::Milliseconds(20), Note());
  driver_.faults().Hang("cuInit");
  EXPECT_THAT(Load(watch), IsOk());
  EXPECT_THAT(told(),
              Contains("GPU 0: loading the driver (dlopen, cuInit) has not "
                       "come back for 20ms"));
}

TEST_F(CallWatchTest, ChangesNoAnswer) {
  CallWatch watch("GPU 0", absl::Minutes(1), Note());
  driver_.faults().Fail("cuInit", kNoDevice);
  EXPECT_THAT(Load(watch), Not(IsOk()));
  const auto driver = Load(watch);
  ASSERT_THAT(driver, IsOk());
  driver_.faults().Fail("cuDeviceGetCount", kUnknown);
  int count = 0;
  EXPECT_EQ((*driver)->cuDeviceGetCount(&count), kUnknown);
  EXPECT_EQ((*driver)->cuDeviceGetCount(&count), kSuccess);
  EXPECT_EQ(count, 1);
  EXPECT_THAT(told(), IsEmpty());
}

}  // namespace
}  // namespace cohort::trainer::cuda
