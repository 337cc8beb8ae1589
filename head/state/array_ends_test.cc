#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/state/testing/turns_fixture.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ArrayEndsTest = TurnsTest;

TEST_F(ArrayEndsTest, AStopIsAnsweredAtOnceAndGoesOnInTurns) {
  const JobId array = SubmitArray(100);
  COHORT_EXPECT_OK(StopJob(array));
  EXPECT_LE(rows_, kTurn + kOwn);
  EXPECT_TRUE(state_->HasToGoOn());
  EXPECT_GT(Count(array, v1::JOB_STATE_STOPPED), 0);
  EXPECT_GT(Count(array, v1::JOB_STATE_PENDING), 80);
  EXPECT_GE(Finish(/*restart=*/false), 9);
  EXPECT_EQ(Count(array, v1::JOB_STATE_STOPPED), 100);
  EXPECT_EQ(Job(array.Element(99)).row.reason(), "stopped on request");
  EXPECT_EQ(Job(array.Element(99)).row.origin().cause(),
            Job(array.Element(0)).row.origin().cause());
  EXPECT_THAT(KindsOf(array),
              ElementsAre("job_submitted", "job_stop_requested"));
}

TEST_F(ArrayEndsTest, WhatIsLeftIsDoneAfterARestart) {
  const JobId array = SubmitArray(100);
  COHORT_EXPECT_OK(StopJob(array));
  EXPECT_GE(Finish(/*restart=*/true), 9);
  EXPECT_EQ(Count(array, v1::JOB_STATE_STOPPED), 100);
  // Nothing of it is left in the row.
  Reload();
  EXPECT_FALSE(state_->HasToGoOn());
  EXPECT_THAT(KindsOf(array),
              ElementsAre("job_submitted", "job_stop_requested"));
}

TEST_F(ArrayEndsTest, AChainOfArraysFailsInTurnsAlsoOverRestarts) {
  const JobId first = SubmitArray(50);
  const JobId second = SubmitArray(50, &first);
  const JobId third = SubmitArray(50, &second);
  COHORT_EXPECT_OK(StopJob(first));
  Finish(/*restart=*/true);
  EXPECT_EQ(Count(first, v1::JOB_STATE_STOPPED), 50);
  EXPECT_EQ(Count(second, v1::JOB_STATE_FAILED), 50);
  EXPECT_EQ(Count(third, v1::JOB_STATE_FAILED), 50);
  const JobRecord& last = Job(third.Element(49));
  EXPECT_EQ(last.row.reason(),
            absl::StrCat("it was to start after ", second.ToText(),
                         " had SUCCEEDED, which ended FAILED"));
  EXPECT_THAT(*last.row.causes().rbegin(),
              HasSubstr(absl::StrCat("job ", second.Element(0).ToText(),
                                     " ended FAILED")));
  for (const JobId& array : {second, third}) {
    EXPECT_THAT(KindsOf(array), ElementsAre("job_submitted", "job_moved"));
  }
}

TEST_F(ArrayEndsTest, SingleJobsThatWaitForOneFailInTurns) {
  const JobId first = SubmitJob(Spec(1, 1));
  std::vector<JobId> waiting;
  for (int i = 0; i < 40; ++i) {
    JobSpec spec = Spec(1, 1);
    AddAfter(spec, i % 2 == 0 || waiting.empty() ? first : waiting.back());
    waiting.push_back(SubmitJob(std::move(spec)));
  }
  COHORT_EXPECT_OK(StopJob(first));
  EXPECT_LE(rows_, kTurn + kOwn);
  EXPECT_TRUE(state_->HasToGoOn());
  EXPECT_GE(Finish(/*restart=*/true), 7);
  for (const JobId& job : waiting)
    EXPECT_EQ(StateOf(job), v1::JOB_STATE_FAILED);
}

TEST_F(ArrayEndsTest, WhatRunsIsStoppedAndNothingElseBegins) {
  Join(a_, 20);
  const JobId array = SubmitArray(60);
  EXPECT_EQ(Count(array, v1::JOB_STATE_STARTING), 20);
  sent_[a_].clear();
  COHORT_EXPECT_OK(StopJob(array));
  EXPECT_GT(Count(array, v1::JOB_STATE_STARTING), 0);
  // There is room, and who would take it waits to be told.
  Join(b_, 100);
  EXPECT_TRUE(sent_[b_].empty());
  EXPECT_EQ(state_->line().size(), 0u);
  EXPECT_EQ(state_->ReasonOf(Job(array.Element(59))), "stopped on request");
  Finish(/*restart=*/false);
  EXPECT_EQ(Count(array, v1::JOB_STATE_PENDING), 0);
  EXPECT_EQ(Count(array, v1::JOB_STATE_STARTING), 0);
  EXPECT_EQ(Count(array, v1::JOB_STATE_STOPPING) +
                Count(array, v1::JOB_STATE_STOPPED),
            60);
}

TEST_F(ArrayEndsTest, AStopGoesBeforeWhatFailsTheArray) {
  const JobId first = SubmitJob(Spec(1, 1));
  const JobId array = SubmitArray(60, &first);
  COHORT_EXPECT_OK(StopJob(first));
  EXPECT_GT(Count(array, v1::JOB_STATE_PENDING), 0);
  COHORT_EXPECT_OK(StopJob(array));
  Finish(/*restart=*/true);
  EXPECT_GT(Count(array, v1::JOB_STATE_FAILED), 0);
  EXPECT_GT(Count(array, v1::JOB_STATE_STOPPED), 0);
  EXPECT_EQ(Count(array, v1::JOB_STATE_PENDING), 0);
}

}  // namespace
}  // namespace cohort::head
