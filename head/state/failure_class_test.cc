#include "head/state/failure_class.h"

#include "gtest/gtest.h"

#include "head/testing/messages.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

TEST(FailureClassTest, FollowsFromTheCauseAndTheExit) {
  const ExitStatus code = ExitOf({.code = 3});
  const ExitStatus oom = ExitOf({.signal = 9, .oom_killed = true});
  const struct {
    AttemptCause cause;
    std::optional<ExitStatus> exit;
    FailureClass expected;
  } kCases[] = {
      {v1::ATTEMPT_CAUSE_NONE, {}, v1::FAILURE_CLASS_NONE},
      {v1::ATTEMPT_CAUSE_SUCCEEDED, {}, v1::FAILURE_CLASS_NONE},
      {v1::ATTEMPT_CAUSE_STOPPED, code, v1::FAILURE_CLASS_NONE},
      {v1::ATTEMPT_CAUSE_DAEMON_SHUTDOWN, code, v1::FAILURE_CLASS_NONE},
      {v1::ATTEMPT_CAUSE_RANK_FAILED, code, v1::FAILURE_CLASS_USER},
      {v1::ATTEMPT_CAUSE_RANK_FAILED, {}, v1::FAILURE_CLASS_USER},
      {v1::ATTEMPT_CAUSE_RANK_FAILED, oom, v1::FAILURE_CLASS_OOM},
      {v1::ATTEMPT_CAUSE_PREPARE_FAILED, {}, v1::FAILURE_CLASS_USER},
      {v1::ATTEMPT_CAUSE_KEEPER_LOST, oom, v1::FAILURE_CLASS_INFRA},
      {v1::ATTEMPT_CAUSE_NODE_LOST, code, v1::FAILURE_CLASS_INFRA},
      {v1::ATTEMPT_CAUSE_TIME_LIMIT, code, v1::FAILURE_CLASS_TIMEOUT},
      {v1::ATTEMPT_CAUSE_DRAINED, code, v1::FAILURE_CLASS_PREEMPTED},
      {v1::ATTEMPT_CAUSE_PACKAGE_LOST, {}, v1::FAILURE_CLASS_INFRA},
      {v1::ATTEMPT_CAUSE_NODE_FAILED, {}, v1::FAILURE_CLASS_INFRA},
  };
  for (const auto& each : kCases) {
    EXPECT_EQ(ClassOf(each.cause, each.exit), each.expected)
        << static_cast<int>(each.cause);
  }
}

// BG-1.
TEST(FailureClassTest, ChargesByTheRuleOfEachClass) {
  const struct {
    AttemptCause cause;
    FailureClass failure;
    bool charged;
    bool again;  // with max_failures 0
  } kCases[] = {
      {v1::ATTEMPT_CAUSE_RANK_FAILED, v1::FAILURE_CLASS_USER, true, false},
      {v1::ATTEMPT_CAUSE_RANK_FAILED, v1::FAILURE_CLASS_OOM, true, false},
      {v1::ATTEMPT_CAUSE_RANK_FAILED, v1::FAILURE_CLASS_HANG, true, false},
      {v1::ATTEMPT_CAUSE_NODE_LOST, v1::FAILURE_CLASS_INFRA, false, true},
      {v1::ATTEMPT_CAUSE_NODE_FAILED, v1::FAILURE_CLASS_INFRA, false, true},
      {v1::ATTEMPT_CAUSE_DRAINED, v1::FAILURE_CLASS_PREEMPTED, false, true},
      {v1::ATTEMPT_CAUSE_TIME_LIMIT, v1::FAILURE_CLASS_TIMEOUT, false, false},
  };
  for (const auto& each : kCases) {
    SCOPED_TRACE(LowerEnumText(each.failure));
    JobRecord job;
    const Verdict verdict = Charge(job, each.cause, each.failure, 3);
    EXPECT_EQ(verdict.charged, each.charged);
    EXPECT_EQ(verdict.again, each.again);
    EXPECT_EQ(job.row.failures(), each.charged ? 1 : 0);
    EXPECT_EQ(job.row.failures_by_class_size(), 1);
    EXPECT_EQ(FailuresOf(job, each.failure), 1);
    EXPECT_EQ(WasCharged(job, each.failure), each.charged);
  }
}

TEST(FailureClassTest, ChargesLossesOnceTheFreeOnesAreUsed) {
  JobRecord job;
  job.spec.Own().mutable_run()->set_max_failures(1);
  for (int loss = 1; loss <= 5; ++loss) {
    const Verdict verdict =
        Charge(job, v1::ATTEMPT_CAUSE_NODE_LOST, v1::FAILURE_CLASS_INFRA, 3);
    EXPECT_EQ(verdict.charged, loss > 3) << loss;
    EXPECT_EQ(verdict.again, loss <= 4) << loss;
    EXPECT_EQ(WasCharged(job, v1::FAILURE_CLASS_INFRA), loss > 3) << loss;
    EXPECT_EQ(FailuresOf(job, v1::FAILURE_CLASS_INFRA), loss);
  }
  EXPECT_EQ(job.row.infra_restarts(), 3);
  EXPECT_EQ(job.row.failures(), 2);
}

TEST(FailureClassTest, EndsAJobWhosePackageIsLostWithoutCharge) {
  JobRecord job;
  job.spec.Own().mutable_run()->set_max_failures(-1);
  const Verdict verdict =
      Charge(job, v1::ATTEMPT_CAUSE_PACKAGE_LOST, v1::FAILURE_CLASS_INFRA, 3);
  EXPECT_FALSE(verdict.charged);
  EXPECT_FALSE(verdict.again);
  EXPECT_EQ(job.row.failures(), 0);
  EXPECT_EQ(job.row.infra_restarts(), 0);
  EXPECT_EQ(FailuresOf(job, v1::FAILURE_CLASS_INFRA), 1);
}

TEST(FailureClassTest, NeitherChargesNorEndsForEvictionsHoweverMany) {
  JobRecord job;
  for (int i = 1; i <= 50; ++i) {
    EXPECT_TRUE(
        Charge(job, v1::ATTEMPT_CAUSE_DRAINED, v1::FAILURE_CLASS_PREEMPTED, 3)
            .again);
  }
  EXPECT_EQ(job.row.failures(), 0);
  EXPECT_EQ(FailuresOf(job, v1::FAILURE_CLASS_PREEMPTED), 50);
}

TEST(FailureClassTest, SharesMaxFailuresAmongTheChargedClasses) {
  JobRecord job;
  job.spec.Own().mutable_run()->set_max_failures(2);
  EXPECT_TRUE(
      Charge(job, v1::ATTEMPT_CAUSE_RANK_FAILED, v1::FAILURE_CLASS_USER, 3)
          .again);
  EXPECT_TRUE(
      Charge(job, v1::ATTEMPT_CAUSE_RANK_FAILED, v1::FAILURE_CLASS_OOM, 3)
          .again);
  EXPECT_FALSE(
      Charge(job, v1::ATTEMPT_CAUSE_RANK_FAILED, v1::FAILURE_CLASS_HANG, 3)
          .again);
  EXPECT_EQ(job.row.failures(), 3);
}

}  // namespace
}  // namespace cohort::head
