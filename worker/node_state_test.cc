// NodeState's places: what precedes and outlives processes, and the daemon's
// end.  Processes: node_state_processes_test.cc.

#include "worker/node_state.h"

#include <set>
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
using testing::IsEmpty;
using testing::SizeIs;

// RC-1: a restored head ends nothing that it has never heard of.
TEST_F(NodeStateTest, PlacesOfAnotherGenerationStayAndSayWhatTheyHold) {
  state_->Follow("g");
  v1::Desired desired;
  v1::DesiredPlace& want = *desired.add_places();
  want = Want(v1::GOAL_PREPARE);
  auto* const half = want.mutable_resources_per_process()->add_amounts();
  half->set_name(kGpu);
  half->set_ten_thousandths(5'000);
  for (auto& process : *want.mutable_processes()) process.add_gpu_ids("g");
  state_->Apply(desired);
  v1::Observed told = state_->TakeDelta();
  ASSERT_EQ(told.places_size(), 1);
  EXPECT_FALSE(told.places(0).has_resources_per_process());

  state_->Follow("h");
  told = state_->FullObserved().front();
  ASSERT_EQ(told.places_size(), 1);
  EXPECT_EQ(told.places(0).generation(), "g");
  const v1::ObservedPlace& held = told.places(0);
  ASSERT_EQ(held.resources_per_process().amounts_size(), 1);
  EXPECT_EQ(held.resources_per_process().amounts(0).ten_thousandths(), 5'000);
  ASSERT_EQ(held.processes_size(), 2);
  for (const v1::ObservedProcess& process : held.processes()) {
    EXPECT_THAT(process.gpu_ids(), ElementsAre("g"));
  }
  state_->Apply(v1::Desired());
  EXPECT_EQ(state_->size(), 1u);

  // Adopted: wanted by the one that is followed.
  state_->Apply(desired);
  told = state_->FullObserved().front();
  EXPECT_EQ(told.places(0).generation(), "h");
}

TEST_F(NodeStateTest, PreparesThenWaitsForTheOrderToRun) {
  Apply(Want(v1::GOAL_PREPARE));
  EXPECT_EQ(Seen().phase(), v1::PHASE_PREPARING);
  std::move(host_.prepared)(4711);
  EXPECT_EQ(Seen().phase(), v1::PHASE_PREPARED);
  EXPECT_EQ(Seen().master_port(), 4711);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_PENDING);
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("prepare", "begin 0.1 1.2"));
}

TEST_F(NodeStateTest, TheSameGoalTwiceChangesNothing) {
  Apply(Want(v1::GOAL_RUN));
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(0);
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("prepare", "begin 0.1 1.2"));
}

TEST_F(NodeStateTest, WhatIsLaunchedIsToldOnce) {
  v1::DesiredPlace first = Want(v1::GOAL_RUN);
  first.mutable_launch()->add_command("train");
  Apply(first);
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(0);
  EXPECT_EQ(host_.launched.command(0), "train");
}

TEST_F(NodeStateTest, WhatIsLaunchedAfterwardsIsToldOnce) {
  RunToRunning();
  host_.hold_forget = true;
  Apply(Want(v1::GOAL_FORGET));
  v1::DesiredPlace again = Want(v1::GOAL_RUN);
  for (auto& process : *again.mutable_processes()) {
    process.set_incarnation(process.incarnation() + 2);
  }
  v1::DesiredPlace told = again;
  told.mutable_launch()->add_command("again");
  Apply(told);
  Apply(again);
  TellAllEnded();
  std::move(host_.forgotten)(absl::OkStatus());
  std::move(host_.prepared)(0);
  EXPECT_EQ(host_.launched.command(0), "again");
}

// RC-1
TEST_F(NodeStateTest, AFullDesiredSetWithoutAPlaceOrProcessLeavesItRunning) {
  RunToRunning();
  host_.calls.clear();
  v1::Desired empty;
  empty.set_full(true);
  state_->Apply(empty);
  v1::DesiredPlace without = Want(v1::GOAL_RUN);
  without.clear_processes();
  Apply(without);
  EXPECT_THAT(host_.calls, IsEmpty());
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_RUNNING);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_RUNNING);
}

// RC-3
TEST_F(NodeStateTest, TheReportIsKeptUntilForget) {
  RunToRunning();
  for (int slot : {0, 1}) TellExited(slot, 0);
  TellAllEnded();
  EXPECT_EQ(host_.process_durability, Durability::kMachine);
  Restart();
  std::move(host_.adopted)(AllKnown());
  EXPECT_TRUE(restored_);
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(0).exit().code(), 0);
  Apply(Want(v1::GOAL_FORGET));
  EXPECT_EQ(state_->size(), 0u);
  EXPECT_THAT(host_.places, IsEmpty());
  EXPECT_THAT(host_.processes, IsEmpty());
}

TEST_F(NodeStateTest, ForgetKillsWhatRunsAndForgetsWhenItIsGone) {
  RunToRunning();
  host_.calls.clear();
  Apply(Want(v1::GOAL_FORGET));
  Apply(Want(v1::GOAL_FORGET));
  EXPECT_THAT(host_.calls, ElementsAre("revoke", "kill 0.1", "kill 1.2"));
  TellEnded(0);
  EXPECT_EQ(state_->size(), 1u);
  TellEnded(1);
  EXPECT_THAT(host_.calls,
              ElementsAre("revoke", "kill 0.1", "kill 1.2", "forget"));
  EXPECT_EQ(state_->size(), 0u);
}

// The head lost the node, gave the slots up and fills them here again.
TEST_F(NodeStateTest, WhatIsWantedWhileItIsForgottenComesAfterwards) {
  RunToRunning();
  host_.hold_forget = true;
  Apply(Want(v1::GOAL_FORGET));
  v1::DesiredPlace again = Want(v1::GOAL_RUN);
  again.set_epoch(8);
  for (auto& process : *again.mutable_processes()) {
    process.set_incarnation(process.incarnation() + 2);
  }
  Apply(again);
  TellAllEnded();
  host_.calls.clear();
  Apply(again);
  EXPECT_THAT(host_.calls, IsEmpty());
  std::move(host_.forgotten)(absl::OkStatus());
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
  std::move(host_.prepared)(4711);
  EXPECT_THAT(host_.calls, ElementsAre("prepare", "begin 0.3 1.4"));
  EXPECT_EQ(Seen().epoch(), 8);
  ASSERT_EQ(Seen().processes_size(), 2);

  // Unless that is forgotten, too.
  std::move(host_.begun)(absl::OkStatus());
  Apply(Want(v1::GOAL_FORGET));
  Apply(again);
  Apply(Want(v1::GOAL_FORGET));
  for (const int slot : {0, 1}) {
    host_.Tell(
        ProcessEnded{KeyOf({id_, slot, static_cast<uint64_t>(slot) + 3})});
  }
  std::move(host_.forgotten)(absl::OkStatus());
  EXPECT_EQ(state_->size(), 0u);
}

TEST_F(NodeStateTest, TellsOfWarningsAlsoOfAPlaceThatIsForgotten) {
  RunToRunning();
  host_.Warn(id_, "empty");
  EXPECT_THAT(Seen().warnings(), ElementsAre("empty"));
  host_.hold_forget = true;
  Apply(Want(v1::GOAL_FORGET));
  TellAllEnded();
  state_->TakeDelta();
  host_.Warn(id_, "1 file was not kept");
  std::move(host_.forgotten)(absl::OkStatus());
  const v1::Observed delta = state_->TakeDelta();
  ASSERT_EQ(delta.places_size(), 1);
  EXPECT_THAT(delta.places(0).warnings(),
              ElementsAre("empty", "1 file was not kept"));
  EXPECT_EQ(state_->TakeDelta().places_size(), 0);
}

// Found by the simulation: the head went on holding what an orphan
// had reserved.
TEST_F(NodeStateTest, ForgetOfWhatNeverRanSaysThatItIsOver) {
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(4711);
  state_->TakeDelta();
  host_.hold_forget = true;
  Apply(Want(v1::GOAL_FORGET));
  const v1::Observed delta = state_->TakeDelta();
  ASSERT_EQ(delta.places_size(), 1);
  for (const v1::ObservedProcess& each : delta.places(0).processes()) {
    EXPECT_EQ(each.state(), v1::PROCESS_STATE_ENDED);
  }
}

TEST_F(NodeStateTest, AFailedPreparationFailsThePlaceWithItsReason) {
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(absl::ResourceExhaustedError("/dev/shm is full"));
  EXPECT_EQ(Seen().phase(), v1::PHASE_FAILED);
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_PREPARE_FAILED);
  EXPECT_EQ(Seen().detail(), "/dev/shm is full");
  EXPECT_THAT(faults_, IsEmpty());
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
}

// The order to forget it may have been replaced on its way.
TEST_F(NodeStateTest, APlaceThatFailedIsPreparedAgainForANewIncarnation) {
  Apply(Want(v1::GOAL_RUN));
  std::move(host_.prepared)(absl::ResourceExhaustedError("/dev/shm is full"));
  v1::DesiredPlace again = Want(v1::GOAL_RUN);
  again.clear_processes();
  AddProcess(again, {id_, 0, 3}, v1::GOAL_RUN);
  Apply(again);
  std::move(host_.prepared)(4711);
  EXPECT_THAT(host_.calls, ElementsAre("prepare", "prepare", "begin 0.3"));
  EXPECT_EQ(Seen().phase(), v1::PHASE_PREPARED);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_ENDED);
}

TEST_F(NodeStateTest, ItsOwnFaultIsToldBeforeTheEnd) {
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
  std::move(host_.begun)(full);
  EXPECT_THAT(faults_, SizeIs(2));
  EXPECT_EQ(begun_, 0);
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_NODE_FAILED);
  EXPECT_EQ(Seen(1).detail(), "/state is full");
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
  TellAllEnded();
  v1::Acknowledge acknowledge;
  acknowledge.add_checkpoints()->set_attempt_id(std::string(id_.bytes()));
  state_->Acknowledge(acknowledge);
  EXPECT_THAT(host_.places, IsEmpty());
}

// A damaged record loses no process that runs.
TEST_F(NodeStateTest, AProcessWhosePlaceIsNotKnownAnyMoreIsAdopted) {
  RunToRunning();
  host_.places.clear();
  Restart();
  EXPECT_THAT(host_.calls, ElementsAre("adopt"));
  std::move(host_.adopted)(AllKnown());
  EXPECT_EQ(Seen().phase(), v1::PHASE_PREPARED);
  EXPECT_EQ(Seen().epoch(), 7);
  EXPECT_EQ(Seen(1).state(), v1::PROCESS_STATE_RUNNING);
}

// ---- the daemon's end ----

TEST_F(NodeStateTest, DrainRanksEndsEverythingAsTheDaemonsDoing) {
  RunToRunning();
  host_.calls.clear();
  bool ended = false;
  bool forgotten = false;
  state_->DrainRanks(
      absl::Seconds(10), [&] { ended = true; }, [&] { forgotten = true; });
  EXPECT_FALSE(ended);
  EXPECT_THAT(host_.calls,
              ElementsAre("revoke", "stop 0.1 10s", "stop 1.2 10s"));
  for (int slot : {0, 1}) {
    TellExited(slot, Status(0, 15, ExitCause::kStopped));
  }
  TellAllEnded();
  EXPECT_TRUE(ended);
  EXPECT_FALSE(forgotten) << "the head has not recorded it";
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_DAEMON_SHUTDOWN);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_DAEMON_SHUTDOWN);
  Apply(Want(v1::GOAL_FORGET));
  EXPECT_TRUE(forgotten);
}

TEST_F(NodeStateTest, HurryLeavesWhatIsTakenAlongNoGrace) {
  RunToRunning();
  host_.calls.clear();
  state_->Hurry();  // nothing is taken along
  EXPECT_THAT(host_.calls, ElementsAre());
  state_->DrainRanks(
      absl::Seconds(10), [] {}, [] {});
  host_.calls.clear();
  state_->Hurry();
  EXPECT_THAT(host_.calls, ElementsAre("stop 0.1 0", "stop 1.2 0"));
}

// A daemon that was just killed, and whose next one is told to end.
TEST_F(NodeStateTest, DrainRanksWaitsForWhatIsBeingAdopted) {
  RunToRunning();
  Restart();
  bool ended = false;
  state_->DrainRanks(
      absl::Seconds(10), [&] { ended = true; }, [] {});
  EXPECT_FALSE(ended);
  std::move(host_.adopted)(AllKnown());
  EXPECT_THAT(host_.calls,
              ElementsAre("adopt", "revoke", "stop 0.1 10s", "stop 1.2 10s"));
  EXPECT_FALSE(ended);
  TellAllEnded();
  EXPECT_TRUE(ended);
}

TEST_F(NodeStateTest, DrainRanksIsDoneAtOnceWhenNothingIsHere) {
  bool ended = false;
  bool forgotten = false;
  state_->DrainRanks(
      absl::Seconds(10), [&] { ended = true; }, [&] { forgotten = true; });
  EXPECT_TRUE(ended);
  EXPECT_TRUE(forgotten);
}

TEST_F(NodeStateTest, WhatIsTakenAlongKeepsItsGraceWhenAPeerHasEnded) {
  RunToRunning();
  state_->DrainRanks(
      absl::Seconds(10), [] {}, [] {});
  host_.calls.clear();
  Apply(Want(v1::GOAL_STOP));
  EXPECT_THAT(host_.calls, IsEmpty());
}

TEST_F(NodeStateTest, WhatIsPlacedHereDuringDrainRanksEndsUnstarted) {
  state_->DrainRanks(
      absl::Seconds(10), [] {}, [] {});
  Apply(Want(v1::GOAL_PREPARE));
  EXPECT_EQ(Seen(0).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Seen(0).end_cause(), v1::END_CAUSE_DAEMON_SHUTDOWN);
  EXPECT_THAT(host_.calls, IsEmpty());
}

TEST_F(NodeStateTest, WhatIsBeingPreparedDuringDrainRanksIsWaitedFor) {
  Apply(Want(v1::GOAL_RUN));
  bool ended = false;
  state_->DrainRanks(
      absl::Seconds(10), [&] { ended = true; }, [] {});
  EXPECT_FALSE(ended);
  std::move(host_.prepared)(4711);
  EXPECT_TRUE(ended);
  EXPECT_EQ(Seen(1).end_cause(), v1::END_CAUSE_DAEMON_SHUTDOWN);
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
}

// ---- what the head hears ----

TEST_F(NodeStateTest, ALargeSetGoesInChunks) {
  std::set<std::string> ended;
  for (int i = 0; i < 100; ++i) {
    v1::DesiredPlace want = Want(v1::GOAL_PREPARE);
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
    for (const auto& place : chunk.places()) {
      EXPECT_EQ(ended.erase(place.attempt_id()), 1u);
    }
  }
  EXPECT_THAT(ended, IsEmpty());
  EXPECT_EQ(state_->TakeDelta().places_size(), 0);
}

}  // namespace
}  // namespace cohort::worker
