#include "head/state/drain_order.h"

#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Of a drain that was asked for `ago` ago with this deadline.
absl::Duration Rest(absl::Duration ago, absl::Duration deadline) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(500'000);
  Drain drain;
  *drain.mutable_asked_at() = rpc::ToWire(now - ago);
  if (deadline != absl::InfiniteDuration()) {
    *drain.mutable_deadline() = rpc::ToWire(now - ago + deadline);
  }
  return RestOf(drain, now);
}

// DR-2.
TEST(DrainOrder, GoesOnWithTheRestAfterARestart) {
  EXPECT_EQ(Rest(absl::Seconds(40), absl::Minutes(1)), absl::Seconds(20));
}

// DR-2: whatever was done to the wall clock.
TEST(DrainOrder, GivesNeverMoreThanWasAskedFor) {
  EXPECT_EQ(Rest(-absl::Hours(9), absl::Minutes(1)), absl::Minutes(1));
  EXPECT_EQ(Rest(absl::Hours(9), absl::Minutes(1)), absl::ZeroDuration());
  EXPECT_EQ(Rest(absl::Hours(9), absl::InfiniteDuration()),
            absl::InfiniteDuration());
}

TEST(DrainOrder, IsRefusedWhenItCannotBe) {
  COHORT_EXPECT_OK(ValidateDrainOrder({}));
  COHORT_EXPECT_OK(
      ValidateDrainOrder({.reason = "fan 3", .deadline = absl::Hours(1)}));
  EXPECT_FALSE(ValidateDrainOrder({.reason = "a\nb"}).ok());
  EXPECT_FALSE(ValidateDrainOrder({.reason = std::string(2'000, 'x')}).ok());
  EXPECT_FALSE(
      ValidateDrainOrder({.reason = "", .deadline = -absl::Seconds(1)}).ok());
  EXPECT_FALSE(
      ValidateDrainOrder({.reason = "", .deadline = absl::Hours(1'000'000)})
          .ok());
}

}  // namespace
}  // namespace cohort::head
