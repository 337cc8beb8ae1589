#include "head/state/retry_backoff.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "head/state/failure_class.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RetryBackoffTest : public ::testing::Test {
 protected:
  JobRecord Job(int failures, absl::Duration retry_delay = absl::Seconds(1)) {
    JobRecord job(JobId::New(random_));
    job.spec.Own().mutable_run()->set_retry_delay_us(
        absl::ToInt64Microseconds(retry_delay));
    job.row.set_attempts(failures);
    job.row.set_failures(failures);
    return job;
  }

  // Empty: it does not keep it.
  std::string ReasonOf(const JobRecord& job) {
    const std::optional<Wait> wait = backoff_.WaitOf(job);
    return wait.has_value() ? wait->text : "";
  }

  std::vector<JobId> TakeDue(size_t most) {
    std::vector<JobId> jobs;
    for (const Due& due : deadlines_.TakeDue(DueKind::kBackOff, most)) {
      jobs.push_back(due.ask().job);
    }
    return jobs;
  }

  SeededRandom random_{1};
  ManualExecutor time_;
  Deadlines deadlines_{absl::Milliseconds(200), time_};
  RetryBackoff backoff_{deadlines_, time_};
};

TEST_F(RetryBackoffTest, DoublesWithEachChargedFailureUpToItsCap) {
  EXPECT_EQ(RetryDelay(Job(1)), absl::Seconds(1));
  EXPECT_EQ(RetryDelay(Job(2)), absl::Seconds(2));
  EXPECT_EQ(RetryDelay(Job(3)), absl::Seconds(4));
  EXPECT_EQ(RetryDelay(Job(9)), absl::Seconds(256));
  EXPECT_EQ(RetryDelay(Job(10)), absl::Minutes(5));
  EXPECT_EQ(RetryDelay(Job(1'000'000)), absl::Minutes(5));
  EXPECT_EQ(RetryDelay(Job(1, absl::Hours(1))), absl::Minutes(5));
  EXPECT_EQ(RetryDelay(Job(1'000'000, absl::ZeroDuration())),
            absl::ZeroDuration());
}

TEST_F(RetryBackoffTest, WaitsOnlyAfterWhatWasCharged) {
  JobRecord job = Job(1);
  job.row.set_infra_restarts(3);
  for (int i = 0; i < 3; ++i) CountFailure(v1::FAILURE_CLASS_INFRA, job);
  AttemptRecord last;
  last.cause = v1::ATTEMPT_CAUSE_RANK_FAILED;
  EXPECT_EQ(RetryDelayAfter(job, last), absl::Seconds(1));
  last.cause = v1::ATTEMPT_CAUSE_DRAINED;
  EXPECT_EQ(RetryDelayAfter(job, last), absl::ZeroDuration());
  last.cause = v1::ATTEMPT_CAUSE_DAEMON_SHUTDOWN;
  EXPECT_EQ(RetryDelayAfter(job, last), absl::ZeroDuration());
  last.cause = v1::ATTEMPT_CAUSE_NODE_LOST;
  EXPECT_EQ(RetryDelayAfter(job, last), absl::ZeroDuration());
  CountFailure(v1::FAILURE_CLASS_INFRA, job);
  EXPECT_EQ(RetryDelayAfter(job, last), absl::Seconds(1));
}

TEST_F(RetryBackoffTest, LetsJobsGoInTheOrderThatTheyAreDue) {
  const JobRecord late = Job(1);
  const JobRecord early = Job(1);
  const JobRecord gone = Job(1);
  backoff_.Begin(late.id, absl::Seconds(3));
  backoff_.Begin(early.id, absl::Seconds(2));
  backoff_.Begin(gone.id, absl::Seconds(1));
  for (const JobRecord& job : {late, early, gone}) {
    EXPECT_FALSE(backoff_.Pass(job));
  }
  backoff_.Forget(gone.id);
  backoff_.Forget(gone.id);
  time_.AdvanceBy(absl::Milliseconds(1'999));
  EXPECT_THAT(TakeDue(10), IsEmpty());
  time_.AdvanceBy(absl::Seconds(2));
  EXPECT_THAT(TakeDue(1), ElementsAre(early.id));
  EXPECT_FALSE(backoff_.Keeps(early));
  EXPECT_TRUE(backoff_.Keeps(late));
  EXPECT_THAT(TakeDue(10), ElementsAre(late.id));
  EXPECT_THAT(deadlines_.Of(DueKind::kBackOff), IsEmpty());
}

TEST_F(RetryBackoffTest, ATimeGoesOnWhileSomethingElseKeepsTheJob) {
  const JobRecord job = Job(1);
  backoff_.Begin(job.id, absl::Seconds(4));
  ASSERT_FALSE(backoff_.Pass(job));
  backoff_.Leave(job);
  EXPECT_FALSE(backoff_.Keeps(job));
  EXPECT_THAT(deadlines_.Of(DueKind::kBackOff), IsEmpty());
  time_.AdvanceBy(absl::Seconds(1));
  backoff_.Begin(job.id, absl::Seconds(4));  // it has one
  EXPECT_EQ(ReasonOf(job), "attempt 2 is due in 3s");
  EXPECT_FALSE(backoff_.Pass(job));
  backoff_.Leave(job);
  time_.AdvanceBy(absl::Seconds(3));
  EXPECT_THAT(TakeDue(10), IsEmpty());
  EXPECT_EQ(ReasonOf(job), "");
  EXPECT_TRUE(backoff_.Pass(job)) << "its time has come";
  backoff_.Begin(job.id, absl::Seconds(4));
  EXPECT_TRUE(backoff_.Pass(job)) << "and does not begin again";
  backoff_.Forget(job.id);
  backoff_.Begin(job.id, absl::Seconds(8));
  EXPECT_FALSE(backoff_.Pass(job)) << "of the next attempt";
}

TEST_F(RetryBackoffTest, SaysWhenTheNextAttemptStarts) {
  const JobRecord job = Job(1);
  EXPECT_EQ(ReasonOf(job), "");
  backoff_.Begin(job.id, absl::Seconds(4));
  ASSERT_FALSE(backoff_.Pass(job));
  EXPECT_EQ(ReasonOf(job), "attempt 2 starts in 4s");
  time_.AdvanceBy(absl::Milliseconds(1'500));
  EXPECT_EQ(ReasonOf(job), "attempt 2 starts in 3s");
  time_.AdvanceBy(absl::Milliseconds(2'250));
  EXPECT_EQ(ReasonOf(job), "attempt 2 starts in 300ms");
  time_.AdvanceBy(absl::Seconds(5));
  EXPECT_EQ(ReasonOf(job), "attempt 2 starts in 100ms");
}

}  // namespace
}  // namespace cohort::head
