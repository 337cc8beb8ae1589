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
using ::testing::IsEmpty;

class ArrayRowsTest : public TurnsTest {
 protected:
  RequestKey Request() {
    return {.principal = "alice",
            .request_id = absl::StrCat("request-", ++requests_),
            .body_hash = "hold"};
  }
  absl::Status Hold(const JobId& job) {
    Transition transition;
    const absl::Status status = state_->HoldJob(Request(), job, transition);
    Submit(std::move(transition));
    return status;
  }
  absl::Status Release(const JobId& job) {
    Transition transition;
    const absl::Status status = state_->ReleaseJob(Request(), job, transition);
    Submit(std::move(transition));
    return status;
  }
  // An array with nothing left to be written.
  JobId Submitted(int size) {
    const JobId array = SubmitArray(size);
    Finish(/*restart=*/false);
    return array;
  }
  size_t StoredElements() { return LoadRecords<JobRecord>(*store_)->size(); }
  ArrayRecord StoredArray() { return LoadRecords<ArrayRecord>(*store_)->at(0); }
  int HeldOf(const JobId& array) {
    int held = 0;
    for (const JobId& each : state_->jobs().Named(array)) {
      held += Job(each).row.held() ? 1 : 0;
    }
    return held;
  }
};

TEST_F(ArrayRowsTest, ASubmitIsAnsweredAtOnceAndItsRowsFollow) {
  const JobId array = SubmitArray(100);
  EXPECT_LE(rows_, kTurn + kOwn);
  EXPECT_EQ(Count(array, v1::JOB_STATE_PENDING), 100);
  EXPECT_EQ(state_->line().size(), 100u);
  EXPECT_LT(StoredElements(), 20u);
  EXPECT_GE(Finish(/*restart=*/false), 9);
  EXPECT_EQ(StoredElements(), 100u);
  EXPECT_EQ(StoredArray().row.first_sequence(), 0u);
}

TEST_F(ArrayRowsTest, WhatIsLeftIsWrittenAfterARestart) {
  const JobId array = SubmitArray(100);
  JobRecord before = Job(array.Element(99));
  EXPECT_GE(Finish(/*restart=*/true), 9);
  EXPECT_EQ(StoredElements(), 100u);
  EXPECT_TRUE(std::exchange(before.behind, false));
  EXPECT_EQ(Job(array.Element(99)), before);
  // The next job is none of them.
  EXPECT_EQ(Job(SubmitJob(Spec(1, 1))).row.sequence(),
            before.row.sequence() + 1);
}

TEST_F(ArrayRowsTest, AnElementRunsBeforeItsTurn) {
  const JobId array = SubmitArray(100);
  Join(a_, 3);
  const JobId later = SubmitArray(40);
  Join(b_, 100);  // the first array's rest, and some of the second
  EXPECT_EQ(StateOf(later.Element(0)), v1::JOB_STATE_STARTING);
  Reload();
  EXPECT_EQ(StateOf(later.Element(0)), v1::JOB_STATE_STARTING);
  EXPECT_EQ(StateOf(later.Element(39)), v1::JOB_STATE_PENDING);
  Finish(/*restart=*/true);
  EXPECT_EQ(Count(array, v1::JOB_STATE_STARTING), 100);
  EXPECT_EQ(StoredElements(), 140u);
}

TEST_F(ArrayRowsTest, AnArrayIsStoppedBeforeItsRowsAreWritten) {
  const JobId array = SubmitArray(100);
  COHORT_EXPECT_OK(StopJob(array));
  Finish(/*restart=*/true);
  EXPECT_EQ(Count(array, v1::JOB_STATE_STOPPED), 100);
  EXPECT_EQ(StoredElements(), 100u);
  EXPECT_THAT(KindsOf(array),
              ElementsAre("job_submitted", "job_stop_requested"));
}

TEST_F(ArrayRowsTest, AHoldKeepsAllAtOnceAndItsRowsFollow) {
  const JobId array = Submitted(100);
  COHORT_EXPECT_OK(Hold(array));
  EXPECT_LE(rows_, kTurn + kOwn);
  EXPECT_EQ(HeldOf(array), 100);
  EXPECT_EQ(Job(array.Element(99)).row.held_by(), "alice");
  Join(a_, 10);
  EXPECT_THAT(sent_[a_], IsEmpty());
  Reload();
  EXPECT_EQ(HeldOf(array), 100);
  EXPECT_GE(Finish(/*restart=*/true), 5);
  EXPECT_EQ(HeldOf(array), 100);
  EXPECT_FALSE(StoredArray().row.has_hold());
  EXPECT_THAT(KindsOf(array), ElementsAre("job_submitted", "job_held"));
  // Once more it changes nothing.
  COHORT_EXPECT_OK(Hold(array));
  EXPECT_FALSE(state_->HasToGoOn());
}

TEST_F(ArrayRowsTest, AReleaseLetsAllGoAndItsRowsFollow) {
  const JobId array = Submitted(100);
  COHORT_EXPECT_OK(Hold(array));
  Finish(/*restart=*/false);
  COHORT_EXPECT_OK(Release(array));
  EXPECT_LE(rows_, kTurn + kOwn);
  Reload();
  EXPECT_EQ(HeldOf(array), 0);
  EXPECT_EQ(state_->line().size(), 100u);
  EXPECT_GE(Finish(/*restart=*/true), 5);
  EXPECT_EQ(HeldOf(array), 0);
  EXPECT_FALSE(StoredArray().row.has_hold());
  EXPECT_THAT(KindsOf(array),
              ElementsAre("job_submitted", "job_held", "job_released"));
}

TEST_F(ArrayRowsTest, WhoSpeaksOfAnElementMeanwhileIsHeard) {
  const JobId array = SubmitArray(100);
  COHORT_EXPECT_OK(Hold(array));
  COHORT_EXPECT_OK(Release(array.Element(98)));
  Reload();
  EXPECT_EQ(HeldOf(array), 99);
  EXPECT_FALSE(Job(array.Element(98)).row.held());
  COHORT_EXPECT_OK(Release(array));
  COHORT_EXPECT_OK(Hold(array.Element(99)));
  Finish(/*restart=*/true);
  EXPECT_EQ(HeldOf(array), 1);
  EXPECT_TRUE(Job(array.Element(99)).row.held());
}

TEST_F(ArrayRowsTest, WhatRunsWhenAnArrayIsHeldIsNotHeldLater) {
  Join(a_, 1);
  const JobId array = SubmitArray(60);
  ASSERT_EQ(StateOf(array.Element(0)), v1::JOB_STATE_STARTING);
  COHORT_EXPECT_OK(Hold(array));
  Pass(limits_.node_timeout * 2);  // it fails, and waits again
  EXPECT_EQ(StateOf(array.Element(0)), v1::JOB_STATE_PENDING);
  Reload();
  EXPECT_FALSE(Job(array.Element(0)).row.held());
  Finish(/*restart=*/true);
  EXPECT_EQ(HeldOf(array), 59);
}

// ---- phases ----

TEST_F(ArrayRowsTest, TheEndOfADependencyIsToldInTurns) {
  const JobId first = SubmitJob(Spec(1, 1));
  JobSpec spec = Spec(1, 1);
  spec.set_array("0-99%60");
  AddAfter(spec, first, v1::DEPENDENCY_KIND_ANY);
  const JobId array = SubmitJob(std::move(spec));
  Finish(/*restart=*/false);
  COHORT_EXPECT_OK(StopJob(first));
  EXPECT_LE(rows_, kTurn + kOwn);
  EXPECT_EQ(state_->line().size(), 60u);
  EXPECT_GE(Finish(/*restart=*/true), 3);
  EXPECT_EQ(Job(array.Element(59)).row.phases().rbegin()->kind(),
            v1::WAIT_KIND_RESOURCES);
  EXPECT_EQ(Job(array.Element(60)).row.phases().rbegin()->kind(),
            v1::WAIT_KIND_ARRAY);
}

TEST_F(ArrayRowsTest, AStartTellsInTurnsWhatChangedMeanwhile) {
  JobSpec spec = Spec(1, 1);
  spec.set_array("0-99");
  spec.set_start_in_us(1'000'000);
  const JobId array = SubmitJob(std::move(spec));
  Finish(/*restart=*/false);
  time_.AdvanceBy(absl::Seconds(2));
  Reload();
  EXPECT_LE(rows_, kTurn + kOwn);
  EXPECT_GE(Finish(/*restart=*/true), 5);
  EXPECT_EQ(Job(array.Element(99)).row.phases().rbegin()->kind(),
            v1::WAIT_KIND_RESOURCES);
}

}  // namespace
}  // namespace cohort::head
