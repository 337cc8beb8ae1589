#include "worker/node_state.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/resources.h"
#include "common/status_util.h"
#include "worker/testing/node_state_fixture.h"

namespace cohort::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// RC-1: a restored head ends nothing that it has never heard of.
TEST_F(NodeStateTest, AttemptsOfAnotherGenerationStayAndSayWhatTheyHold) {
  state_->Follow("g");
  v1::Desired desired;
  v1::DesiredAttempt& want = *desired.add_attempts();
  want = Want(v1::GOAL_PREPARE);
  auto* const half = want.mutable_resources_per_rank()->add_amounts();
  half->set_name(kGpu);
  half->set_ten_thousandths(5'000);
  for (v1::DesiredRank& rank : *want.mutable_ranks()) rank.add_gpu_ids("g");
  state_->Apply(desired);
  v1::Observed told = state_->TakeDelta();
  ASSERT_EQ(told.attempts_size(), 1);
  EXPECT_FALSE(told.attempts(0).has_held());

  state_->Follow("h");
  told = state_->FullObserved().front();
  ASSERT_EQ(told.attempts_size(), 1);
  EXPECT_EQ(told.attempts(0).generation(), "g");
  const v1::HeldResources& held = told.attempts(0).held();
  ASSERT_EQ(held.resources().amounts_size(), 1);
  EXPECT_EQ(held.resources().amounts(0).ten_thousandths(), 10'000);
  ASSERT_EQ(held.devices_size(), 1);
  EXPECT_EQ(held.devices(0).name(), "g");
  EXPECT_EQ(held.devices(0).ten_thousandths(), 10'000);
  state_->Apply(v1::Desired());
  EXPECT_EQ(state_->size(), 1u);

  // Adopted: wanted by the one that is followed.
  state_->Apply(desired);
  told = state_->FullObserved().front();
  EXPECT_EQ(told.attempts(0).generation(), "h");
}

TEST_F(NodeStateTest, PreparesThenWaitsForTheOrderToRun) {
  Apply(Want(v1::GOAL_PREPARE));
  EXPECT_EQ(Seen().phase(), v1::PHASE_PREPARING);
  std::move(host_.prepared)(4711);
  EXPECT_EQ(Seen().phase(), v1::PHASE_PREPARED);
  EXPECT_EQ(Seen().master_port(), 4711);
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("prepare", "start"));
}

TEST_F(NodeStateTest, IsRunningWhenEveryRankWasStarted) {
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(0);
  std::move(host_.started)(absl::OkStatus());
  EXPECT_EQ(begun_, 1);
  host_.Tell(id_, RankStarted{0, 100});
  EXPECT_EQ(Seen().phase(), v1::PHASE_STARTING);
  host_.Tell(id_, RankStarted{1, 101});
  EXPECT_EQ(Seen().phase(), v1::PHASE_RUNNING);
  EXPECT_EQ(Seen().ranks(1).pid(), 101);
}

TEST_F(NodeStateTest, TheSameGoalTwiceChangesNothing) {
  Apply(Want(v1::GOAL_RUN));
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(0);
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("prepare", "start"));
}

// RC-1
TEST_F(NodeStateTest, AFullDesiredSetWithoutAnAttemptLeavesItRunning) {
  RunToRunning();
  host_.calls.clear();
  v1::Desired empty;
  empty.set_full(true);
  state_->Apply(empty);
  EXPECT_THAT(host_.calls, IsEmpty());
  EXPECT_EQ(Seen().phase(), v1::PHASE_RUNNING);
}

TEST_F(NodeStateTest, AFailedRankRevokesTheGangAndIsFirst) {
  RunToRunning();
  host_.calls.clear();
  host_.Tell(id_, Exited(1, 0, 9));
  EXPECT_THAT(host_.calls, ElementsAre("revoke"));
  host_.Tell(id_, Exited(0, 1, 0, ExitStatus::Cause::kStopped));
  const v1::ObservedAttempt seen = Seen();
  EXPECT_EQ(seen.ranks(1).exit_order(), 1);
  EXPECT_EQ(seen.ranks(1).exit().signal(), 9);
  EXPECT_FALSE(seen.ranks(1).ended_by_order());
  EXPECT_TRUE(seen.ranks(0).ended_by_order());
  EXPECT_EQ(seen.stderr_tail(), "the tail");
  EXPECT_EQ(seen.phase(), v1::PHASE_RUNNING) << "not before the tree is gone";
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().phase(), v1::PHASE_ENDED);
}

TEST_F(NodeStateTest, TheEndIsReportedWithTheFailedRanksLastWords) {
  RunToRunning();
  host_.hold_tail = true;
  host_.Tell(id_, Exited(1, 3));
  host_.Tell(id_, Exited(0, 0, 15, ExitStatus::Cause::kStopped));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().phase(), v1::PHASE_RUNNING);
  std::move(host_.tail)("why");
  EXPECT_EQ(Seen().phase(), v1::PHASE_ENDED);
  EXPECT_EQ(Seen().stderr_tail(), "why");
}

// RC-3
TEST_F(NodeStateTest, TheReportIsKeptUntilForget) {
  RunToRunning();
  for (int rank : {0, 1}) host_.Tell(id_, Exited(rank, 0));
  host_.Tell(id_, AllDone{});
  Restart();
  EXPECT_TRUE(restored_);
  EXPECT_EQ(Seen().phase(), v1::PHASE_ENDED);
  EXPECT_EQ(Seen().ranks(0).exit().code(), 0);
  Apply(Want(v1::GOAL_FORGET));
  EXPECT_EQ(state_->size(), 0u);
  EXPECT_THAT(host_.journal, IsEmpty());
}

TEST_F(NodeStateTest, ForgetKillsWhatRunsAndForgetsWhenItIsGone) {
  RunToRunning();
  host_.calls.clear();
  Apply(Want(v1::GOAL_FORGET));
  Apply(Want(v1::GOAL_FORGET));
  EXPECT_THAT(host_.calls, ElementsAre("revoke", "kill"));
  host_.Tell(id_, AllDone{});
  EXPECT_THAT(host_.calls, ElementsAre("revoke", "kill", "forget"));
  EXPECT_EQ(state_->size(), 0u);
}

// Found by the simulation: the head went on holding what a ghost had reserved.
TEST_F(NodeStateTest, ForgetOfWhatNeverRanSaysThatItIsOver) {
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(4711);
  state_->TakeDelta();
  host_.hold_forget = true;
  Apply(Want(v1::GOAL_FORGET));
  const v1::Observed delta = state_->TakeDelta();
  ASSERT_EQ(delta.attempts_size(), 1);
  EXPECT_EQ(delta.attempts(0).phase(), v1::PHASE_ENDED);
}

TEST_F(NodeStateTest, StopBeforeTheRanksStartedNeverStartsThem) {
  Apply(Want(v1::GOAL_RUN));
  Apply(Want(v1::GOAL_STOP));
  std::move(host_.prepared)(0);
  EXPECT_EQ(Seen().phase(), v1::PHASE_ENDED);
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
}

TEST_F(NodeStateTest, StopDuringTheStartReachesTheRanks) {
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(0);
  Apply(Want(v1::GOAL_STOP));
  std::move(host_.started)(absl::OkStatus());
  EXPECT_THAT(host_.calls,
              ElementsAre("prepare", "start", "revoke", "stop 3s"));
}

TEST_F(NodeStateTest, StopOfAnUnknownAttemptIsAnsweredAsMissing) {
  Apply(Want(v1::GOAL_STOP));
  EXPECT_EQ(Seen().phase(), v1::PHASE_ENDED);
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_MISSING);
}

TEST_F(NodeStateTest, AFailedPreparationEndsThePartWithItsReason) {
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(absl::ResourceExhaustedError("/dev/shm is full"));
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_PREPARE_FAILED);
  EXPECT_EQ(Seen().detail(), "/dev/shm is full");
  EXPECT_THAT(faults_, IsEmpty());
}

TEST_F(NodeStateTest, ItsOwnFaultIsToldBeforeTheEndOfThePart) {
  const absl::Status full =
      SetReason(absl::ResourceExhaustedError("/state is full"), kNodeFault);
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(full);
  EXPECT_THAT(faults_, ElementsAre("/state is full"));
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_NODE_FAILED);
  EXPECT_EQ(Seen().detail(), "/state is full");
  Apply(Want(v1::GOAL_FORGET));
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  std::move(host_.started)(full);
  EXPECT_THAT(faults_, SizeIs(2));
  EXPECT_EQ(begun_, 0);
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_NODE_FAILED);
}

TEST_F(NodeStateTest, SaysWhenTheHeadHasLostThePackage) {
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(
      SetReason(absl::NotFoundError("no package"), kPackageLost));
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_PACKAGE_LOST);
  EXPECT_EQ(Seen().detail(), "no package");
}

TEST_F(NodeStateTest, NothingIsMadeThatTheJournalDoesNotHold) {
  host_.save_status = absl::UnavailableError("disk full");
  Apply(Want(v1::GOAL_PREPARE));
  EXPECT_THAT(host_.calls, IsEmpty());
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_PREPARE_FAILED);
}

TEST_F(NodeStateTest, ARestartedDaemonTakesItsRanksOver) {
  RunToRunning();
  Restart();
  EXPECT_FALSE(restored_);
  EXPECT_THAT(host_.calls, ElementsAre("adopt"));
  AdoptedAttempt adopted;
  adopted.phase = AttemptPhase::kRunning;
  std::move(host_.adopted)(adopted);
  EXPECT_TRUE(restored_);
  EXPECT_EQ(Seen().phase(), v1::PHASE_RUNNING);
  host_.Tell(id_, RankStarted{0, 100});  // the story from its beginning
  host_.Tell(id_, Exited(0, 5));
  EXPECT_EQ(Seen().ranks(0).exit().code(), 5);
}

TEST_F(NodeStateTest, WhatNeverRanIsPreparedAgainWhenTheHeadRepeatsItsGoal) {
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);  // Start is under way: the daemon dies
  Restart();
  std::move(host_.adopted)(absl::NotFoundError("no such attempt"));
  EXPECT_TRUE(restored_);
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("adopt", "prepare"));
}

TEST_F(NodeStateTest, WhatWasBeingPreparedIsPreparedAgainAfterARestart) {
  Apply(Want(v1::GOAL_PREPARE));  // the daemon dies meanwhile
  Restart();
  EXPECT_TRUE(restored_);
  Apply(Want(v1::GOAL_PREPARE));
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
  std::move(host_.prepared)(4711);
  Restart();  // prepared, and the port is free again
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
}

TEST_F(NodeStateTest, WhatIsBeingForgottenIsNotSavedAgain) {
  RunToRunning();
  host_.hold_forget = true;
  Apply(Want(v1::GOAL_FORGET));
  host_.Tell(id_, AllDone{});
  v1::Acknowledge acknowledge;
  acknowledge.add_checkpoints()->set_attempt_id(std::string(id_.bytes()));
  state_->Acknowledge(acknowledge);
  EXPECT_THAT(host_.journal, IsEmpty());
}

TEST_F(NodeStateTest, ALostKeeperEndsThePart) {
  RunToRunning();
  host_.Tell(id_, Exited(0, 0, 9, ExitStatus::Cause::kKeeperLost));
  host_.Tell(id_, KeeperLost{"keeper 12 died"});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_KEEPER_LOST);
  EXPECT_EQ(Seen().detail(), "keeper 12 died");
}

// ---- a keeper that got SIGTERM ----

TEST_F(NodeStateTest, AKeeperThatWasToldToStopIsLostWhateverItsRanksSay) {
  RunToRunning();
  host_.calls.clear();
  host_.Tell(id_, Exited(0, 0, 0, ExitStatus::Cause::kKeeperStopped));
  EXPECT_THAT(host_.calls, ElementsAre("revoke"));
  host_.Tell(id_, Exited(1, 1, 0, ExitStatus::Cause::kKeeperStopped));
  host_.Tell(id_, AllDone{});
  const v1::ObservedAttempt seen = Seen();
  EXPECT_EQ(seen.end_cause(), v1::END_CAUSE_KEEPER_LOST);
  EXPECT_THAT(seen.detail(), HasSubstr("told to stop (SIGTERM)"));
  EXPECT_THAT(seen.detail(), HasSubstr("shutdown of the machine"));
  EXPECT_TRUE(seen.ranks(1).ended_by_order());
  EXPECT_EQ(seen.ranks(1).exit().detail(), seen.detail());
}

TEST_F(NodeStateTest, ARestartedDaemonHearsThatAKeeperWasToldToStop) {
  RunToRunning();
  Restart();
  AdoptedAttempt adopted;
  adopted.phase = AttemptPhase::kDone;
  std::move(host_.adopted)(adopted);
  for (int rank : {0, 1}) {
    host_.Tell(id_, Exited(rank, 0, 0, ExitStatus::Cause::kKeeperStopped));
  }
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_KEEPER_LOST);
}

TEST_F(NodeStateTest, ARankThatFailedBeforeItsKeeperWasToldIsWhatEndedIt) {
  RunToRunning();
  host_.Tell(id_, Exited(1, 3));
  host_.Tell(id_, Exited(0, 0, 15, ExitStatus::Cause::kKeeperStopped));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
}

// It can only come as a signal where the keeper's socket is gone.
TEST_F(NodeStateTest, AnOrderOfOursIsNoStopFromOutside) {
  RunToRunning();
  Apply(Want(v1::GOAL_STOP));
  for (int rank : {0, 1}) {
    host_.Tell(id_, Exited(rank, 0, 15, ExitStatus::Cause::kKeeperStopped));
  }
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen().ranks(0).exit().detail(), "");
}

// ---- the time limit (TL-1): the keeper keeps it, this side says so ----

RankExited TimeIsUp(int rank, absl::Duration ran) {
  RankExited exited = Exited(rank, 0, 15, ExitStatus::Cause::kTimeLimit);
  exited.status.ran = ran;
  return exited;
}

TEST_F(NodeStateTest, ReportsTheTimeLimitWithHowLongItsRanksRan) {
  RunToRunning();
  host_.calls.clear();
  host_.Tell(id_, TimeIsUp(1, absl::Milliseconds(5'100)));
  EXPECT_THAT(host_.calls, ElementsAre("revoke"));
  host_.Tell(id_, TimeIsUp(0, absl::Milliseconds(5'200)));
  EXPECT_EQ(Seen().phase(), v1::PHASE_RUNNING);
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_TIME_LIMIT);
  EXPECT_TRUE(Seen().ranks(0).ended_by_order());
  EXPECT_EQ(Seen().ranks(1).exit().signal(), 15);
  EXPECT_EQ(Seen().stderr_tail(), "the tail");
  EXPECT_EQ(Seen().ran().seconds(), 5);
  EXPECT_EQ(Seen().ran().nanos(), 200'000'000);
}

TEST_F(NodeStateTest, ARankThatFailedBeforeTheTimeLimitIsWhatEndedIt) {
  RunToRunning();
  host_.Tell(id_, Exited(1, 3));  // no head was there to stop its siblings
  host_.Tell(id_, TimeIsUp(0, absl::Seconds(5)));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen().ran().seconds(), 5);
}

TEST_F(NodeStateTest, ARestartedDaemonHearsOfTheTimeLimitAgain) {
  RunToRunning();
  host_.Tell(id_, TimeIsUp(0, absl::Seconds(5)));
  Restart();
  AdoptedAttempt adopted;
  adopted.phase = AttemptPhase::kDone;
  std::move(host_.adopted)(adopted);
  host_.Tell(id_, TimeIsUp(0, absl::Seconds(5)));
  host_.Tell(id_, TimeIsUp(1, absl::Seconds(6)));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_TIME_LIMIT);
  EXPECT_EQ(Seen().ran().seconds(), 6);
}

TEST_F(NodeStateTest, RanksThatEndByThemselvesAreNoTimeout) {
  RunToRunning();
  host_.Tell(id_, Exited(0, 0));
  host_.Tell(id_, Exited(1, 0));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
}

TEST_F(NodeStateTest, TakeAlongEndsEverythingAsTheDaemonsDoing) {
  RunToRunning();
  bool ended = false;
  bool forgotten = false;
  state_->TakeAlong(
      absl::Seconds(10), [&] { ended = true; }, [&] { forgotten = true; });
  EXPECT_FALSE(ended);
  for (int rank : {0, 1}) {
    host_.Tell(id_, Exited(rank, 0, 15, ExitStatus::Cause::kStopped));
  }
  host_.Tell(id_, AllDone{});
  EXPECT_TRUE(ended);
  EXPECT_FALSE(forgotten) << "the head has not recorded it";
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DAEMON_SHUTDOWN);
  Apply(Want(v1::GOAL_FORGET));
  EXPECT_TRUE(forgotten);
}

TEST_F(NodeStateTest, TakeAlongIsDoneAtOnceWhenNothingIsHere) {
  bool ended = false;
  bool forgotten = false;
  state_->TakeAlong(
      absl::Seconds(10), [&] { ended = true; }, [&] { forgotten = true; });
  EXPECT_TRUE(ended);
  EXPECT_TRUE(forgotten);
}

TEST_F(NodeStateTest, WhatIsTakenAlongKeepsItsGraceWhenAPeerHasEnded) {
  RunToRunning();
  state_->TakeAlong(
      absl::Seconds(10), [] {}, [] {});
  host_.calls.clear();
  Apply(Want(v1::GOAL_STOP));
  EXPECT_THAT(host_.calls, IsEmpty());
}

TEST_F(NodeStateTest, WhatIsPlacedHereDuringTakeAlongEndsUnstarted) {
  state_->TakeAlong(
      absl::Seconds(10), [] {}, [] {});
  Apply(Want(v1::GOAL_PREPARE));
  EXPECT_EQ(Seen().phase(), v1::PHASE_ENDED);
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DAEMON_SHUTDOWN);
  EXPECT_THAT(host_.calls, IsEmpty());
}

// CK-2

// RC-3: 125 of them would not fit in one message.
TEST_F(NodeStateTest, LastWordsFollowTheStateAndAreKeptUntilTheyAreRecorded) {
  RunToRunning();
  host_.Tell(id_, Exited(1, 3));
  host_.Tell(id_, Exited(0, 0, 15, ExitStatus::Cause::kStopped));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(state_->TakeDelta().attempts(0).stderr_tail(), "the tail");
  const std::vector<v1::Observed> chunks = state_->FullObserved();
  EXPECT_EQ(chunks.front().attempts(0).phase(), v1::PHASE_ENDED);
  EXPECT_EQ(chunks.front().attempts(0).stderr_tail(), "");
  EXPECT_EQ(state_->TakeDelta().attempts(0).stderr_tail(), "the tail");
  EXPECT_EQ(state_->TakeDelta().attempts_size(), 0) << "once a stream";

  // A restarted daemon, and its end is recorded before they are.
  Restart();
  state_->FullObserved();
  Apply(Want(v1::GOAL_FORGET));
  EXPECT_EQ(state_->size(), 1u);
  EXPECT_EQ(state_->TakeDelta().attempts(0).stderr_tail(), "the tail");
  v1::Acknowledge acknowledge;
  acknowledge.add_words(std::string(id_.bytes()));
  state_->Acknowledge(acknowledge);
  EXPECT_EQ(state_->size(), 0u);
  EXPECT_THAT(host_.journal, IsEmpty());
}

TEST_F(NodeStateTest, RecordedWordsAreNotSaidAgain) {
  RunToRunning();
  host_.Tell(id_, Exited(1, 3));
  v1::Acknowledge acknowledge;
  acknowledge.add_words(std::string(id_.bytes()));
  acknowledge.add_words("nonsense");
  state_->Acknowledge(acknowledge);
  EXPECT_EQ(state_->TakeDelta().attempts(0).stderr_tail(), "");
  EXPECT_EQ(Seen().stderr_tail(), "");
}

TEST_F(NodeStateTest, ALargeSetGoesInChunks) {
  std::set<std::string> ended;
  for (int i = 0; i < 100; ++i) {
    v1::DesiredAttempt want = Want(v1::GOAL_PREPARE);
    want.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
    ended.insert(want.attempt_id());
    Apply(want);
    std::move(host_.prepared)(absl::UnknownError(std::string(64 << 10, 'x')));
  }
  const std::vector<v1::Observed> chunks = state_->FullObserved();
  EXPECT_GT(chunks.size(), 5u);
  for (const v1::Observed& chunk : chunks) {
    EXPECT_TRUE(chunk.full());
    EXPECT_EQ(chunk.more(), &chunk != &chunks.back());
    EXPECT_LT(chunk.ByteSizeLong(), size_t{2} << 20);
    for (const auto& attempt : chunk.attempts()) {
      EXPECT_EQ(ended.erase(attempt.attempt_id()), 1u);
    }
  }
  EXPECT_THAT(ended, IsEmpty());
  EXPECT_EQ(state_->TakeDelta().attempts_size(), 0);
}

}  // namespace
}  // namespace cohort::worker
