#include "head/state/unclaimed_list.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "head/explain/explanation.h"
#include "head/state/testing/unclaimed_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class UnclaimedListTest : public UnclaimedTest {
 protected:
  // One rank on each of the two nodes, running.
  JobId RunGang() {
    Join(kNode, {}, 1);
    Join(kOther, {}, 1);
    JobSpec spec;
    spec.command = {"train"};
    spec.num_workers = 2;
    spec.max_failures = 3;
    spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
    Transition transition;
    const JobId job = *state_->SubmitJob(Key(), "default", spec, transition);
    Submit(std::move(transition));
    Say(kNode, At(job, ObservedPhase::kPrepared));
    Say(kOther, At(job, ObservedPhase::kPrepared));
    Say(kNode, At(job, ObservedPhase::kRunning));
    Say(kOther, At(job, ObservedPhase::kRunning));
    EXPECT_EQ(Job(job).state, JobState::kRunning);
    return job;
  }
  JobId SubmitArray(const std::string& array) {
    JobSpec spec;
    spec.command = {"train"};
    spec.array = array;
    spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
    Transition transition;
    const JobId id = *state_->SubmitJob(Key(), "default", spec, transition);
    Submit(std::move(transition));
    return id;
  }
  std::vector<ListedAttempt> List() { return ListUnclaimed(*state_, 10); }
};

TEST_F(UnclaimedListTest, AGangIsAwayUntilAllOfItsNodesAreHere) {
  const JobId job = RunGang();
  const ObservedAttempt running = At(job, ObservedPhase::kRunning);
  Backup();
  Restore();
  Join(kNode, {running}, 1);
  ASSERT_THAT(List(), SizeIs(1));
  EXPECT_STREQ(List()[0].state, "AWAY") << "one node was never heard of";
  Join(kOther, {running}, 1);
  EXPECT_STREQ(List()[0].state, "RUNNING");
  EXPECT_THAT(List()[0].nodes, ElementsAre(kNode, kOther));
  state_->WithdrawNode(kOther, state_->nodes().Find(kOther)->incarnation);
  EXPECT_STREQ(List()[0].state, "AWAY") << "its daemon went";
  Join(kOther, {running}, 1);
  EXPECT_STREQ(List()[0].state, "RUNNING");
  silent_ = {kOther};
  Settle();
  EXPECT_STREQ(List()[0].state, "AWAY") << "it is dead";
}

TEST_F(UnclaimedListTest, AdoptingOneOfWhichANodeIsDeadLosesThatNode) {
  const JobId job = RunGang();
  const ObservedAttempt running = At(job, ObservedPhase::kRunning);
  Backup();
  Restore();
  Join(kNode, {running}, 1);
  silent_ = {kOther};
  Settle();

  EXPECT_THAT(Adopt(running.attempt), IsOkAndHolds(job));

  const AttemptRecord& attempt = *state_->attempts().Find(running.attempt);
  EXPECT_THAT(LostNodesOf(attempt), ElementsAre(kOther));
  EXPECT_EQ(attempt.state, AttemptState::kEnding);
}

TEST_F(UnclaimedListTest, AnAdoptedOneWhoseNodesAreHereHasLostNone) {
  const JobId job = RunGang();
  const ObservedAttempt running = At(job, ObservedPhase::kRunning);
  Backup();
  Restore();
  Join(kNode, {running}, 1);
  Join(kOther, {running}, 1);
  EXPECT_THAT(Adopt(running.attempt), IsOkAndHolds(job));
  EXPECT_THAT(LostNodesOf(*state_->attempts().Find(running.attempt)),
              IsEmpty());
}

TEST_F(UnclaimedListTest, EndingOneOfWhichANodeIsDeadIsWhatAPersonSaid) {
  const JobId job = RunGang();
  const ObservedAttempt running = At(job, ObservedPhase::kRunning);
  Backup();
  Restore();
  Join(kNode, {running}, 1);
  silent_ = {kOther};
  Settle();

  EXPECT_THAT(End(running.attempt), IsOkAndHolds(job));

  for (const bool restarted : {false, true}) {
    if (restarted) Load();
    ASSERT_THAT(List(), SizeIs(1)) << restarted;
    EXPECT_STREQ(List()[0].state, "ENDING");
    EXPECT_THAT(List()[0].nodes, ElementsAre(kNode));
    EXPECT_THAT(Explain(*state_, Job(job), false).summary,
                HasSubstr("a person has ended attempt"));
  }
  Join(kNode, {running}, 1);
  Say(kNode, Ended(running, 143));
  EXPECT_EQ(state_->attempts().Find(running.attempt)->cause,
            EndCause::kUnclaimed);
  EXPECT_EQ(Job(job).infra_restarts, 0);
}

TEST_F(UnclaimedListTest, AJobThatTheStoreLacksNamesItsAttempt) {
  Join(kNode);
  Backup();
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Transition transition;
  EXPECT_THAT(state_->StopJob(Key(), job, transition),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("attempt " + running.attempt.ToHex() +
                                 " of it is unclaimed")));
}

// One with a row is an attempt as any other then, but for what people see.
TEST_F(UnclaimedListTest, OneThatIsEndedIsListedUntilItsNodeHasSaidSo) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  EXPECT_THAT(End(running.attempt), IsOkAndHolds(job));

  ASSERT_THAT(List(), SizeIs(1));
  EXPECT_STREQ(List()[0].state, "ENDING");
  EXPECT_TRUE(List()[0].has_row);
  EXPECT_THAT(List()[0].nodes, ElementsAre(kNode));
  const std::string away = "a person has ended attempt " +
                           running.attempt.ToHex() +
                           ", unclaimed since the store was restored; node-n, "
                           "which is away, has not said yet that it is gone";
  EXPECT_EQ(state_->ReasonOf(Job(job)), away);
  EXPECT_EQ(Explain(*state_, Job(job), false).summary, away);

  Load();
  ASSERT_THAT(List(), SizeIs(1)) << "the head after this one knows it too";
  Join(kNode, {running});
  EXPECT_THAT(state_->ReasonOf(Job(job)),
              HasSubstr("; node-n has not said yet that it is gone"));
  Say(kNode, Ended(running, 1));
  EXPECT_THAT(List(), IsEmpty());
  EXPECT_THAT(state_->ReasonOf(Job(job)), Not(HasSubstr("a person")));
}

// ---- what an array waits for ----

TEST_F(UnclaimedListTest, PlacesOfAnArrayThatAreUnclaimedAreNamed) {
  Join(kNode, {}, 4);
  const JobId array = SubmitArray("0-3%1");
  const ObservedAttempt zero = Run(array.Element(0), kNode);
  Backup();
  Restore();
  Join(kNode, {zero}, 4);
  Settle();

  const Explanation why = Explain(*state_, Job(array.Element(1)), false);

  ASSERT_THAT(why.others, SizeIs(1));
  EXPECT_EQ(why.others[0].text,
            "1 element of " + array.ToText() +
                " runs or is about to, its limit; of these 1 is unclaimed "
                "since the store was restored: " +
                array.Element(0).ToText() + " (attempt " +
                zero.attempt.ToHex() + ")");
  std::vector<std::string> kinds, hows;
  for (const NamedChange& change : why.changes) {
    kinds.push_back(change.kind);
    hows.push_back(change.how);
  }
  EXPECT_THAT(kinds,
              ElementsAre("RAISE_ARRAY_LIMIT", "ADOPT_ATTEMPT", "END_ATTEMPT"));
  EXPECT_THAT(
      hows, ElementsAre("--array 0-3%2", "cohort adopt " + zero.attempt.ToHex(),
                        "cohort end " + zero.attempt.ToHex()));
  EXPECT_THAT(ExplainArray(*state_, array, false).summary,
              HasSubstr("of these 1 is unclaimed"));
}

// Begun after the backup, so that its element waits for it here.
TEST_F(UnclaimedListTest, AnElementThatWaitsForItsUnclaimedAttemptIsCounted) {
  Join(kNode);
  const JobId array = SubmitArray("0-3%1");
  const ObservedAttempt zero = Run(array.Element(0), kNode);
  Backup();
  Say(kNode, Ended(zero, 0));
  const ObservedAttempt one = Run(array.Element(1), kNode);
  Restore();
  Join(kNode, {Ended(zero, 0), one});
  Settle();

  const Explanation why = ExplainArray(*state_, array, false);

  EXPECT_THAT(why.elements,
              ElementsAre(WaitingElements{"array", 2, array.Element(2)},
                          WaitingElements{"unclaimed", 1, array.Element(1)}));
}

}  // namespace
}  // namespace cohort::head
