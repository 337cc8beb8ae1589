#include "head/state/unclaimed.h"

#include <algorithm>
#include <cstdint>
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
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "head/archive/restore.h"
#include "head/state/cluster_state.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

template <typename Id>
Id IdOf(char fill) {
  return *Id::FromBytes(std::string(Id::kBytes, fill));
}

const NodeId kNode = IdOf<NodeId>('n');
const NodeId kOther = IdOf<NodeId>('o');

// A head's state before and after a restore.  Each change is committed at once.
class UnclaimedTest : public ::testing::Test,
                      public NodeLinks,
                      public JobWatchers {
 protected:
  UnclaimedTest() { Load(); }

  // NodeLinks, JobWatchers.
  void SendDesired(const NodeId& node, uint64_t,
                   const std::vector<DesiredAttempt>& attempts) override {
    for (const DesiredAttempt& attempt : attempts) {
      sent_[node].push_back(attempt);
    }
  }
  void SendAcknowledge(const NodeId&, uint64_t,
                       const std::vector<AcknowledgedCheckpoints>&) override {}
  void Disconnect(const NodeId&, uint64_t, const absl::Status&) override {}
  void JobChanged(const JobId&) override {}

  // A start of the head on what the disk has.
  void Load() {
    MemoryStore store(*disk_);
    absl::StatusOr<Rows> rows = LoadRows(store);
    COHORT_ASSERT_OK(rows);
    const uint64_t term = rows->cluster ? rows->cluster->term : 0;
    state_ = std::make_unique<ClusterState>(limits_, time_, random_, *this,
                                            *this, *std::move(rows));
    Transition transition;
    state_->TakeTerm(transition);
    COHORT_ASSERT_OK(store.Append(term, transition.TakeBatch()));
  }

  void Submit(Transition transition) {
    MemoryStore store(*disk_);
    COHORT_ASSERT_OK(
        store.Append(state_->cluster().term, transition.TakeBatch()));
    for (Effect& effect : transition.TakeEffects()) {
      std::move(effect)(absl::OkStatus());
    }
  }

  // Keeps a backup of what is there now.
  void Backup() {
    backup_ = std::make_unique<MemoryDisk>();
    MemoryStore from(*disk_);
    MemoryStore to(*backup_);
    Batch all;
    for (const Table table : kAllTables) {
      const auto rows = from.LoadAll(table);
      for (const auto& [key, value] : *rows) all.push_back({table, key, value});
    }
    COHORT_ASSERT_OK(to.Append(0, all));
  }
  // Starts a head on it, restored.
  void Restore() {
    disk_ = std::move(backup_);
    MemoryStore store(*disk_);
    Rows rows = *LoadRows(store);
    const uint64_t term = rows.cluster->term;
    COHORT_ASSERT_OK(
        store.Append(term, ChangeGeneration(rows, time_.Wall(), random_)));
    old_generation_ = std::string(state_->cluster().generation.bytes());
    sent_.clear();
    Load();
  }
  void Settle() {
    for (int i = 0; i < 60; ++i) {
      Transition transition;
      for (const auto& [id, node] : state_->nodes().records()) {
        if (silent_.count(id) == 0) {
          state_->RenewLease(id, node.incarnation, transition);
        }
      }
      time_.AdvanceBy(limits_.tick_period);
      state_->Tick(transition);
      Submit(std::move(transition));
    }
    ASSERT_FALSE(state_->cluster().settling);
  }

  JobId NewJob(int cpus = 1) {
    JobSpec spec;
    spec.command = {"train"};
    spec.resources_per_worker.Set(kCpu, Amount::FromUnits(cpus));
    Transition transition;
    const auto job = state_->SubmitJob(Key(), "default", spec, transition);
    EXPECT_THAT(job, IsOk());
    Submit(std::move(transition));
    return *job;
  }
  RequestKey Key() {
    return {.principal = "cluster",
            .request_id = absl::StrCat("r", ++requests_),
            .body_hash = "b"};
  }

  RegisteredNode Join(const NodeId& node,
                      std::vector<ObservedAttempt> attempts = {},
                      int cpus = 2) {
    Registration registration;
    registration.node = node;
    registration.name = node == kNode ? "node-n" : "node-o";
    registration.host = "10.0.0.1";
    registration.resources.Set(kCpu, Amount::FromUnits(cpus));
    registration.observed = {.full = true, .attempts = std::move(attempts)};
    Transition transition;
    auto registered = state_->RegisterNode(registration, transition);
    EXPECT_THAT(registered, IsOk());
    Submit(std::move(transition));
    return *std::move(registered);
  }
  void Say(const NodeId& node, ObservedAttempt observed) {
    Transition transition;
    COHORT_EXPECT_OK(state_->Observe(
        node, state_->nodes().Find(node)->incarnation,
        {.full = false, .attempts = {std::move(observed)}}, transition));
    Submit(std::move(transition));
  }

  const JobRecord& Job(const JobId& job) { return *state_->jobs().Find(job); }
  const AttemptRecord& Last(const JobId& job) {
    return *state_->attempts().LastOf(job);
  }
  // What a worker says of the job's attempt, with what was wanted of it.
  ObservedAttempt At(const JobId& job, ObservedPhase phase) {
    const AttemptRecord& attempt = Last(job);
    ObservedAttempt observed;
    observed.attempt = attempt.id;
    observed.job = job;
    observed.epoch = attempt.epoch;
    observed.phase = phase;
    observed.master_port = 29500;
    observed.generation = std::string(state_->cluster().generation.bytes());
    DesiredAttempt& wanted = observed.wanted.emplace();
    wanted.attempt = attempt.id;
    wanted.job = job;
    wanted.number = attempt.number;
    wanted.epoch = attempt.epoch;
    wanted.command = Job(job).spec->command;
    wanted.ranks = {{.rank = 0, .local_rank = 0, .gpu_ids = {}}};
    wanted.world_size = 1;
    wanted.node_count = 1;
    wanted.holds_rank_zero = true;
    wanted.resources_per_rank = Job(job).spec->resources_per_worker;
    wanted.master_address = "10.0.0.1";
    wanted.master_port = 29500;
    return observed;
  }
  static ObservedAttempt Ended(ObservedAttempt observed, int code) {
    observed.phase = ObservedPhase::kEnded;
    observed.end = ObservedEnd::kExited;
    observed.ranks = {{.rank = 0,
                       .state = RankState::kExited,
                       .pid = 1,
                       .exit = ExitStatus{.code = code},
                       .exit_order = 1}};
    return observed;
  }
  // Its only rank runs on `node`.
  ObservedAttempt Run(const JobId& job, const NodeId& node) {
    Say(node, At(job, ObservedPhase::kPrepared));
    Say(node, At(job, ObservedPhase::kRunning));
    EXPECT_EQ(Job(job).state, JobState::kRunning);
    return At(job, ObservedPhase::kRunning);
  }

  absl::StatusOr<JobId> Adopt(const AttemptId& attempt) {
    Transition transition;
    auto job = state_->AdoptAttempt(Key(), attempt, transition);
    Submit(std::move(transition));
    return job;
  }
  absl::StatusOr<JobId> End(const AttemptId& attempt) {
    Transition transition;
    auto job = state_->EndAttempt(Key(), attempt, transition);
    Submit(std::move(transition));
    return job;
  }
  std::vector<Goal> TakeGoals(const NodeId& node) {
    std::vector<Goal> goals;
    for (const DesiredAttempt& sent : std::exchange(sent_[node], {})) {
      goals.push_back(sent.goal);
    }
    return goals;
  }
  const char* State(const AttemptId& attempt) {
    const UnclaimedTable::Entry* entry = state_->unclaimed().Find(attempt);
    return entry == nullptr ? "none" : StateOf(*entry, 1);
  }
  Amount FreeCpus(const NodeId& node) {
    return state_->nodes().AvailableOn(node).Get(kCpu);
  }

  ClusterLimits limits_;
  ManualExecutor time_;
  SeededRandom random_{7};
  std::unique_ptr<MemoryDisk> disk_ = std::make_unique<MemoryDisk>();
  std::unique_ptr<MemoryDisk> backup_;
  std::unique_ptr<ClusterState> state_;
  std::map<NodeId, std::vector<DesiredAttempt>> sent_;
  std::set<NodeId> silent_;
  std::string old_generation_;
  int requests_ = 0;
};

// ---- attempts that the backup has ----

// UN-1, UN-2.
TEST_F(UnclaimedTest, ARestoreEndsNothingAndStartsNothingTwice) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  EXPECT_STREQ(State(running.attempt), "AWAY");
  EXPECT_THAT(Join(kNode, {running}).desired, IsEmpty());
  Settle();
  EXPECT_THAT(TakeGoals(kNode), IsEmpty());
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_EQ(Job(job).attempts, 1);
  EXPECT_STREQ(State(running.attempt), "RUNNING");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
  EXPECT_THAT(state_->ReasonOf(Job(job)),
              HasSubstr("cohort adopt " + running.attempt.ToHex()));
  // Nor does a start of the head, or another registration.
  Load();
  EXPECT_THAT(Join(kNode, {running}).desired, IsEmpty());
  EXPECT_STREQ(State(running.attempt), "RUNNING");
}

TEST_F(UnclaimedTest, AnAdoptedAttemptIsOneAsAnyOther) {
  Join(kNode);
  const JobId job = NewJob();
  ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  EXPECT_THAT(Adopt(running.attempt), IsOkAndHolds(job));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(Goal::kRun));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_STREQ(State(running.attempt), "none");
  EXPECT_EQ(state_->ReasonOf(Job(job)), "");
  EXPECT_THAT(Adopt(running.attempt),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("is RUNNING and not unclaimed")));
  Say(kNode, Ended(running, 0));
  EXPECT_EQ(Job(job).state, JobState::kSucceeded);
}

TEST_F(UnclaimedTest, AdoptionAppliesWhatWasSaidMeanwhile) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {Ended(running, 0)});
  EXPECT_STREQ(State(running.attempt), "ENDED");
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  COHORT_EXPECT_OK(Adopt(running.attempt));
  EXPECT_EQ(Job(job).state, JobState::kSucceeded);
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(2));
}

// What an adoption makes of what was said meanwhile is its doing.
TEST_F(UnclaimedTest, WhatAnAdoptionMovesIsByWhoAdopted) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {Ended(running, 0)});
  COHORT_EXPECT_OK(Adopt(running.attempt));
  MemoryStore reader(*disk_);
  const auto events = LoadRecords<EventRecord>(reader);
  COHORT_ASSERT_OK(events);
  std::string by;
  for (const EventRecord& event : *events) {
    if (event.kind == "attempt_adopted") by = event.origin.principal;
    if (by.empty() || event.job != job) continue;
    EXPECT_EQ(event.origin.principal, by) << event.kind << " " << event.text;
    EXPECT_NE(event.origin.principal, "head");
  }
  EXPECT_NE(by, "");
}

TEST_F(UnclaimedTest, AnEndedAttemptMakesRoomForTheNextUncharged) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Settle();
  EXPECT_THAT(End(running.attempt), IsOkAndHolds(job));
  ASSERT_THAT(sent_[kNode], SizeIs(1));
  EXPECT_EQ(sent_[kNode][0].goal, Goal::kStop);
  EXPECT_EQ(sent_[kNode][0].grace, absl::Seconds(10));
  Say(kNode, Ended(running, 143));
  EXPECT_EQ(Job(job).failures, 0);
  EXPECT_EQ(Job(job).infra_restarts, 0);
  EXPECT_EQ(Job(job).state, JobState::kStarting);
  EXPECT_EQ(Job(job).attempts, 2);
  // No directory of the time after the backup gets a second owner.
  EXPECT_GT(Last(job).epoch, 1'000'000);
}

TEST_F(UnclaimedTest, WhatANodeDoesNotKnowAnyMoreWaitsForAPersonToo) {
  Join(kNode);
  const JobId job = NewJob();
  const AttemptId attempt = Run(job, kNode).attempt;
  Backup();
  Restore();
  Join(kNode);
  Settle();
  EXPECT_STREQ(State(attempt), "MISSING");
  EXPECT_EQ(Job(job).attempts, 1);
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  COHORT_EXPECT_OK(Adopt(attempt));
  EXPECT_EQ(Job(job).infra_restarts, 1);
  EXPECT_EQ(Job(job).attempts, 2);
}

// Its node forgot it once it had ended.
TEST_F(UnclaimedTest, WhatMayHaveRunAlreadyDoesNotBeginAgain) {
  Join(kNode);
  const JobId job = NewJob();
  const AttemptId attempt = Last(job).id;
  Backup();
  Restore();
  EXPECT_THAT(Adopt(attempt), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("it may be over")));
  Join(kNode);
  Settle();
  EXPECT_THAT(Adopt(attempt), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       HasSubstr("it may be over")));
  EXPECT_THAT(TakeGoals(kNode), IsEmpty());
  COHORT_ASSERT_OK(End(attempt));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(Goal::kStop));
}

TEST_F(UnclaimedTest, WhatItsNodeStillPreparesGoesOnOnceAdopted) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt prepared = At(job, ObservedPhase::kPrepared);
  Backup();
  Restore();
  Join(kNode, {prepared});
  COHORT_ASSERT_OK(Adopt(prepared.attempt));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(Goal::kRun));
}

TEST_F(UnclaimedTest, ADeadNodeChangesNothingBeforeAPersonSpeaks) {
  Join(kNode);
  const JobId job = NewJob();
  const AttemptId attempt = Run(job, kNode).attempt;
  Backup();
  Restore();
  Join(kOther);
  silent_ = {kNode};
  Settle();
  EXPECT_EQ(state_->nodes().Find(kNode)->state, NodeState::kDead);
  EXPECT_EQ(Job(job).attempts, 1);
  EXPECT_STREQ(State(attempt), "AWAY");
  COHORT_EXPECT_OK(End(attempt));
  EXPECT_EQ(Job(job).attempts, 2);
  EXPECT_EQ(Last(job).parts[0].node, kOther);
}

TEST_F(UnclaimedTest, WhoStopsTheJobSpeaksForItsAttempt) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Transition transition;
  COHORT_EXPECT_OK(state_->StopJob(Key(), job, transition));
  Submit(std::move(transition));
  EXPECT_EQ(TakeGoals(kNode).back(), Goal::kStop);
  Say(kNode, Ended(running, 143));
  EXPECT_EQ(Job(job).state, JobState::kStopped);
}

// RQ-1.
TEST_F(UnclaimedTest, ARepeatedRequestGetsTheFirstAnswer) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  const RequestKey key = Key();
  for (int i = 0; i < 2; ++i) {
    Transition transition;
    EXPECT_THAT(state_->AdoptAttempt(key, running.attempt, transition),
                IsOkAndHolds(job));
    Submit(std::move(transition));
    if (i == 0) Load();
  }
}

TEST_F(UnclaimedTest, OthersAreNotFound) {
  const auto refused = Adopt(IdOf<AttemptId>('x'));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kNotFound,
                                HasSubstr("cohort status")));
  EXPECT_THAT(End(IdOf<AttemptId>('x')), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(GetReason(refused.status()), "unknown_attempt");
}

// ---- attempts that began after the backup ----

TEST_F(UnclaimedTest, AJobThatBeganAfterTheBackupIsNotBegunAgain) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  EXPECT_THAT(Join(kNode, {running}).desired, IsEmpty());
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  EXPECT_STREQ(State(running.attempt), "RUNNING");
  // It holds what it has, and no more.
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));

  EXPECT_THAT(Adopt(running.attempt), IsOkAndHolds(job));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_EQ(Job(job).attempts, 1);
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(Goal::kRun));
  Load();
  Join(kNode, {running});
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  Say(kNode, Ended(running, 0));
  EXPECT_EQ(Job(job).state, JobState::kSucceeded);
}

// What rows hold that ended after the backup, and what began on it then.
TEST_F(UnclaimedTest, AStrangerBesideAnEndedAttemptHoldsItsOwnOnly) {
  Join(kNode, {}, 3);
  const JobId first = NewJob();
  const ObservedAttempt one = Run(first, kNode);
  const JobId second = NewJob();
  const ObservedAttempt two = Run(second, kNode);
  Backup();
  Say(kNode, Ended(one, 0));
  Say(kNode, Ended(two, 0));
  const ObservedAttempt later = Run(NewJob(), kNode);
  const ObservedAttempt last = Run(NewJob(), kNode);
  Restore();
  Join(kNode, {later, last}, 3);
  Settle();
  EXPECT_EQ(FreeCpus(kNode), Amount());
  COHORT_EXPECT_OK(End(one.attempt));
  COHORT_EXPECT_OK(End(two.attempt));
  EXPECT_EQ(Job(first).state, JobState::kStarting);
  EXPECT_EQ(Job(second).state, JobState::kPending);
  COHORT_EXPECT_OK(Adopt(later.attempt));
}

TEST_F(UnclaimedTest, WithoutItsSpecAllOfTheNodeIsHeld) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  ObservedAttempt running = Run(job, kNode);
  const auto wanted = std::exchange(running.wanted, std::nullopt);
  Restore();
  Join(kNode, {running});
  EXPECT_EQ(FreeCpus(kNode), Amount());
  EXPECT_THAT(Adopt(running.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  running.wanted = wanted;
  Say(kNode, running);
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1));
}

TEST_F(UnclaimedTest, AJobThatTheBackupLacksIsMadeAgain) {
  Backup();
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  EXPECT_THAT(Adopt(running.attempt), IsOkAndHolds(job));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_THAT(Job(job).spec->command, ElementsAre("train"));
  EXPECT_EQ(Job(job).attempts, 1);
}

TEST_F(UnclaimedTest, AnEndedStrangerIsForgottenAlsoAfterAStart) {
  Backup();
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  EXPECT_THAT(End(running.attempt), IsOkAndHolds(job));
  EXPECT_THAT(TakeGoals(kNode), ElementsAre(Goal::kForget));
  EXPECT_STREQ(State(running.attempt), "none");
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(1)) << "it still has it";
  // The order never arrived.
  Load();
  const RegisteredNode again = Join(kNode, {running});
  ASSERT_THAT(again.desired, SizeIs(1));
  EXPECT_EQ(again.desired[0].goal, Goal::kForget);
  Join(kNode);
  EXPECT_EQ(FreeCpus(kNode), Amount::FromUnits(2));
}

TEST_F(UnclaimedTest, AWaitingJobGoesOnOnceItsStrangerIsEnded) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  COHORT_EXPECT_OK(End(running.attempt));
  EXPECT_EQ(Job(job).state, JobState::kStarting);
  EXPECT_NE(Last(job).id, running.attempt);
}

// UN-2: only its node knows of it, and may be the last to come.
TEST_F(UnclaimedTest, AStrangerIsWaitedForAtEachStart) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kOther);
  Join(kNode, {running});
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  for (int start = 0; start < 3; ++start) {
    Load();
    Join(kOther);
    EXPECT_EQ(Job(job).state, JobState::kPending);
    Join(kNode, {running});
    Settle();
    EXPECT_EQ(Job(job).state, JobState::kPending);
  }
  COHORT_EXPECT_OK(End(running.attempt));
  EXPECT_EQ(Job(job).state, JobState::kStarting);
  Load();
  EXPECT_FALSE(state_->cluster().settling) << "nobody is waited for any more";
}

TEST_F(UnclaimedTest, AStrangerThatIsNowhereAnyMoreHoldsNothingBack) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running});
  Settle();
  Join(kNode);
  EXPECT_STREQ(State(running.attempt), "none");
  EXPECT_EQ(Job(job).state, JobState::kStarting);
}

TEST_F(UnclaimedTest, WhatCannotBeAdoptedSaysWhy) {
  Join(kNode);
  const JobId job = NewJob();
  ObservedAttempt first = Run(job, kNode);
  Backup();
  // The first attempt is lost, a second one begins.
  ObservedAttempt lost = first;
  lost.phase = ObservedPhase::kEnded;
  lost.end = ObservedEnd::kKeeperLost;
  Say(kNode, lost);
  ASSERT_EQ(Job(job).attempts, 2);
  ObservedAttempt second = Run(job, kNode);
  Restore();
  ObservedAttempt half = second;
  half.attempt = IdOf<AttemptId>('h');
  half.wanted->attempt = half.attempt;
  half.wanted->node_count = 2;
  Join(kNode, {second, half});
  EXPECT_THAT(Adopt(half.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("on 2 nodes, of which 1 are here")));
  EXPECT_THAT(Adopt(second.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("its job is RUNNING here"),
                             HasSubstr("cohort end"))));
  // Once the first is spoken for, the second can be.
  COHORT_EXPECT_OK(End(half.attempt));
  COHORT_EXPECT_OK(End(first.attempt));
  EXPECT_EQ(Job(job).state, JobState::kPending);
  COHORT_EXPECT_OK(Adopt(second.attempt));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  EXPECT_EQ(Job(job).attempts, 2);
}

// EL-2: what runs unclaimed runs.
TEST_F(UnclaimedTest, AStrangerKeepsThePlaceOfItsElement) {
  Join(kNode);
  JobSpec spec;
  spec.command = {"train"};
  spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
  spec.array = "0-3%1";
  Transition transition;
  const JobId array = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  ObservedAttempt zero = Run(array.Element(0), kNode);
  Backup();
  Say(kNode, Ended(zero, 0));
  const ObservedAttempt one = Run(array.Element(1), kNode);
  Restore();
  Join(kNode, {Ended(zero, 0), one});
  Settle();
  const auto started = [&] {
    const auto& all = state_->attempts().all();
    return std::count_if(all.begin(), all.end(), [](const auto& each) {
      return each.second.state != AttemptState::kEnded;
    });
  };
  COHORT_EXPECT_OK(Adopt(zero.attempt));
  EXPECT_EQ(Job(array.Element(0)).state, JobState::kSucceeded);
  EXPECT_EQ(started(), 0) << "element 1 runs";
  // Nor does a hold give its place away.
  Transition hold;
  COHORT_EXPECT_OK(state_->HoldJob(Key(), array.Element(1), hold));
  Submit(std::move(hold));
  EXPECT_EQ(started(), 0);
  Transition release;
  COHORT_EXPECT_OK(state_->ReleaseJob(Key(), array.Element(1), release));
  Submit(std::move(release));
  COHORT_EXPECT_OK(Adopt(one.attempt));
  EXPECT_EQ(started(), 1);
  Say(kNode, Ended(one, 1));
  EXPECT_EQ(Job(array.Element(1)).state, JobState::kFailed);
  EXPECT_EQ(started(), 1);
  EXPECT_EQ(Job(array.Element(2)).state, JobState::kStarting);
}

// EL-2: two strangers of one array, whose places are one.
TEST_F(UnclaimedTest, EndedStrangersDoNotStartAgainBesideEachOther) {
  Join(kNode, {}, 4);
  JobSpec spec;
  spec.command = {"train"};
  spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
  spec.array = "0-3%2";
  Transition transition;
  const JobId array = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  Backup();
  const ObservedAttempt zero = Run(array.Element(0), kNode);
  const ObservedAttempt one = Run(array.Element(1), kNode);
  ObservedAttempt lie = one;
  lie.attempt = IdOf<AttemptId>('l');
  lie.job = lie.wanted->job = array.Element(2);
  lie.wanted->attempt = lie.attempt;
  Restore();
  Join(kNode, {zero, one, lie}, 4);
  Settle();
  for (const AttemptId& id : {zero.attempt, one.attempt, lie.attempt}) {
    COHORT_EXPECT_OK(End(id));
  }
  Join(kNode, {}, 4);
  int started = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    started += Job(array.Element(i)).state == JobState::kStarting;
  }
  EXPECT_EQ(started, 2);
}

// DP-1: it ran when its dependency failed it, and could not be failed then.
TEST_F(UnclaimedTest, AnAdoptedJobFailsWhenItWaitsAgainForWhatFailed) {
  Join(kNode);
  const JobId first = NewJob();
  const ObservedAttempt before = Run(first, kNode);
  JobSpec spec;
  spec.command = {"train"};
  spec.resources_per_worker.Set(kCpu, Amount::FromUnits(1));
  spec.after = {{.job = first, .kind = DependencyKind::kOk}};
  Transition transition;
  const JobId second = *state_->SubmitJob(Key(), "default", spec, transition);
  Submit(std::move(transition));
  Backup();
  Say(kNode, Ended(before, 0));
  const ObservedAttempt running = Run(second, kNode);
  Restore();
  Join(kNode, {running, before});
  Settle();
  COHORT_EXPECT_OK(Adopt(running.attempt));
  COHORT_EXPECT_OK(Adopt(before.attempt));
  Say(kNode, Ended(before, 1));
  EXPECT_EQ(Job(first).state, JobState::kFailed);
  EXPECT_EQ(Job(second).state, JobState::kRunning);
  ObservedAttempt lost = running;
  lost.phase = ObservedPhase::kEnded;
  lost.end = ObservedEnd::kKeeperLost;
  Say(kNode, lost);
  EXPECT_EQ(Job(second).state, JobState::kFailed);
  EXPECT_THAT(Job(second).reason, HasSubstr("it was to start after"));
}

// DR-2.
TEST_F(UnclaimedTest, AnAdoptedAttemptObeysTheDeadlineOfItsDrainedNode) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  Join(kNode, {running});
  Transition transition;
  COHORT_EXPECT_OK(state_->DrainNode(
      Key(), kNode.ToHex(), {.reason = "", .deadline = absl::Seconds(1)},
      transition));
  Submit(std::move(transition));
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kRunning);
  sent_.clear();
  COHORT_EXPECT_OK(Adopt(running.attempt));
  EXPECT_EQ(TakeGoals(kNode).back(), Goal::kStop);
  EXPECT_EQ(Last(job).cause, EndCause::kDrained);
}

// ---- what nodes say that cannot be ----

TEST_F(UnclaimedTest, HugeAmountsAreHeldAndGivenBackAndNotAdopted) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode);
  ObservedAttempt first = Run(job, kNode);
  ObservedAttempt second = Run(other, kNode);
  ResourceSet huge;
  huge.Set(kMemory, Amount::FromUnits(900'000'000'000'000));
  first.wanted->resources_per_rank = huge;
  second.wanted->resources_per_rank = huge;
  Restore();
  Registration registration;
  registration.node = kNode;
  registration.name = "node-n";
  registration.resources = huge;
  registration.observed = {.full = true, .attempts = {first, second}};
  for (const bool gone : {false, true}) {
    if (gone) registration.observed.attempts.clear();
    Transition transition;
    COHORT_EXPECT_OK(state_->RegisterNode(registration, transition));
    Submit(std::move(transition));
    if (gone) break;
    EXPECT_THAT(Adopt(first.attempt),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr("its job here asks for")));
  }
  EXPECT_EQ(state_->nodes().AvailableOn(kNode), huge);
}

TEST_F(UnclaimedTest, WhatItsNodesSayHasToBePossibleToBeAdopted) {
  Backup();
  Join(kNode);
  const ObservedAttempt running = Run(NewJob(), kNode);
  Restore();
  Join(kNode, {running});
  const auto refused = [&](auto change, const char* why) {
    ObservedAttempt lie = running;
    change(lie);
    Say(kNode, lie);
    const absl::StatusOr<JobId> adopted = Adopt(lie.attempt);
    EXPECT_THAT(adopted,
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(why)))
        << why;
    EXPECT_EQ(GetReason(adopted.status()), "cannot_adopt");
  };
  refused([](auto& lie) { lie.wanted->ranks[0].rank = 7; }, "rank 7 of 1");
  refused([](auto& lie) { lie.wanted->world_size = 100'000'000; },
          "1 ranks of 100000000");
  refused([](auto& lie) { lie.wanted->ranks.push_back(lie.wanted->ranks[0]); },
          "rank 0 is there twice");
  refused([](auto& lie) { lie.wanted->ranks[0].gpu_ids = {"GPU-x"}; },
          "has 1 GPUs and asked for 0");
  refused(
      [](auto& lie) {
        lie.wanted->ranks[0].gpu_ids = {"GPU-x"};
        lie.wanted->resources_per_rank.Set(kGpu, Amount::FromUnits(1));
      },
      "on node node-n");
  refused(
      [](auto& lie) {
        lie.wanted->resources_per_rank.Set(kCpu, Amount::FromUnits(3));
      },
      "it would hold CPU 3");
  refused([](auto& lie) { lie.wanted->job = JobId(); }, "contradicts");
  Say(kNode, running);
  silent_ = {kNode};
  Settle();
  refused([](auto&) {}, "is dead");
}

TEST_F(UnclaimedTest, DevicesOfAnotherAttemptAreNotAdopted) {
  Backup();
  Join(kNode);
  const JobId job = NewJob(2);
  const ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode);
  Settle();
  const JobId now = NewJob(2);
  ASSERT_EQ(Job(now).state, JobState::kStarting);
  ObservedAttempt own = At(now, ObservedPhase::kPreparing);
  Join(kNode, {own, running});
  EXPECT_THAT(Adopt(running.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("other attempts hold what it needs")));
  EXPECT_EQ(Job(now).state, JobState::kStarting);
  COHORT_EXPECT_OK(End(running.attempt));
}

TEST_F(UnclaimedTest, ReportsThatAreTooManyOrTooLongAreRefusedByName) {
  const JobId job = NewJob();
  Backup();
  Join(kNode);
  ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kOther);
  Registration registration;
  registration.node = kNode;
  registration.name = "node-n";
  registration.resources.Set(kCpu, Amount::FromUnits(2));
  for (char c = 'a'; c < 'a' + 5; ++c) {
    ObservedAttempt lie = running;
    lie.attempt = lie.wanted->attempt = IdOf<AttemptId>(c);
    lie.wanted->environment = {{"A", std::string(4 << 20, 'x')}};
    registration.observed.attempts.push_back(lie);
  }
  Transition transition;
  const auto refused = state_->RegisterNode(registration, transition);
  EXPECT_TRUE(transition.empty());
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("bytes of its unclaimed attempts")));
  EXPECT_EQ(GetReason(refused.status()), "too_many_unclaimed");
  EXPECT_THAT(state_->unclaimed().all(), IsEmpty());
  // Said again and again, one of them takes the room of one.
  registration.observed = {.full = true,
                           .attempts = {registration.observed.attempts[0]}};
  for (int i = 0; i < 10; ++i) {
    Transition fine;
    COHORT_EXPECT_OK(state_->RegisterNode(registration, fine));
    Submit(std::move(fine));
  }
}

TEST_F(UnclaimedTest, ALieAboutAnotherJobKeepsNothingWaiting) {
  const JobId job = NewJob();
  const JobId other = NewJob();
  Backup();
  Join(kNode, {}, 1);
  ObservedAttempt running = Run(job, kNode);
  Restore();
  Join(kNode, {running}, 4);
  running.job = other;
  Say(kNode, running);
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  EXPECT_EQ(Job(other).state, JobState::kStarting);
  EXPECT_THAT(Adopt(running.attempt),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("contradicts")));
}

// Its row says where it is.
TEST_F(UnclaimedTest, AnotherNodesWordOfAnAttemptCountsForNothing) {
  Join(kNode);
  const JobId job = NewJob();
  const ObservedAttempt running = Run(job, kNode);
  Backup();
  Restore();
  const RegisteredNode other = Join(kOther, {running});
  ASSERT_THAT(other.desired, SizeIs(1));
  EXPECT_EQ(other.desired[0].goal, Goal::kForget);
  EXPECT_STREQ(State(running.attempt), "AWAY");
  Join(kNode, {running});
  EXPECT_STREQ(State(running.attempt), "RUNNING");
  COHORT_EXPECT_OK(Adopt(running.attempt));
  EXPECT_EQ(Job(job).state, JobState::kRunning);
}

// RC-1: of this generation, as ever.
TEST_F(UnclaimedTest, UnknownAttemptsOfThisGenerationAreForgotten) {
  Join(kNode);
  const JobId job = NewJob();
  ObservedAttempt stray = Run(job, kNode);
  stray.attempt = IdOf<AttemptId>('x');
  const RegisteredNode again =
      Join(kNode, {At(job, ObservedPhase::kRunning), stray});
  ASSERT_THAT(again.desired, SizeIs(2));
  EXPECT_EQ(again.desired[0].goal, Goal::kRun);
  EXPECT_EQ(again.desired[1].goal, Goal::kForget);
  EXPECT_THAT(state_->unclaimed().all(), IsEmpty());
}

// ---- before the nodes were heard of ----

TEST_F(UnclaimedTest, NothingStartsBeforeTheNodesWereHeardOf) {
  Join(kNode);
  Backup();
  Restore();
  Join(kOther);
  const JobId job = NewJob();
  EXPECT_EQ(Job(job).state, JobState::kPending);
  EXPECT_THAT(state_->ReasonOf(Job(job)), HasSubstr("was restored"));
  silent_ = {kNode};
  Settle();
  EXPECT_EQ(Job(job).state, JobState::kStarting);
}

TEST_F(UnclaimedTest, AStartBeginsTheWaitAnew) {
  Backup();
  Restore();
  Join(kNode);
  time_.AdvanceBy(limits_.node_timeout * 0.9);
  Load();
  Join(kNode);
  time_.AdvanceBy(limits_.node_timeout * 0.9);
  Transition transition;
  state_->Tick(transition);
  EXPECT_TRUE(state_->cluster().settling);
}

}  // namespace
}  // namespace cohort::head
