// How long a job ran, as people are told.

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

class RunningTimeTest : public ClusterStateTest {
 protected:
  JobId SubmitOne() {
    JobSpec spec = Spec(1, 1);
    spec.mutable_run()->set_max_failures(3);
    spec.mutable_run()->set_retry_delay_us(
        absl::ToInt64Microseconds(absl::Seconds(20)));
    return SubmitJob(spec);
  }
  // It fails, and its node says how long it ran.
  void Fail(const JobId& job, absl::Duration ran) {
    v1::ObservedPlace observed = Exited(job, a_, 1);
    *observed.mutable_processes(0)->mutable_ran() = rpc::ToWire(ran);
    Say(a_, std::move(observed));
  }
  absl::Duration Ran(const JobId& job) { return state_->RanOf(Job(job)); }
};

TEST_F(RunningTimeTest, IsThatOfItsRanksWithoutTheTimeBetweenAttempts) {
  const JobId job = SubmitOne();
  Pass(absl::Seconds(5));
  EXPECT_EQ(Ran(job), absl::ZeroDuration());
  Join(a_, 4);
  Pass(absl::Seconds(3), {a_});
  EXPECT_EQ(Ran(job), absl::ZeroDuration()) << "it is prepared";
  Run(job);
  Pass(absl::Seconds(7), {a_});
  EXPECT_EQ(Ran(job), absl::Seconds(7));
  Fail(job, absl::Seconds(6));
  EXPECT_EQ(Ran(job), absl::Seconds(6)) << "what its node measured";
  Pass(absl::Seconds(21), {a_});
  Run(job);
  EXPECT_EQ(Ran(job), absl::Seconds(6));
  Pass(absl::Seconds(4), {a_});
  EXPECT_EQ(Ran(job), absl::Seconds(10));
}

TEST_F(RunningTimeTest, OfAGangBeginsWhenAllOfItRuns) {
  Join(a_, 1);
  Join(b_, 1);
  const JobId job = SubmitJob(Spec(2, 1));
  for (const NodeId& node : {a_, b_}) {
    Say(node, At(job, Stage::kPrepared));
  }
  Say(a_, At(job, Stage::kRunning));
  Pass(absl::Seconds(3), {a_, b_});
  EXPECT_EQ(Ran(job), absl::ZeroDuration());
  Say(b_, At(job, Stage::kRunning));
  Pass(absl::Seconds(2), {a_, b_});
  EXPECT_EQ(Ran(job), absl::Seconds(2));
}

TEST_F(RunningTimeTest, GoesOnOverARestartOfTheHead) {
  Join(a_, 4);
  const JobId job = SubmitOne();
  Run(job);
  Pass(absl::Seconds(4), {a_});
  Reload();
  time_.AdvanceBy(absl::Seconds(2));
  EXPECT_EQ(Ran(job), absl::Seconds(6));
}

}  // namespace
}  // namespace cohort::head
