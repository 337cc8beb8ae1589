#include "worker/node_state.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"

namespace cohort::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Records what it is asked to do; the test answers when it likes.
class RecordingHost : public AttemptHost {
 public:
  void SetListener(Listener listener) override {
    listener_ = std::move(listener);
  }
  void Save(const AttemptId& attempt, JournalEntry entry, Done done) override {
    journal[attempt] = std::move(entry);
    std::move(done)(save_status);
  }
  void Prepare(const v1::DesiredAttempt&,
               absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) override {
    calls.push_back("prepare");
    prepared = std::move(done);
  }
  void Start(const v1::DesiredAttempt&, Done done) override {
    calls.push_back("start");
    started = std::move(done);
  }
  void Adopt(const v1::DesiredAttempt&,
             KeeperHost::AdoptCallback done) override {
    calls.push_back("adopt");
    adopted = std::move(done);
  }
  void Revoke(const AttemptId&) override { calls.push_back("revoke"); }
  void Stop(const AttemptId&, absl::Duration grace) override {
    calls.push_back("stop " + absl::FormatDuration(grace));
  }
  void Kill(const AttemptId&) override { calls.push_back("kill"); }
  void Forget(const AttemptId& attempt, Done done) override {
    calls.push_back("forget");
    journal.erase(attempt);
    if (!hold_forget) std::move(done)(absl::OkStatus());
  }
  void RemoveCheckpoint(const v1::DesiredAttempt&, const std::string& path,
                        Done done) override {
    calls.push_back("remove " + path);
    std::move(done)(absl::OkStatus());
  }
  void ReadStderrTail(const AttemptId&, int,
                      absl::AnyInvocable<void(std::string) &&> done) override {
    if (hold_tail) {
      tail = std::move(done);
    } else {
      std::move(done)("the tail");
    }
  }

  void Tell(const AttemptId& attempt, const KeeperEvent& event) {
    listener_.on_event(attempt, event);
  }
  void TellMetrics(const AttemptId& attempt, int rank, uint64_t count,
                   std::string json) {
    listener_.on_metrics(attempt, rank, count, std::move(json));
  }

  std::vector<std::string> calls;
  std::map<AttemptId, JournalEntry> journal;
  absl::Status save_status;
  bool hold_forget = false;
  bool hold_tail = false;
  absl::AnyInvocable<void(std::string) &&> tail;
  absl::AnyInvocable<void(absl::StatusOr<int>) &&> prepared;
  Done started;
  KeeperHost::AdoptCallback adopted;

 private:
  Listener listener_;
};

RankExited Exited(int rank, int code, int signal = 0,
                  ExitStatus::Cause cause = ExitStatus::Cause::kItself) {
  ExitStatus status;
  status.exit_code = signal == 0 ? code : -1;
  status.signal = signal;
  status.cause = cause;
  return {rank, status};
}

class NodeStateTest : public testing::Test {
 protected:
  NodeStateTest() : id_(AttemptId::New(random_)) {
    state_.emplace(host_, Events());
    state_->Restore({}, [this] { restored_ = true; });
  }

  NodeState::Events Events() {
    return {.on_change = [this] { ++changes_; },
            .on_fault =
                [this](const absl::Status& why) {
                  EXPECT_NE(Seen().phase(), v1::PHASE_ENDED) << "told first";
                  faults_.emplace_back(why.message());
                },
            .on_begun = [this] { ++begun_; }};
  }
  v1::DesiredAttempt Want(v1::Goal goal) {
    v1::DesiredAttempt desired;
    desired.set_attempt_id(std::string(id_.bytes()));
    desired.set_epoch(7);
    desired.set_goal(goal);
    desired.set_world_size(2);
    for (int rank : {0, 1}) desired.add_ranks()->set_rank(rank);
    desired.mutable_grace()->set_seconds(3);
    return desired;
  }
  void Apply(const v1::DesiredAttempt& attempt) {
    v1::Desired desired;
    *desired.add_attempts() = attempt;
    state_->Apply(desired);
  }
  void RunToRunning() {
    Apply(Want(v1::GOAL_RUN));
    std::move(host_.prepared)(4711);
    std::move(host_.started)(absl::OkStatus());
    for (int rank : {0, 1}) host_.Tell(id_, RankStarted{rank, 100 + rank});
  }
  void RunWithPreflight() {
    v1::DesiredAttempt want = Want(v1::GOAL_RUN);
    want.set_preflight(true);
    Apply(want);
    std::move(host_.prepared)(0);
    std::move(host_.started)(absl::OkStatus());
  }
  v1::ObservedAttempt Seen() {
    const v1::Observed observed = state_->FullObserved();
    return observed.attempts_size() == 1 ? observed.attempts(0)
                                         : v1::ObservedAttempt();
  }
  // The daemon dies and comes back with what is on disk.
  void Restart() {
    std::vector<JournalEntry> entries;
    for (const auto& [id, entry] : host_.journal) entries.push_back(entry);
    restored_ = false;
    host_.calls.clear();
    state_.emplace(host_, Events());
    state_->Restore(std::move(entries), [this] { restored_ = true; });
  }

  SeededRandom random_{1};
  const AttemptId id_;
  RecordingHost host_;
  std::optional<NodeState> state_;
  int changes_ = 0;
  std::vector<std::string> faults_;
  int begun_ = 0;
  bool restored_ = false;
};

// RC-1: a restored head ends nothing that it has never heard of.
TEST_F(NodeStateTest, AttemptsOfAnotherGenerationStayAndSayWhatTheyAre) {
  state_->Follow("g");
  v1::Desired desired;
  *desired.add_attempts() = Want(v1::GOAL_PREPARE);
  state_->Apply(desired);
  EXPECT_FALSE(state_->FullObserved().attempts(0).has_wanted());
  EXPECT_EQ(state_->TakeDelta().attempts_size(), 0);

  state_->Follow("h");
  v1::Observed told = state_->TakeDelta();
  ASSERT_EQ(told.attempts_size(), 1);
  EXPECT_EQ(told.attempts(0).generation(), "g");
  EXPECT_EQ(told.attempts(0).wanted().attempt_id(), id_.bytes());
  state_->Apply(v1::Desired());
  EXPECT_EQ(state_->size(), 1u);

  // Adopted: wanted by the one that is followed.
  state_->Apply(desired);
  told = state_->FullObserved();
  EXPECT_EQ(told.attempts(0).generation(), "h");
  EXPECT_FALSE(told.attempts(0).has_wanted());
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

// ---- devices (DV-9) ----

class NodeStateDeviceTest : public NodeStateTest {
 protected:
  // Rank 0 has GPU a, rank 1 GPU b.
  v1::DesiredAttempt WantGpus(v1::Goal goal) {
    v1::DesiredAttempt desired = Want(goal);
    desired.mutable_ranks(0)->add_gpu_ids("a");
    desired.mutable_ranks(1)->add_gpu_ids("b");
    return desired;
  }
  void RunWithGpus() {
    Apply(WantGpus(v1::GOAL_RUN));
    std::move(host_.prepared)(4711);
    std::move(host_.started)(absl::OkStatus());
    for (const int rank : {0, 1}) host_.Tell(id_, RankStarted{rank, 100});
    host_.calls.clear();
  }
};

TEST_F(NodeStateDeviceTest, ALostDeviceEndsWhatRunsOnIt) {
  RunWithGpus();
  state_->NoteDeviceFault("c", "GPU c: it is lost", true);
  state_->NoteDeviceFault("b", "GPU b: Xid 95", false);  // it may go on
  EXPECT_THAT(host_.calls, IsEmpty());
  state_->NoteDeviceFault("b", "GPU b: Xid 79", true);
  state_->NoteDeviceFault("b", "GPU b: Xid 79", true);
  EXPECT_THAT(host_.calls, ElementsAre("revoke", "stop 5s"));
  for (const int rank : {0, 1}) {
    host_.Tell(id_, Exited(rank, 0, 15, ExitStatus::Cause::kStopped));
  }
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen().detail(), "GPU b: Xid 79");
}

TEST_F(NodeStateDeviceTest, ARankThatFailsOnADeviceWithAFaultFailsByIt) {
  RunWithGpus();
  state_->NoteDeviceFault("a", "GPU a: Xid 94", false);
  host_.Tell(id_, Exited(0, 1));
  host_.Tell(id_, Exited(1, 0, 15, ExitStatus::Cause::kStopped));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen().detail(), "GPU a: Xid 94");
}

TEST_F(NodeStateDeviceTest, OneThatFailsOnAnotherDeviceFailsByItself) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  host_.Tell(id_, Exited(0, 1));
  host_.Tell(id_, Exited(1, 0, 15, ExitStatus::Cause::kStopped));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
}

TEST_F(NodeStateDeviceTest, TheFirstThatFailsDecides) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: Xid 94", false);
  host_.Tell(id_, Exited(0, 1));
  host_.Tell(id_, Exited(1, 1));
  host_.Tell(id_, AllDone{});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_EXITED);
}

TEST_F(NodeStateDeviceTest, ARankThatDoesNotDieOfALostDeviceEndsByIt) {
  RunWithGpus();
  state_->NoteDeviceFault("b", "GPU b: it is lost", true);
  host_.Tell(id_, KeeperLost{.message = "processes do not die: 17"});
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_EQ(Seen().detail(), "GPU b: it is lost; processes do not die: 17");
}

TEST_F(NodeStateDeviceTest, WhatWasAdoptedOnADeviceThatIsGoneIsEnded) {
  RunWithGpus();
  const JournalEntry kept = host_.journal.at(id_);
  for (const bool is_there : {true, false}) {
    RecordingHost host;
    NodeState state(host, {.on_change = [] {},
                           .on_fault = [](const absl::Status&) {},
                           .on_begun = [] {}});
    state.Restore({kept}, [] {});
    AdoptedAttempt adopted;
    adopted.phase = AttemptPhase::kRunning;
    std::move(host.adopted)(std::move(adopted));
    host.calls.clear();
    state.NoteDevicesThere(is_there ? std::set<std::string>{"a", "b", "c"}
                                    : std::set<std::string>{"a"});
    if (is_there) {
      EXPECT_THAT(host.calls, IsEmpty());
      continue;
    }
    EXPECT_THAT(host.calls, ElementsAre("revoke", "stop 5s"));
    for (const int rank : {0, 1}) {
      host.Tell(id_, Exited(rank, 0, 15, ExitStatus::Cause::kStopped));
    }
    host.Tell(id_, AllDone{});
    const v1::ObservedAttempt seen = state.FullObserved().attempts(0);
    EXPECT_EQ(seen.end_cause(), v1::END_CAUSE_DEVICE_FAULT);
    EXPECT_EQ(seen.detail(), "GPU b: it is not there any more");
  }
}

TEST_F(NodeStateDeviceTest, NothingBeginsOnADeviceWithAFault) {
  state_->NoteDeviceFault("b", "GPU b: Xid 48", false);
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  EXPECT_EQ(Seen().end_cause(), v1::END_CAUSE_DEVICE_FAULT);
  EXPECT_THAT(host_.calls, ElementsAre("prepare"));
  EXPECT_THAT(faults_, IsEmpty());  // the node is well
  Apply(WantGpus(v1::GOAL_FORGET));
  state_->NoteDeviceFault("b", "", false);
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  EXPECT_EQ(Seen().phase(), v1::PHASE_STARTING);
}

TEST_F(NodeStateDeviceTest, OneThatIsLostWhileItStartsEndsWhatStarted) {
  Apply(WantGpus(v1::GOAL_RUN));
  std::move(host_.prepared)(4711);
  state_->NoteDeviceFault("a", "GPU a: it is lost", true);
  host_.calls.clear();
  std::move(host_.started)(absl::OkStatus());
  EXPECT_THAT(host_.calls, ElementsAre("stop 5s"));
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
TEST_F(NodeStateTest,
       ACheckpointIsOnDiskBeforeItIsAcceptedAndUntilAcknowledged) {
  RunToRunning();
  v1::Checkpoint checkpoint;
  checkpoint.set_path("/r/j/attempt-1.7/step-5");
  absl::Status accepted = absl::UnknownError("not answered");
  state_->CommitCheckpoint(id_, 0, 7, checkpoint,
                           [&](absl::Status status) { accepted = status; });
  EXPECT_THAT(accepted, IsOk());
  EXPECT_EQ(host_.journal[id_].observed.checkpoints_size(), 1);
  EXPECT_EQ(Seen().checkpoints_size(), 1);
  v1::Acknowledge acknowledge;
  auto* acknowledged = acknowledge.add_checkpoints();
  acknowledged->set_attempt_id(std::string(id_.bytes()));
  acknowledged->add_paths(checkpoint.path());
  state_->Acknowledge(acknowledge);
  EXPECT_EQ(Seen().checkpoints_size(), 0);
  EXPECT_EQ(host_.journal[id_].observed.checkpoints_size(), 0);
}

TEST_F(NodeStateTest, RefusesACheckpointOfAnotherEpoch) {
  RunToRunning();
  absl::Status accepted;
  state_->CommitCheckpoint(id_, 0, 6, {},
                           [&](absl::Status status) { accepted = status; });
  EXPECT_THAT(accepted, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(NodeStateTest, RetiredCheckpointsAreRemovedOnceAndReported) {
  RunToRunning();
  host_.calls.clear();
  v1::DesiredAttempt want = Want(v1::GOAL_RUN);
  want.add_retired_checkpoints("/old");
  Apply(want);
  Apply(want);
  EXPECT_THAT(host_.calls, ElementsAre("remove /old"));
  EXPECT_THAT(Seen().removed_checkpoints(), ElementsAre("/old"));
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(Seen().removed_checkpoints(), IsEmpty());
}

TEST_F(NodeStateTest, AnExchangeIsAnsweredWhenTheHeadHasAllBlobs) {
  RunToRunning();
  absl::StatusOr<std::vector<std::string>> blobs =
      absl::UnknownError("not answered");
  state_->GiveBlob(id_, 0, 7, "gloo", "a",
                   [&](auto result) { blobs = std::move(result); });
  EXPECT_EQ(Seen().exchanges_size(), 1);
  EXPECT_FALSE(blobs.ok());
  v1::DesiredAttempt want = Want(v1::GOAL_RUN);
  v1::Exchange* exchange = want.add_exchanges();
  exchange->set_tag("gloo");
  exchange->add_blobs("a");
  exchange->add_blobs("b");
  Apply(want);
  ASSERT_THAT(blobs, IsOk());
  EXPECT_THAT(*blobs, ElementsAre("a", "b"));
}

TEST_F(NodeStateTest, AnExchangeEndsWithItsAttempt) {
  RunToRunning();
  absl::Status answer;
  state_->GiveBlob(id_, 0, 7, "gloo", "a",
                   [&](auto result) { answer = result.status(); });
  host_.Tell(id_, KeeperLost{});
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kAborted));
}

TEST_F(NodeStateTest, RefusesAnotherBlobUnderOneTag) {
  RunToRunning();
  state_->GiveBlob(id_, 0, 7, "gloo", "a", [](auto) {});
  absl::Status answer;
  state_->GiveBlob(id_, 0, 7, "gloo", "b",
                   [&](auto result) { answer = result.status(); });
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(NodeStateTest, BoundsTheTagsOfARank) {
  RunToRunning();
  absl::Status answer;
  const auto note = [&](auto result) { answer = result.status(); };
  for (int i = 0; i < 64; ++i) {
    state_->GiveBlob(id_, 0, 7, absl::StrCat("tag", i), "a", note);
  }
  COHORT_EXPECT_OK(answer);
  state_->GiveBlob(id_, 0, 7, "one more", "a", note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(NodeStateTest, OnlyTheNewestMetricsAreShown) {
  RunToRunning();
  state_->TakeDelta();
  host_.TellMetrics(id_, 0, 5, R"({"step":5})");
  host_.TellMetrics(id_, 0, 4, R"({"step":4})");
  const v1::Observed delta = state_->TakeDelta();
  ASSERT_EQ(delta.attempts_size(), 1);
  ASSERT_EQ(delta.attempts(0).metrics_size(), 1);
  EXPECT_EQ(delta.attempts(0).metrics(0).json(), R"({"step":5})");
}

// PF-1
TEST_F(NodeStateTest, TheCommandMayBeginOnceThatIsOnDisk) {
  RunWithPreflight();
  v1::PreflightReport report;
  report.set_verdict(v1::PREFLIGHT_VERDICT_PASSED);
  report.set_json("{}");
  host_.save_status = absl::UnavailableError("disk full");
  absl::Status answer;
  const auto note = [&](absl::Status status) { answer = std::move(status); };
  state_->ReportPreflight(id_, 0, 7, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable));
  host_.save_status = absl::OkStatus();
  state_->ReportPreflight(id_, 0, 7, report, note);
  COHORT_EXPECT_OK(answer);
  EXPECT_TRUE(host_.journal.at(id_).observed.ranks(0).through_preflight());
  EXPECT_EQ(state_->TakeDelta().attempts(0).preflight().json(), "{}");
  state_->ReportPreflight(id_, 0, 6, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Who could say so later would fail for free.
TEST_F(NodeStateTest, ACommandCannotFailInThePreflight) {
  v1::PreflightReport report;
  report.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  absl::Status answer;
  const auto note = [&](absl::Status status) { answer = std::move(status); };
  RunToRunning();
  state_->ReportPreflight(id_, 0, 7, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
  v1::DesiredAttempt want = Want(v1::GOAL_RUN);
  want.set_preflight(true);
  Apply(want);
  report.set_verdict(v1::PREFLIGHT_VERDICT_PASSED);
  state_->ReportPreflight(id_, 0, 7, report, note);
  COHORT_EXPECT_OK(answer);
  report.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  state_->ReportPreflight(id_, 0, 7, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(Seen().has_preflight());
}

TEST_F(NodeStateTest, ARankThatDiesInItsPreflightIsToldOf) {
  RunWithPreflight();
  // One that the head has ended has not failed.
  host_.Tell(id_, Exited(0, 0, 15, ExitStatus::Cause::kStopped));
  EXPECT_FALSE(Seen().has_preflight());
  host_.Tell(id_, Exited(1, 0, 9));
  EXPECT_EQ(Seen().preflight().summary(),
            "rank 1 was killed by signal 9 in it");
}

}  // namespace
}  // namespace cohort::worker
