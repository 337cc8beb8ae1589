#include "head/unclaimed.h"

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
#include "head/cluster_state.h"
#include "head/memory_store.h"
#include "head/records_codec.h"
#include "head/restore.h"

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
