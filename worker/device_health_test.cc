#include "worker/device_health.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/manual_executor.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class DeviceHealthTest : public ::testing::Test {
 protected:
  void Pass(absl::Duration time) {
    clock_.AdvanceBy(time);
    health_.Tick();
  }
  // Seconds in which it says that it is well.
  void PassWell(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock_.AdvanceBy(absl::Seconds(1));
      health_.NoteAnswer({.id = "GPU-a"});
      health_.Tick();
    }
  }

  ManualExecutor clock_;
  DeviceHealth health_{"GPU GPU-a", clock_};
};

TEST_F(DeviceHealthTest, ApplicationsFaultsSayNothingOfTheDevice) {
  for (const uint64_t xid : {13, 31, 43, 45, 68, 109}) health_.NoteXid(xid);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
  EXPECT_THAT(health_.reason(), IsEmpty());
  EXPECT_EQ(health_.last_xid(), 109u);
}

TEST_F(DeviceHealthTest, FaultsOfTheDeviceFenceItForGoodAndTheFirstIsTold) {
  for (const uint64_t xid : {48, 62, 64, 74, 94, 95, 119, 120, 140}) {
    DeviceHealth one("GPU GPU-a", clock_);
    one.NoteXid(xid);
    EXPECT_EQ(one.state(), v1::DEVICE_STATE_FENCED) << xid;
    EXPECT_TRUE(one.HasFault()) << xid;
    EXPECT_FALSE(one.IsLost()) << xid;
  }
  health_.NoteXid(48);
  health_.NoteXid(95);
  PassWell(3600);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(
      health_.reason(),
      AllOf(HasSubstr("GPU-a"), HasSubstr("Xid 48 (double-bit ECC error)")));
}

TEST_F(DeviceHealthTest, OneThatFellOffTheBusIsLost) {
  health_.NoteXid(79);
  EXPECT_TRUE(health_.IsLost());
  EXPECT_THAT(health_.reason(), HasSubstr("Xid 79"));
  DeviceHealth other("GPU GPU-b", clock_);
  other.NoteAnswer({.id = "GPU-b", .lost = "GPU is lost"});
  EXPECT_TRUE(other.IsLost());
  EXPECT_EQ(other.state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(other.reason(), HasSubstr("GPU-b: it is lost: GPU is lost"));
  other.NoteAnswer({.id = "GPU-b"});  // it answers, and is not believed
  EXPECT_TRUE(other.IsLost());
}

TEST_F(DeviceHealthTest, CountersFenceForAsLongAsTheySaySo) {
  DeviceAnswer answer{.id = "GPU-a"};
  answer.sample.set_ecc_volatile(2);
  answer.sample.set_ecc_aggregate(7);
  health_.NoteAnswer(answer);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(health_.reason(), HasSubstr("2 uncorrectable ECC errors"));
  answer.sample.set_ecc_volatile(0);  // of its life they do not count
  health_.NoteAnswer(answer);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
  answer.sample.set_remap_failed(true);
  health_.NoteAnswer(answer);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(health_.reason(), HasSubstr("a row remap failed"));
}

TEST_F(DeviceHealthTest, ASuspectIsHealthyOnceItWasQuietForLongEnough) {
  DeviceAnswer answer{.id = "GPU-a"};
  answer.sample.set_remap_pending(true);
  health_.NoteAnswer(answer);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  EXPECT_FALSE(health_.HasFault());
  PassWell(59);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  health_.NoteAnswer(answer);  // again: from the beginning
  PassWell(59);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  PassWell(1);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
}

// As a remap that waits for its reset: the GPU goes on for weeks.
TEST_F(DeviceHealthTest, ARemapThatWasRecordedMakesASuspect) {
  health_.NoteXid(63);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  EXPECT_FALSE(health_.HasFault());
  EXPECT_THAT(health_.reason(),
              HasSubstr("Xid 63 (row remapping or page retirement recorded)"));
  PassWell(600);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
}

TEST_F(DeviceHealthTest, AnXidThatNobodyKnowsMakesASuspect) {
  health_.NoteXid(154);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  EXPECT_THAT(health_.reason(), HasSubstr("Xid 154"));
  PassWell(599);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  PassWell(1);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
}

TEST_F(DeviceHealthTest, OneErrorIsNone) {
  const DeviceAnswer failed{.id = "GPU-a", .error = "power: Unknown Error"};
  health_.NoteAnswer(failed);
  health_.NoteAnswer(failed);
  PassWell(1);
  health_.NoteAnswer(failed);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
  health_.NoteAnswer(failed);
  health_.NoteAnswer(failed);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  EXPECT_THAT(health_.reason(), HasSubstr("power: Unknown Error"));
}

TEST_F(DeviceHealthTest, ADriverThatHangsFencesUntilItAnswers) {
  Pass(absl::Seconds(9));
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
  Pass(absl::Seconds(1));
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  Pass(absl::Seconds(20));
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(health_.reason(), HasSubstr("has not answered for 30s"));
  EXPECT_FALSE(health_.HasFault());
  PassWell(1);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  PassWell(60);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
}

// An error that comes at once is no more of an answer than none.
TEST_F(DeviceHealthTest, OneThatAnswersWithErrorsOnlyIsFencedUntilItAnswers) {
  const DeviceAnswer failed{.id = "GPU-a", .error = "memory: Unknown Error"};
  DeviceAnswer partly = failed;
  partly.sample.set_temperature_celsius(40);
  for (const DeviceAnswer& answer : {partly, failed}) {
    for (int i = 0; i < 40; ++i) {
      clock_.AdvanceBy(absl::Seconds(1));
      health_.NoteAnswer(answer);
      health_.Tick();
    }
    EXPECT_EQ(health_.state(), answer.sample.has_temperature_celsius()
                                   ? v1::DEVICE_STATE_SUSPECT
                                   : v1::DEVICE_STATE_FENCED);
    EXPECT_THAT(health_.reason(), HasSubstr("memory: Unknown Error"));
  }
  EXPECT_FALSE(health_.HasFault());
  PassWell(1);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_SUSPECT);
  PassWell(60);
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
}

TEST_F(DeviceHealthTest, WhatIsLeftOnItFencesUntilItIsGone) {
  health_.NoteStuck("process 17 still has memory on it");
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(health_.reason(), HasSubstr("process 17"));
  EXPECT_FALSE(health_.HasFault());
  health_.NoteStuck("");
  EXPECT_EQ(health_.state(), v1::DEVICE_STATE_HEALTHY);
}

}  // namespace
}  // namespace cohort::worker
