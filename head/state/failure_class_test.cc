#include "head/state/failure_class.h"

#include "gtest/gtest.h"

namespace cohort::head {
namespace {

TEST(FailureClassTest, FollowsFromTheCauseAndTheExit) {
  const ExitStatus code = {.code = 3};
  const ExitStatus oom = {.signal = 9, .oom_killed = true};
  const struct {
    EndCause cause;
    std::optional<ExitStatus> exit;
    FailureClass expected;
  } kCases[] = {
      {EndCause::kNone, {}, FailureClass::kNone},
      {EndCause::kSucceeded, {}, FailureClass::kNone},
      {EndCause::kStopped, code, FailureClass::kNone},
      {EndCause::kDaemonShutdown, code, FailureClass::kNone},
      {EndCause::kRankFailed, code, FailureClass::kUser},
      {EndCause::kRankFailed, {}, FailureClass::kUser},
      {EndCause::kRankFailed, oom, FailureClass::kOom},
      {EndCause::kPrepareFailed, {}, FailureClass::kUser},
      {EndCause::kKeeperLost, oom, FailureClass::kInfra},
      {EndCause::kNodeLost, code, FailureClass::kInfra},
      {EndCause::kTimeLimit, code, FailureClass::kTimeout},
      {EndCause::kDrained, code, FailureClass::kPreempted},
      {EndCause::kPackageLost, {}, FailureClass::kInfra},
      {EndCause::kNodeFailed, {}, FailureClass::kInfra},
  };
  for (const auto& each : kCases) {
    EXPECT_EQ(ClassOf(each.cause, each.exit), each.expected)
        << static_cast<int>(each.cause);
  }
}

// BG-1.
TEST(FailureClassTest, ChargesByTheRuleOfEachClass) {
  const struct {
    EndCause cause;
    FailureClass failure;
    bool charged;
    bool again;  // with max_failures 0
  } kCases[] = {
      {EndCause::kRankFailed, FailureClass::kUser, true, false},
      {EndCause::kRankFailed, FailureClass::kOom, true, false},
      {EndCause::kRankFailed, FailureClass::kHang, true, false},
      {EndCause::kNodeLost, FailureClass::kInfra, false, true},
      {EndCause::kNodeFailed, FailureClass::kInfra, false, true},
      {EndCause::kDrained, FailureClass::kPreempted, false, true},
      {EndCause::kTimeLimit, FailureClass::kTimeout, false, false},
  };
  for (const auto& each : kCases) {
    SCOPED_TRACE(FailureClassName(each.failure));
    JobRecord job;
    const Verdict verdict = Charge(job, each.cause, each.failure, 3);
    EXPECT_EQ(verdict.charged, each.charged);
    EXPECT_EQ(verdict.again, each.again);
    EXPECT_EQ(job.failures, each.charged ? 1 : 0);
    EXPECT_EQ(job.failures_by_class.size(), 1);
    EXPECT_EQ(job.failures_by_class[each.failure], 1);
    EXPECT_EQ(WasCharged(job, each.failure), each.charged);
  }
}

TEST(FailureClassTest, ChargesLossesOnceTheFreeOnesAreUsed) {
  JobRecord job;
  job.spec.Own().mutable_run()->set_max_failures(1);
  for (int loss = 1; loss <= 5; ++loss) {
    const Verdict verdict =
        Charge(job, EndCause::kNodeLost, FailureClass::kInfra, 3);
    EXPECT_EQ(verdict.charged, loss > 3) << loss;
    EXPECT_EQ(verdict.again, loss <= 4) << loss;
    EXPECT_EQ(WasCharged(job, FailureClass::kInfra), loss > 3) << loss;
    EXPECT_EQ(job.failures_by_class[FailureClass::kInfra], loss);
  }
  EXPECT_EQ(job.infra_restarts, 3);
  EXPECT_EQ(job.failures, 2);
}

TEST(FailureClassTest, EndsAJobWhosePackageIsLostWithoutCharge) {
  JobRecord job;
  job.spec.Own().mutable_run()->set_max_failures(-1);
  const Verdict verdict =
      Charge(job, EndCause::kPackageLost, FailureClass::kInfra, 3);
  EXPECT_FALSE(verdict.charged);
  EXPECT_FALSE(verdict.again);
  EXPECT_EQ(job.failures, 0);
  EXPECT_EQ(job.infra_restarts, 0);
  EXPECT_EQ(job.failures_by_class[FailureClass::kInfra], 1);
}

TEST(FailureClassTest, NeitherChargesNorEndsForEvictionsHoweverMany) {
  JobRecord job;
  for (int i = 1; i <= 50; ++i) {
    EXPECT_TRUE(
        Charge(job, EndCause::kDrained, FailureClass::kPreempted, 3).again);
  }
  EXPECT_EQ(job.failures, 0);
  EXPECT_EQ(job.failures_by_class[FailureClass::kPreempted], 50);
}

TEST(FailureClassTest, SharesMaxFailuresAmongTheChargedClasses) {
  JobRecord job;
  job.spec.Own().mutable_run()->set_max_failures(2);
  EXPECT_TRUE(Charge(job, EndCause::kRankFailed, FailureClass::kUser, 3).again);
  EXPECT_TRUE(Charge(job, EndCause::kRankFailed, FailureClass::kOom, 3).again);
  EXPECT_FALSE(
      Charge(job, EndCause::kRankFailed, FailureClass::kHang, 3).again);
  EXPECT_EQ(job.failures, 3);
}

}  // namespace
}  // namespace cohort::head
