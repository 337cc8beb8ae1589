// NodeState's processes: how they begin, are ended, and what is told of it.

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "worker/testing/node_state_fixture.h"

namespace cohort::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr auto kStopped = ExitCause::kStopped;
constexpr auto kKeeperStopped = ExitCause::kKeeperStopped;
constexpr auto kKeeperLost = ExitCause::kKeeperLost;

TEST_F(NodeStateTest, AProcessRunsOnceItWasStarted) {
  Begin(Want(v1::GOAL_RUN));
  EXPECT_EQ(begun_, 1);
  TellStarted(0);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_STARTING);
  TellStarted(1);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_RUNNING);
  EXPECT_EQ(Seen(1).pid(), 101);
}

TEST_F(NodeStateTest, ALaterProcessOfAPreparedPlaceBeginsAtOnce) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  host_.calls.clear();
  want.set_epoch(8);
  want.set_world_size(3);
  want.add_members(3);
  AddProcess(want, {id_, 2, 3}, v1::GOAL_RUN);
  Apply(want);
  EXPECT_THAT(host_.calls, ElementsAre("begin 2.3"));
  std::move(host_.begun)(absl::OkStatus());
  EXPECT_EQ(Seen(2).state(), v1::PROCESS_STATE_STARTING);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
  // Each keeps what it was begun with.
  EXPECT_EQ(host_.processes.at(Id(0)).begun.epoch(), 7);
  EXPECT_EQ(host_.processes.at(Id(0)).begun.world_size(), 2);
  EXPECT_EQ(host_.processes.at({id_, 2, 3}).begun.epoch(), 8);
}

// PR-2: also for the machine's sake; a lost record would begin it twice.
TEST_F(NodeStateTest, ThatItIsBegunIsOnDiskBefore) {
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(4711);
  host_.save_status = absl::UnavailableError("disk full");
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_ENDED);
  host_.save_status = absl::OkStatus();
  Apply(Want(v1::GOAL_FORGET));
  Begin(Want(v1::GOAL_RUN));
  EXPECT_EQ(host_.process_durability, Durability::kMachine);
}

TEST_F(NodeStateTest, WhatCannotBeBegunEndsAsACommandThatCannotBeRun) {
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  std::move(host_.begun)(absl::InvalidArgumentError("16,385 arguments"));
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(0).exit().code(), 126);
  EXPECT_EQ(Seen(0).exit().detail(), "16,385 arguments");
  EXPECT_THAT(faults_, IsEmpty());
}

// ---- incarnations ----

// PR-1
TEST_F(NodeStateTest, AHigherIncarnationWaitsForTheEndOfTheLower) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  host_.calls.clear();
  want.clear_processes();
  AddProcess(want, {id_, 0, 3}, v1::GOAL_RUN);
  Apply(want);
  EXPECT_THAT(host_.calls, IsEmpty());
  EXPECT_EQ(Seen().processes_size(), 3);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
  TellExited(0, 0);
  EXPECT_THAT(host_.calls, IsEmpty());
  TellEnded(0);
  EXPECT_THAT(host_.calls, ElementsAre("begin 0.3"));
}

// PR-3
TEST_F(NodeStateTest, ALowerIncarnationThatWaitsIsNotBegunAfterAHigher) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Apply(want);
  AddProcess(want, {id_, 0, 3}, v1::GOAL_RUN);
  Apply(want);
  std::move(host_.prepared)(4711);
  EXPECT_THAT(host_.calls, ElementsAre("prepare", "begin 0.3 1.2"));
}

// PR-3: the head of a restored store is told, so that it counts on.
TEST_F(NodeStateTest, ALowerIncarnationIsMissing) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  want.clear_processes();
  AddProcess(want, {id_, 0, 5}, v1::GOAL_RUN);
  Run(want);
  host_.calls.clear();
  want.clear_processes();
  AddProcess(want, {id_, 0, 4}, v1::GOAL_RUN);
  Apply(want);
  EXPECT_THAT(host_.calls, IsEmpty());
  ASSERT_EQ(Seen().processes_size(), 2);
  EXPECT_EQ(Seen().processes(0).incarnation(), 4u);
  EXPECT_EQ(Seen().processes(0).end_cause(), v1::END_CAUSE_MISSING);
  EXPECT_EQ(Seen().processes(1).state(), v1::PROCESS_STATE_RUNNING);
}

// PR-2
TEST_F(NodeStateTest, AnIncarnationThatWasHereIsNotBegunAgain) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  TellExited(0, 0);
  TellEnded(0);
  v1::DesiredPlace forget = want;
  forget.mutable_processes(0)->set_goal(v1::GOAL_FORGET);
  for (const bool is_restarted : {false, true}) {
    Apply(forget);
    EXPECT_EQ(Seen().processes_size(), 1);
    if (is_restarted) {
      Restart();
      std::move(host_.adopted)(AllKnown());
    }
    host_.calls.clear();
    Apply(want);
    EXPECT_THAT(host_.calls, IsEmpty());
    EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_ENDED);
    EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_MISSING);
  }
}

// ---- stop and forget ----

TEST_F(NodeStateTest, StopBeforeItStartedNeverStartsIt) {
  Apply(Want(v1::GOAL_RUN));
  Apply(Want(v1::GOAL_STOP));
  std::move(host_.prepared)(0);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(0).detail(), "stopped before it started");
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
}

TEST_F(NodeStateTest, StopDuringTheStartReachesIt) {
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(0);
  Apply(Want(v1::GOAL_STOP));
  std::move(host_.begun)(absl::OkStatus());
  EXPECT_THAT(host_.calls, ElementsAre("prepare", "begin 0.1 1.2", "revoke",
                                       "stop 0.1 3s", "stop 1.2 3s"));
}

TEST_F(NodeStateTest, StopOfOneLeavesTheOthers) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  host_.calls.clear();
  want.mutable_processes(1)->set_goal(v1::GOAL_STOP);
  Apply(want);
  EXPECT_THAT(host_.calls, ElementsAre("stop 1.2 3s"));
  TellExited(1, Status(0, 15, kStopped));
  TellEnded(1);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_TRUE(Seen(1).ended_by_order());
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
}

TEST_F(NodeStateTest, StopOfAnUnknownProcessIsAnsweredAsMissing) {
  Apply(Want(v1::GOAL_STOP));
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_MISSING);
  EXPECT_THAT(host_.calls, IsEmpty());
}

TEST_F(NodeStateTest, ForgetOfAProcessDropsItsRecordAlone) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  host_.calls.clear();
  want.mutable_processes(1)->set_goal(v1::GOAL_FORGET);
  Apply(want);
  Apply(want);
  EXPECT_THAT(host_.calls, ElementsAre("kill 1.2"));
  TellExited(1, Status(0, 9, ExitCause::kKilled));
  TellEnded(1);
  EXPECT_THAT(host_.calls, ElementsAre("kill 1.2", "forget 1.2"));
  EXPECT_EQ(Seen().processes_size(), 1);
  EXPECT_FALSE(host_.processes.contains(Id(1)));
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
}

// ---- ends ----

TEST_F(NodeStateTest, AFailedRankRevokesTheGangAndIsFirst) {
  RunToRunning();
  host_.calls.clear();
  TellExited(1, Status(0, 9));
  EXPECT_THAT(host_.calls, ElementsAre("revoke"));
  TellExited(0, Status(1, 0, kStopped));
  const v1::ObservedPlace seen = Seen();
  EXPECT_EQ(seen.processes(1).exit_order(), 1);
  EXPECT_EQ(seen.processes(1).exit().signal(), 9);
  EXPECT_FALSE(seen.processes(1).ended_by_order());
  EXPECT_TRUE(seen.processes(0).ended_by_order());
  EXPECT_EQ(seen.processes(1).stderr_tail(), "the tail");
  EXPECT_EQ(seen.processes(1).state(), v1::PROCESS_STATE_EXITED)
      << "ENDED not before the tree is gone";
  TellEnded(1);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_EXITED);
}

TEST_F(NodeStateTest, OfAGangTheFirstFailuresLastWordsAreKept) {
  RunToRunning();
  TellExited(1, 3);
  TellExited(0, 1);
  EXPECT_THAT(host_.tails_read, ElementsAre("1.2"));
}

TEST_F(NodeStateTest, OfSlotsThatGoOnByThemselvesEachFailureIsItsOwn) {
  for (const auto policy : {v1::RESTART_POLICY_ONE, v1::RESTART_POLICY_NONE}) {
    Run(WantEach(policy));
    host_.calls.clear();
    host_.tails_read.clear();
    TellExited(1, 3);
    TellExited(0, 1);
    EXPECT_THAT(host_.calls, IsEmpty()) << "nothing is revoked";
    EXPECT_THAT(host_.tails_read, ElementsAre("1.2", "0.1"));
    EXPECT_EQ(Seen(0).stderr_tail(), "the tail");
    EXPECT_EQ(Seen(1).stderr_tail(), "the tail");
    TellAllEnded();
    v1::Acknowledge acknowledge;
    for (int slot : {0, 1}) {
      v1::ProcessId* const words = acknowledge.add_words();
      words->set_attempt_id(std::string(id_.bytes()));
      words->set_slot(slot);
      words->set_incarnation(Id(slot).incarnation);
    }
    state_->Acknowledge(acknowledge);
    Apply(Want(v1::GOAL_FORGET));
    EXPECT_EQ(state_->size(), 0u);
  }
}

TEST_F(NodeStateTest, TheEndIsReportedWithTheFailedRanksLastWords) {
  RunToRunning();
  host_.hold_tail = true;
  TellExited(1, 3);
  TellExited(0, Status(0, 15, kStopped));
  TellAllEnded();
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_EXITED);
  EXPECT_EQ(Seen(1).exit().code(), 3) << "told at once";
  std::move(host_.tail)("why");
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(1).stderr_tail(), "why");
}

TEST_F(NodeStateTest, LastWordsThatADaemonDiedOverAreReadByTheNext) {
  RunToRunning();
  host_.hold_tail = true;
  TellExited(1, 3);  // the exit is in the journal, and its last words are not
  Restart();
  host_.tail = {};
  std::move(host_.adopted)(AllKnown());
  TellExited(1, 3);
  TellExited(0, Status(0, 15, kStopped));
  TellAllEnded();
  ASSERT_TRUE(host_.tail) << "nobody asked";
  std::move(host_.tail)("why");
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(1).stderr_tail(), "why");
}

// RC-3: 125 of them would not fit in one message.
TEST_F(NodeStateTest, LastWordsFollowTheStateAndAreKeptUntilTheyAreRecorded) {
  RunToRunning();
  TellExited(1, 3);
  TellExited(0, Status(0, 15, kStopped));
  TellAllEnded();
  const auto words_told = [this] {
    return state_->TakeDelta().places(0).processes(1).stderr_tail();
  };
  EXPECT_EQ(words_told(), "the tail");
  const std::vector<v1::Observed> chunks = state_->FullObserved();
  EXPECT_EQ(chunks.front().places(0).processes(1).state(),
            v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(chunks.front().places(0).processes(1).stderr_tail(), "");
  EXPECT_EQ(words_told(), "the tail");
  EXPECT_EQ(state_->TakeDelta().places_size(), 0) << "once a stream";

  // A restarted daemon, and its end is recorded before they are.
  Restart();
  std::move(host_.adopted)(AllKnown());
  state_->FullObserved();
  Apply(Want(v1::GOAL_FORGET));
  EXPECT_EQ(state_->size(), 1u);
  EXPECT_EQ(words_told(), "the tail");
  v1::Acknowledge acknowledge;
  v1::ProcessId* const words = acknowledge.add_words();
  words->set_attempt_id(std::string(id_.bytes()));
  words->set_slot(1);
  words->set_incarnation(1);
  state_->Acknowledge(acknowledge);
  EXPECT_EQ(state_->size(), 1u) << "another incarnation's";
  words->set_incarnation(2);
  state_->Acknowledge(acknowledge);
  EXPECT_EQ(state_->size(), 0u);
  EXPECT_THAT(host_.processes, IsEmpty());
}

TEST_F(NodeStateTest, RecordedWordsAreNotSaidAgain) {
  RunToRunning();
  TellExited(1, 3);
  v1::Acknowledge acknowledge;
  v1::ProcessId* const words = acknowledge.add_words();
  words->set_attempt_id(std::string(id_.bytes()));
  words->set_slot(1);
  words->set_incarnation(2);
  acknowledge.add_words()->set_attempt_id("nonsense");
  state_->Acknowledge(acknowledge);
  EXPECT_EQ(state_->TakeDelta().places(0).processes(1).stderr_tail(), "");
  EXPECT_EQ(Seen(1).stderr_tail(), "");
}

// BD-1: the head takes a message as one decision.
TEST_F(NodeStateTest, ManyPlacesGoInSeveralMessages) {
  constexpr int kPlaces = 600;
  v1::Desired desired;
  for (int i = 0; i < kPlaces; ++i) {
    v1::DesiredPlace& want = *desired.add_places();
    want = Want(v1::GOAL_RUN);
    want.set_attempt_id(std::string(AttemptId::New(random_).bytes()));
  }
  state_->Apply(desired);
  int told = 0;
  while (const int places = state_->TakeDelta().places_size()) {
    EXPECT_LE(places, 256);
    told += places;
  }
  EXPECT_EQ(told, kPlaces);
  told = 0;
  for (const v1::Observed& chunk : state_->FullObserved()) {
    EXPECT_LE(chunk.places_size(), 256);
    told += chunk.places_size();
  }
  EXPECT_EQ(told, kPlaces);
}

TEST_F(NodeStateTest, LastWordsOfManyGoInPieces) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  want.clear_processes();
  for (int slot = 0; slot < 64; ++slot) {
    AddProcess(want, Id(slot), v1::GOAL_RUN);
  }
  Run(want);
  host_.hold_tail = true;
  for (int slot = 0; slot < 64; ++slot) {
    TellExited(slot, 1);
    std::move(host_.tail)(std::string(64 << 10, 'x'));
  }
  int told = 0;
  for (v1::Observed delta = state_->TakeDelta(); delta.places_size() > 0;
       delta = state_->TakeDelta()) {
    EXPECT_LT(delta.ByteSizeLong(), size_t{2} << 20);
    for (const auto& each : delta.places(0).processes()) {
      told += !each.stderr_tail().empty();
    }
  }
  EXPECT_EQ(told, 64);
}

// ---- restarts of the daemon ----

TEST_F(NodeStateTest, ARestartedDaemonTakesItsProcessesOver) {
  RunToRunning();
  Restart();
  EXPECT_FALSE(restored_);
  EXPECT_THAT(host_.calls, ElementsAre("adopt"));
  std::move(host_.adopted)(AllKnown());
  EXPECT_TRUE(restored_);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
  TellStarted(0);  // the story from its beginning
  TellExited(0, 5);
  EXPECT_EQ(Seen(0).exit().code(), 5);
}

TEST_F(NodeStateTest, WhatNeverRanIsBegunWhenTheHeadRepeatsItsGoal) {
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);  // Begin is under way: the daemon dies
  Restart();
  std::move(host_.adopted)(absl::NotFoundError("no such keeper"));
  EXPECT_TRUE(restored_);
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("adopt", "prepare"));
  std::move(host_.prepared)(4711);
  EXPECT_THAT(host_.calls, ElementsAre("adopt", "prepare", "begin 0.1 1.2"));
}

// Its siblings' directories are in use.
TEST_F(NodeStateTest, WhatNeverRanBesideOthersIsBegunWithoutPreparation) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  v1::DesiredPlace first = want;
  first.mutable_processes()->RemoveLast();
  Run(first);
  Apply(want);  // the daemon dies meanwhile
  Restart();
  std::move(host_.adopted)(
      AdoptedKeeper{.known = {KeyOf(Id(0))}, .message = ""});
  Apply(want);
  EXPECT_THAT(host_.calls, ElementsAre("adopt", "begin 1.2"));
}

TEST_F(NodeStateTest, ARunningProcessThatItsKeeperDoesNotKnowIsLost) {
  RunToRunning();
  Restart();
  std::move(host_.adopted)(
      AdoptedKeeper{.known = {KeyOf(Id(0))}, .message = ""});
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_KEEPER_LOST);
}

TEST_F(NodeStateTest, AKeeperThatCannotBeReadIsLostWithItsProcesses) {
  RunToRunning();
  TellExited(0, 3);
  Restart();
  std::move(host_.adopted)(absl::UnavailableError("input/output error"));
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(0).exit().code(), 3);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_KEEPER_LOST);
  EXPECT_EQ(Seen(1).detail(), "input/output error");
}

// ---- keepers that go ----

TEST_F(NodeStateTest, ALostKeeperEndsItsProcesses) {
  RunToRunning();
  ExitReport lost = Status(0, 9, kKeeperLost);
  lost.message = "keeper 12 died";
  TellExited(0, lost);
  TellEnded(0);
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_KEEPER_LOST);
  EXPECT_EQ(Seen(0).detail(), "keeper 12 died");
}

TEST_F(NodeStateTest, AKeeperThatWasToldToStopIsLostWhateverItsRanksSay) {
  RunToRunning();
  host_.calls.clear();
  TellExited(0, Status(0, 0, kKeeperStopped));
  EXPECT_THAT(host_.calls, ElementsAre("revoke"));
  TellExited(1, Status(1, 0, kKeeperStopped));
  TellAllEnded();
  for (const int slot : {0, 1}) {
    const v1::ObservedProcess seen = Seen(slot);
    EXPECT_EQ(seen.end_cause(), v1::END_CAUSE_KEEPER_LOST);
    EXPECT_THAT(seen.detail(), HasSubstr("told to stop (SIGTERM)"));
    EXPECT_THAT(seen.detail(), HasSubstr("shutdown of the machine"));
    EXPECT_TRUE(seen.ended_by_order());
    EXPECT_EQ(seen.exit().detail(), seen.detail());
  }
}

TEST_F(NodeStateTest, ARestartedDaemonHearsThatAKeeperWasToldToStop) {
  RunToRunning();
  Restart();
  std::move(host_.adopted)(AllKnown());
  for (int slot : {0, 1}) TellExited(slot, Status(0, 0, kKeeperStopped));
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_KEEPER_LOST);
}

// The head takes the first to fail by itself for what ended the attempt.
TEST_F(NodeStateTest, ARankThatFailedBeforeItsKeeperWasToldFailedByItself) {
  RunToRunning();
  TellExited(1, 3);
  TellExited(0, Status(0, 15, kKeeperStopped));
  TellAllEnded();
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(1).exit_order(), 1);
  EXPECT_FALSE(Seen(1).ended_by_order());
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_KEEPER_LOST);
}

// It can only come as a signal where the keeper's socket is gone.
TEST_F(NodeStateTest, AnOrderOfOursIsNoStopFromOutside) {
  RunToRunning();
  Apply(Want(v1::GOAL_STOP));
  for (int slot : {0, 1}) TellExited(slot, Status(0, 15, kKeeperStopped));
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(0).exit().detail(), "");
}

// ---- the time limit (TL-1): the keeper keeps it, this side says so ----

ExitReport TimeIsUp(absl::Duration ran) {
  ExitReport status;
  status.signal = 15;
  status.cause = ExitCause::kTimeLimit;
  status.ran_ms = absl::ToInt64Milliseconds(ran);
  return status;
}

TEST_F(NodeStateTest, ReportsTheTimeLimitWithHowLongItRan) {
  RunToRunning();
  host_.calls.clear();
  TellExited(1, TimeIsUp(absl::Milliseconds(5'100)));
  EXPECT_THAT(host_.calls, ElementsAre("revoke"));
  TellExited(0, TimeIsUp(absl::Milliseconds(5'200)));
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_EXITED);
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_TIME_LIMIT);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_TIME_LIMIT);
  EXPECT_TRUE(Seen(0).ended_by_order());
  EXPECT_EQ(Seen(1).exit().signal(), 15);
  EXPECT_EQ(Seen(1).stderr_tail(), "the tail");
  EXPECT_EQ(Seen(0).ran().seconds(), 5);
  EXPECT_EQ(Seen(0).ran().nanos(), 200'000'000);
}

TEST_F(NodeStateTest, ARankThatFailedBeforeTheTimeLimitFailedByItself) {
  RunToRunning();
  TellExited(1, 3);  // no head was there to stop its siblings
  TellExited(0, TimeIsUp(absl::Seconds(5)));
  TellAllEnded();
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(1).exit_order(), 1);
  EXPECT_EQ(Seen(0).ran().seconds(), 5);
}

TEST_F(NodeStateTest, ARestartedDaemonHearsOfTheTimeLimitAgain) {
  RunToRunning();
  TellExited(0, TimeIsUp(absl::Seconds(5)));
  Restart();
  std::move(host_.adopted)(AllKnown());
  TellExited(0, TimeIsUp(absl::Seconds(5)));
  TellExited(1, TimeIsUp(absl::Seconds(6)));
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_TIME_LIMIT);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_TIME_LIMIT);
  EXPECT_EQ(Seen(1).ran().seconds(), 6);
}

TEST_F(NodeStateTest, RanksThatEndByThemselvesAreNoTimeout) {
  RunToRunning();
  TellExited(0, 0);
  TellExited(1, 0);
  TellAllEnded();
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_EXITED);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_EXITED);
}

}  // namespace
}  // namespace cohort::worker
