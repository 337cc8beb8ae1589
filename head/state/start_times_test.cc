#include "head/state/start_times.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StartTimesTest : public ClusterStateTest {
 protected:
  StartTimesTest() { Join(a_, 2); }

  static JobSpec SpecIn(absl::Duration left) {
    JobSpec spec = Spec(1, 1);
    spec.set_start_in_us(absl::ToInt64Microseconds(left));
    return spec;
  }
  JobSpec SpecAt(absl::Duration left) {
    JobSpec spec = Spec(1, 1);
    spec.set_start_at_us(absl::ToUnixMicros(time_.Wall() + left));
    return spec;
  }
  void Release(const JobId& job) {
    Transition transition;
    COHORT_ASSERT_OK(state_->ReleaseJob(
        {.principal = "ada", .request_id = job.ToText(), .body_hash = "h"}, job,
        transition));
    Submit(std::move(transition));
  }
  absl::Status Refused(JobSpec spec) {
    Transition transition;
    return state_
        ->SubmitJob({.principal = "ada", .request_id = "r", .body_hash = "h"},
                    "default", std::move(spec), transition)
        .status();
  }
};

TEST_F(StartTimesTest, AJobWaitsForItsTimeAndStartsThen) {
  const absl::Time start = time_.Wall() + absl::Seconds(80);
  const JobId job = SubmitJob(SpecIn(absl::Seconds(80)));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_EQ(Job(job).spec->start_at_us(), absl::ToUnixMicros(start));
  EXPECT_EQ(Job(job).spec->start_in_us(), 0);
  EXPECT_EQ(
      state_->ReasonOf(Job(job)),
      absl::StrCat("starts at ", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", start,
                                                  absl::UTCTimeZone())));
  EXPECT_EQ(state_->WaitingByReason().at("start_time"), 1);
  EXPECT_EQ(state_->WaitingByReason().at("resources"), 0);
  Pass(absl::Seconds(79), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  Pass(absl::Seconds(2), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
  EXPECT_EQ(Job(job).row.phases()[0].kind(), v1::WAIT_KIND_START_TIME);
  EXPECT_EQ(Job(job).row.phases().rbegin()->kind(), v1::WAIT_KIND_NOTHING);
}

TEST_F(StartTimesTest, ATimeThatHasPassedIsAtOnce) {
  EXPECT_EQ(StateOf(SubmitJob(SpecAt(-absl::Hours(1)))),
            v1::JOB_STATE_STARTING);
  JobSpec long_ago = Spec(1, 1);
  long_ago.set_start_at_us(1);
  EXPECT_EQ(StateOf(SubmitJob(long_ago)), v1::JOB_STATE_STARTING);
}

TEST_F(StartTimesTest, TheLaterOfATimeAndAWhileCounts) {
  JobSpec spec = SpecAt(absl::Seconds(5));
  spec.set_start_in_us(absl::ToInt64Microseconds(absl::Seconds(9)));
  EXPECT_EQ(Job(SubmitJob(spec)).spec->start_at_us(),
            absl::ToUnixMicros(time_.Wall() + absl::Seconds(9)));
}

TEST_F(StartTimesTest, NonsenseAndWhatIsTooFarAreRefused) {
  const auto refused = [this](JobSpec spec, const char* why) {
    EXPECT_THAT(Refused(std::move(spec)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  };
  refused(SpecAt(absl::Hours(24 * 366)), "365 days");
  refused(SpecIn(absl::Hours(24 * 366)), "365 days");
  refused(SpecIn(absl::Microseconds(INT64_MAX)), "365 days");
  refused(SpecIn(-absl::Seconds(1)), "start_in_us");
  JobSpec spec = Spec(1, 1);
  spec.set_start_at_us(-1);
  refused(spec, "start_at_us");
}

TEST_F(StartTimesTest, ItSurvivesARestartOfTheHead) {
  const JobId job = SubmitJob(SpecIn(absl::Seconds(60)));
  Pass(absl::Seconds(30), {a_});
  Reload();
  EXPECT_EQ(state_->WaitingByReason().at("start_time"), 1);
  Join(a_, 2);
  Pass(absl::Seconds(29), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  Pass(absl::Seconds(2), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(StartTimesTest, ARetryDoesNotWaitAgain) {
  JobSpec spec = SpecIn(absl::Seconds(2));
  spec.mutable_run()->set_max_failures(1);
  spec.mutable_run()->set_retry_delay_us(0);
  const JobId job = SubmitJob(spec);
  Pass(absl::Seconds(3), {a_});
  Run(job);
  // As if the clock had been set back.
  JobRecord again = Job(job);
  again.row.set_state(v1::JOB_STATE_PENDING);
  again.spec.Own().set_start_at_us(
      absl::ToUnixMicros(time_.Wall() + absl::Hours(1)));
  Deadlines deadlines(limits_.tick_period, time_);
  StartTimes gate(deadlines, time_);
  EXPECT_TRUE(gate.Pass(again));
  EXPECT_FALSE(gate.WaitOf(again).has_value());
  again.row.set_attempts(0);
  EXPECT_FALSE(gate.Pass(again));
  Say(a_, Exited(job, a_, 1));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST_F(StartTimesTest, AHoldOutlastsItAndTheOtherWayRound) {
  JobSpec spec = SpecIn(absl::Seconds(10));
  spec.set_hold(true);
  const JobId early = SubmitJob(spec);
  const JobId late = SubmitJob(spec);
  EXPECT_THAT(state_->ReasonOf(Job(early)), HasSubstr("held by"));
  EXPECT_THAT(state_->ReasonOf(Job(early)), HasSubstr("; starts at "));
  EXPECT_EQ(state_->WaitingByReason().at("start_time"), 0);
  Release(early);
  EXPECT_EQ(StateOf(early), v1::JOB_STATE_PENDING);
  Pass(absl::Seconds(11), {a_});
  EXPECT_EQ(StateOf(early), v1::JOB_STATE_STARTING);
  EXPECT_EQ(StateOf(late), v1::JOB_STATE_PENDING);
  Release(late);
  EXPECT_EQ(StateOf(late), v1::JOB_STATE_STARTING);
}

TEST_F(StartTimesTest, ElementsOfAnArrayWaitAlike) {
  JobSpec spec = SpecIn(absl::Seconds(10));
  spec.set_array("0-4%2");
  const JobId array = SubmitJob(spec);
  const auto waiting = state_->gates().ElementsOf(array, 5);
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_EQ(waiting[0].first, v1::WAIT_KIND_START_TIME);
  EXPECT_EQ(waiting[0].second.count, 5);
  EXPECT_EQ(waiting[0].second.first, array.Element(0));
  COHORT_ASSERT_OK(StopJob(array.Element(0)));
  Pass(absl::Seconds(11), {a_});
  EXPECT_EQ(StateOf(array.Element(1)), v1::JOB_STATE_STARTING);
  EXPECT_EQ(StateOf(array.Element(2)), v1::JOB_STATE_STARTING);
  EXPECT_EQ(state_->gates().PhaseOf(Job(array.Element(3))),
            v1::WAIT_KIND_ARRAY);
}

TEST_F(StartTimesTest, ItIsNoLongerThanWhatItWaitsFor) {
  const JobId first = SubmitJob(Spec(1, 1));
  JobSpec spec = SpecIn(absl::Seconds(10));
  AddAfter(spec, first, v1::DEPENDENCY_KIND_OK);
  const JobId job = SubmitJob(spec);
  Run(first);
  Say(a_, Exited(first, a_, 0));
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_PENDING);
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("starts at "));
  Pass(absl::Seconds(11), {a_});
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_STARTING);
}

TEST(StartTimesOrder, ThoseOfOneTimeComeABoundedNumberAtATime) {
  ManualExecutor time;
  SeededRandom random(1);
  Deadlines deadlines(absl::Milliseconds(200), time);
  StartTimes gate(deadlines, time);
  const auto take_due = [&deadlines](size_t most) {
    std::vector<JobId> jobs;
    for (const Due& due : deadlines.TakeDue(DueKind::kStartTime, most)) {
      jobs.push_back(due.ask().job);
    }
    return jobs;
  };
  std::vector<JobRecord> waiting(3);
  for (size_t i = 0; i < waiting.size(); ++i) {
    waiting[i].id = JobId::New(random);
    waiting[i].spec.Own().set_start_at_us(
        absl::ToUnixMicros(time.Wall() + absl::Seconds(i == 2 ? 1 : 2)));
    EXPECT_FALSE(gate.Pass(waiting[i]));
  }
  EXPECT_THAT(take_due(10), IsEmpty());
  time.AdvanceBy(absl::Seconds(2));
  EXPECT_THAT(take_due(1), ElementsAre(waiting[2].id));
  gate.Leave(waiting[0]);
  EXPECT_THAT(take_due(10), ElementsAre(waiting[1].id));
  EXPECT_THAT(deadlines.Of(DueKind::kStartTime), IsEmpty());
}

}  // namespace
}  // namespace cohort::head
