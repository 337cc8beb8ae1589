#include "head/state/orphan_list.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/state/testing/orphan_fixture.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class OrphanListTest : public OrphansTest {
 protected:
  // One rank on each of the two nodes, running.
  JobId RunGang() {
    Join(kNode, {}, 1);
    Join(kOtherNode, {}, 1);
    JobSpec spec = OneWorker();
    SetCommand(spec, {"train"});
    spec.mutable_scaling()->set_num_workers(2);
    spec.mutable_run()->set_max_failures(3);
    SetResource(spec, kCpu, Amount::FromUnits(1));
    Transition transition;
    const JobId job = *state_->SubmitJob(Key(), "default", spec, transition);
    Submit(std::move(transition));
    Say(kNode, At(job, Stage::kPrepared));
    Say(kOtherNode, At(job, Stage::kPrepared));
    Say(kNode, At(job, Stage::kRunning));
    Say(kOtherNode, At(job, Stage::kRunning));
    EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_RUNNING);
    return job;
  }
  std::vector<ListedAttempt> List() { return ListOrphans(*state_, 10); }
};

TEST_F(OrphanListTest, AGangIsAwayUntilAllOfItsNodesAreHere) {
  const JobId job = RunGang();
  const v1::ObservedPlace running = At(job, Stage::kRunning);
  Backup();
  Restore();
  Join(kNode, {running}, 1);
  ASSERT_THAT(List(), SizeIs(1));
  EXPECT_STREQ(List()[0].state, "AWAY") << "one node was never heard of";
  Join(kOtherNode, {running}, 1);
  EXPECT_STREQ(List()[0].state, "RUNNING");
  EXPECT_THAT(List()[0].nodes, ElementsAre(kNode, kOtherNode));
  state_->WithdrawNode(kOtherNode,
                       state_->nodes().Find(kOtherNode)->node.incarnation());
  EXPECT_STREQ(List()[0].state, "AWAY") << "its daemon went";
  Join(kOtherNode, {running}, 1);
  EXPECT_STREQ(List()[0].state, "RUNNING");
  silent_ = {kOtherNode};
  Settle();
  EXPECT_STREQ(List()[0].state, "AWAY") << "it is dead";
}

TEST_F(OrphanListTest, AdoptingOneOfWhichANodeIsDeadLosesThatNode) {
  const JobId job = RunGang();
  const v1::ObservedPlace running = At(job, Stage::kRunning);
  Backup();
  Restore();
  Join(kNode, {running}, 1);
  silent_ = {kOtherNode};
  Settle();

  EXPECT_THAT(Adopt(AttemptOf(running)), IsOkAndHolds(job));

  const AttemptRecord& attempt = *state_->attempts().Find(AttemptOf(running));
  EXPECT_THAT(LostNodesOf(attempt), ElementsAre(kOtherNode));
  EXPECT_EQ(attempt.state, v1::ATTEMPT_STATE_ENDING);
}

TEST_F(OrphanListTest, AnAdoptedOneWhoseNodesAreHereHasLostNone) {
  const JobId job = RunGang();
  const v1::ObservedPlace running = At(job, Stage::kRunning);
  Backup();
  Restore();
  Join(kNode, {running}, 1);
  Join(kOtherNode, {running}, 1);
  EXPECT_THAT(Adopt(AttemptOf(running)), IsOkAndHolds(job));
  EXPECT_THAT(LostNodesOf(*state_->attempts().Find(AttemptOf(running))),
              IsEmpty());
}

TEST_F(OrphanListTest, EndingOneOfWhichANodeIsDeadIsWhatAPersonSaid) {
  const JobId job = RunGang();
  const v1::ObservedPlace running = At(job, Stage::kRunning);
  Backup();
  Restore();
  Join(kNode, {running}, 1);
  silent_ = {kOtherNode};
  Settle();

  EXPECT_THAT(End(AttemptOf(running)), IsOkAndHolds(job));

  for (const bool restarted : {false, true}) {
    if (restarted) Load();
    ASSERT_THAT(List(), SizeIs(1)) << restarted;
    EXPECT_STREQ(List()[0].state, "ENDING");
    EXPECT_THAT(List()[0].nodes, ElementsAre(kNode));
    EXPECT_THAT(state_->ReasonOf(Job(job)),
                HasSubstr("a person has ended attempt"));
  }
  Join(kNode, {running}, 1);
  Say(kNode, Ended(running, 143));
  EXPECT_EQ(state_->attempts().Find(AttemptOf(running))->cause,
            v1::ATTEMPT_CAUSE_ORPHAN);
  EXPECT_EQ(Job(job).row.infra_restarts(), 0);
}

TEST_F(OrphanListTest, AJobThatTheStoreLacksNamesItsAttempt) {
  Join(kNode);
  Backup();
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Transition transition;
  EXPECT_THAT(state_->StopJob(Key(), job, transition),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("attempt " + AttemptOf(running).ToHex() +
                                 " of it is an orphan")));
}

// One with a row is an attempt as any other then, but for what people see.
TEST_F(OrphanListTest, OneThatIsEndedIsListedUntilItsNodeHasSaidSo) {
  Join(kNode);
  const JobId job = NewJob();
  const v1::ObservedPlace running = Run(job, kNode);
  Backup();
  Restore();
  EXPECT_THAT(End(AttemptOf(running)), IsOkAndHolds(job));

  ASSERT_THAT(List(), SizeIs(1));
  EXPECT_STREQ(List()[0].state, "ENDING");
  EXPECT_THAT(List()[0].nodes, ElementsAre(kNode));
  const std::string away = "a person has ended attempt " +
                           AttemptOf(running).ToHex() +
                           ", an orphan since the store was restored; node-n, "
                           "which is away, has not said yet that it is gone";
  EXPECT_EQ(state_->ReasonOf(Job(job)), away);

  Load();
  ASSERT_THAT(List(), SizeIs(1)) << "the head after this one knows it too";
  Join(kNode, {running});
  EXPECT_THAT(state_->ReasonOf(Job(job)),
              HasSubstr("; node-n has not said yet that it is gone"));
  Say(kNode, Ended(running, 1));
  EXPECT_THAT(List(), IsEmpty());
  EXPECT_THAT(state_->ReasonOf(Job(job)), Not(HasSubstr("a person")));
}

}  // namespace
}  // namespace cohort::head
