// Whatever restarts, dies and comes back in whatever phase of a job: it goes on
// or starts again, is charged for its own failures only, and nothing is left
// anywhere.  And nodes that say what cannot be.

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

// Of a job with one rank on each of two nodes.
enum class Phase {
  kPreparing,  // nobody has answered
  kPrepared,   // one node has
  kStarting,   // both have; one starts its rank
  kRunning,
  kEnding,    // one rank failed, the other is to end
  kStopping,  // a person stopped it
};

class PhaseTest : public ClusterStateTest,
                  public ::testing::WithParamInterface<Phase> {
 protected:
  PhaseTest() {
    Join(a_, 1);
    Join(b_, 1);
    job_ = SubmitJob(Spec(2, 1));
    Reach();
  }

  void Reach() {
    if (GetParam() == Phase::kPreparing) return;
    Say(a_, At(job_, Stage::kPrepared));
    if (GetParam() == Phase::kPrepared) return;
    Say(b_, At(job_, Stage::kPrepared));
    if (GetParam() == Phase::kStarting) {
      return Say(a_, At(job_, Stage::kStarting));
    }
    Say(a_, At(job_, Stage::kRunning));
    Say(b_, At(job_, Stage::kRunning));
    if (GetParam() == Phase::kEnding) Say(a_, Exited(job_, a_, 1));
    if (GetParam() == Phase::kStopping) {
      COHORT_EXPECT_OK(StopJob(job_));
    }
  }

  bool Runs() const { return GetParam() >= Phase::kStarting; }

  // What `node` has of the attempt in this phase.
  v1::ObservedPlace Has(const NodeId& node) {
    const bool first = node == a_;
    switch (GetParam()) {
      case Phase::kPreparing:
        return At(job_, Stage::kPreparing);
      case Phase::kPrepared:
        return At(job_, first ? Stage::kPrepared : Stage::kPreparing);
      case Phase::kStarting:
        return At(job_, first ? Stage::kStarting : Stage::kPrepared);
      case Phase::kEnding:
        if (first) return Exited(job_, a_, 1);
        return At(job_, Stage::kRunning);
      case Phase::kRunning:
      case Phase::kStopping:
        return At(job_, Stage::kRunning);
    }
    return {};
  }
  RegisteredNode Rejoin(const NodeId& node,
                        const std::vector<v1::ObservedPlace>& places) {
    Registration registration = Node(node, 1);
    for (const v1::ObservedPlace& place : places) {
      *registration.observed.add_places() =
          OnlyOn(node, state_->attempts().Find(AttemptOf(place)), place);
    }
    return Join(registration);
  }
  Goal ExpectedGoal() const {
    switch (GetParam()) {
      case Phase::kPreparing:
      case Phase::kPrepared:
        return v1::GOAL_PREPARE;
      case Phase::kStarting:
      case Phase::kRunning:
        return v1::GOAL_RUN;
      case Phase::kEnding:
      case Phase::kStopping:
        return v1::GOAL_STOP;
    }
    return v1::GOAL_FORGET;
  }

  // Both nodes do what they are told until the job has ended.
  void GoOn() {
    if (Attempt(job_).state == v1::ATTEMPT_STATE_PREPARING) {
      Say(a_, At(job_, Stage::kPrepared));
      Say(b_, At(job_, Stage::kPrepared));
    }
    const bool ends = Attempt(job_).state == v1::ATTEMPT_STATE_ENDING;
    for (const NodeId& node : {a_, b_}) {
      if (IsOverOn(node)) continue;
      if (!ends) Say(node, At(job_, Stage::kRunning));
    }
    for (const NodeId& node : {a_, b_}) {
      if (IsOverOn(node)) continue;
      Say(node, Exited(job_, node, ends ? 143 : 0, /*by_order=*/ends));
    }
  }
  bool IsOverOn(const NodeId& node) {
    const std::vector<Process>& all = Attempt(job_).processes;
    return std::all_of(all.begin(), all.end(), [&](const Process& each) {
      return each.node != node || each.over();
    });
  }
  JobState ExpectedEnd() const {
    if (GetParam() == Phase::kEnding) return v1::JOB_STATE_FAILED;
    if (GetParam() == Phase::kStopping) return v1::JOB_STATE_STOPPED;
    return v1::JOB_STATE_SUCCEEDED;
  }
  void ExpectEndedCleanly(int attempts, int infra_restarts) {
    const JobState end =
        attempts == 1 ? ExpectedEnd() : v1::JOB_STATE_SUCCEEDED;
    EXPECT_EQ(StateOf(job_), end) << Job(job_).row.reason();
    EXPECT_EQ(Job(job_).row.attempts(), attempts);
    EXPECT_EQ(Job(job_).row.failures(), end == v1::JOB_STATE_FAILED ? 1 : 0);
    EXPECT_EQ(Job(job_).row.infra_restarts(), infra_restarts);
    for (const NodeId& node : {a_, b_}) {
      EXPECT_TRUE(state_->nodes().IsEmpty(node));
      EXPECT_EQ(state_->nodes().AvailableOn(node).Get(kCpu),
                Amount::FromUnits(1));
    }
  }

  JobId job_;
};

TEST_P(PhaseTest, GoesOnAfterARestartOfTheHead) {
  Reload();
  // Nothing is offered before both are back (PL-3).
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).empty());
  const RegisteredNode a = Rejoin(a_, {Has(a_)});
  const RegisteredNode b = Rejoin(b_, {Has(b_)});
  ASSERT_THAT(b.desired, SizeIs(1));
  EXPECT_EQ(GoalFor(b.desired[0]), ExpectedGoal());
  ASSERT_THAT(a.desired, SizeIs(1));
  EXPECT_EQ(GoalFor(a.desired[0]),
            GetParam() == Phase::kEnding ? v1::GOAL_FORGET : ExpectedGoal());
  GoOn();
  ExpectEndedCleanly(1, 0);
}

// RC-2: told twice, and in the other order, it is the same.
TEST_P(PhaseTest, GoesOnHoweverOftenEverythingIsToldAgain) {
  for (int i = 0; i < 3; ++i) {
    Reload();
    for (int j = 0; j < 2; ++j) {
      Rejoin(b_, {Has(b_)});
      Rejoin(a_, {Has(a_)});
      Say(a_, Has(a_));
    }
  }
  GoOn();
  ExpectEndedCleanly(1, 0);
}

TEST_P(PhaseTest, TakesTheEndThatCameWhileTheHeadWasAway) {
  if (!Runs()) return;  // nothing runs before the head says so
  const bool ends = GetParam() >= Phase::kEnding;
  Reload();
  Rejoin(a_, {GetParam() == Phase::kEnding
                  ? Has(a_)
                  : Exited(job_, a_, ends ? 143 : 0, /*by_order=*/ends)});
  Rejoin(b_, {Exited(job_, b_, ends ? 143 : 0, /*by_order=*/ends)});
  ExpectEndedCleanly(1, 0);
}

// A machine that lost power with the head.
TEST_P(PhaseTest, StartsAgainWhatBothSidesLost) {
  Reload();
  Rejoin(a_, {});
  Rejoin(b_, {});
  // That a rank failed is explained by the loss of its sibling.
  const bool again = Runs() && GetParam() != Phase::kStopping;
  if (!Runs() || again) GoOn();
  ExpectEndedCleanly(again ? 2 : 1, again ? 1 : 0);
}

TEST_P(PhaseTest, TakesANodeBackThatWasDeclaredDead) {
  const v1::ObservedPlace had = Has(a_);
  Pass(absl::Seconds(11), {b_});
  ASSERT_EQ(state_->nodes().ShownState(a_), v1::NODE_STATE_DEAD);
  if (GetParam() != Phase::kEnding) {
    ASSERT_EQ(PlaceOn(Attempt(job_), a_)->phase, v1::PLACE_PHASE_LOST);
  }
  // The rest of the gang ends.
  if (Runs()) {
    Say(b_, Exited(job_, b_, 143, /*by_order=*/true));
  } else {
    Say(b_, EndedBy(At(job_, Stage::kEnded), v1::END_CAUSE_EXITED));
  }
  const RegisteredNode back = Rejoin(a_, {had});
  for (const v1::DesiredPlace& desired : back.desired) {
    if (desired.attempt_id() != had.attempt_id()) continue;
    EXPECT_EQ(desired.goal(), v1::GOAL_FORGET);
  }
  EXPECT_THAT(back.desired, Not(IsEmpty()));
  // What runs there is in the way until the node has ended it.
  Say(a_, EndedBy(had, v1::END_CAUSE_UNSPECIFIED));
  const bool again = GetParam() < Phase::kEnding;
  if (again) {
    ASSERT_EQ(StateOf(job_), v1::JOB_STATE_STARTING);
    GoOn();
  }
  ExpectEndedCleanly(again ? 2 : 1, again ? 1 : 0);
}

std::string PhaseName(const ::testing::TestParamInfo<Phase>& phase) {
  constexpr const char* kNames[] = {"Preparing", "Prepared", "Starting",
                                    "Running",   "Ending",   "Stopping"};
  return kNames[static_cast<int>(phase.param)];
}

INSTANTIATE_TEST_SUITE_P(Phases, PhaseTest,
                         ::testing::Values(Phase::kPreparing, Phase::kPrepared,
                                           Phase::kStarting, Phase::kRunning,
                                           Phase::kEnding, Phase::kStopping),
                         &PhaseName);

// ---- nodes that say what cannot be ----

struct Lie {
  const char* name;
  std::function<void(Registration&)> tell;
  const char* answer;
};

class LyingNodeTest : public ClusterStateTest,
                      public ::testing::WithParamInterface<Lie> {};

TEST_P(LyingNodeTest, IsToldWhatAndNothingChanges) {
  Join(a_, 2);
  const JobId job = SubmitJob(Spec(1, 2));
  Run(job);
  const JobId waits = SubmitJob(Spec(1, 2));
  Registration liar = Node(b_, 8);
  GetParam().tell(liar);
  Transition transition;
  const auto registered = state_->RegisterNode(liar, transition);
  EXPECT_THAT(registered, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr(GetParam().answer)));
  EXPECT_TRUE(transition.empty());
  EXPECT_EQ(state_->nodes().Find(b_), nullptr);
  EXPECT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(StateOf(waits), v1::JOB_STATE_PENDING);
}

// It runs process 3 of `attempt`, of which nobody knows.
v1::ObservedPlace SomePlace(const std::string& attempt) {
  v1::ObservedPlace place;
  place.set_attempt_id(attempt);
  place.set_job_id(attempt);
  place.set_phase(v1::PHASE_PREPARED);
  v1::ObservedProcess& process = *place.add_processes();
  process.set_slot(3);
  process.set_incarnation(4);
  process.set_state(v1::PROCESS_STATE_RUNNING);
  return place;
}
v1::ObservedPlace& AddPlace(Registration& node) {
  return *node.observed.add_places() = SomePlace(std::string(16, 'x'));
}

void AddGpu(Registration& node, const std::string& id) {
  AddDevice(node.node, {.id = id,
                        .kind = "gpu",
                        .model = "H100",
                        .memory_bytes = 1,
                        .simulated = false});
}

INSTANTIATE_TEST_SUITE_P(
    Lies, LyingNodeTest,
    ::testing::Values(
        Lie{"MoreGpusThanDevices",
            [](Registration& n) {
              AddGpu(n, "g0");
              SetResource(n.node, kGpu, Amount::FromUnits(8));
            },
            "GPU 8 and 1 GPU devices"},
        Lie{"FewerGpusThanDevices", [](Registration& n) { AddGpu(n, "g0"); },
            "GPU 0 and 1 GPU devices"},
        Lie{"OneDeviceTwice",
            [](Registration& n) {
              AddGpu(n, "g0");
              AddGpu(n, "g0");
              SetResource(n.node, kGpu, Amount::FromUnits(2));
            },
            "\"g0\" twice"},
        Lie{"ADeviceWithoutId",
            [](Registration& n) {
              AddGpu(n, "");
              SetResource(n.node, kGpu, Amount::FromUnits(1));
            },
            "without an id"},
        Lie{"AbsurdlyManyDevices",
            [](Registration& n) {
              for (int i = 0; i < 2'000; ++i) AddGpu(n, absl::StrCat("g", i));
              SetResource(n.node, kGpu, Amount::FromUnits(2'000));
            },
            "2000 devices"},
        Lie{"AmountsThatOverflow",
            [](Registration& n) {
              SetResource(n.node, kCpu,
                          Amount::FromTenThousandths(
                              std::numeric_limits<int64_t>::max()));
            },
            "CPU"},
        Lie{"NegativeAmounts",
            [](Registration& n) {
              SetResource(n.node, "license", Amount::FromTenThousandths(-1));
            },
            "license"},
        Lie{"ATaintWithoutKey",
            [](Registration& n) { AddTaint(n.node, "", "v"); }, "taint"},
        Lie{"ATaintOfTwoLines",
            [](Registration& n) { AddTaint(n.node, "a\nb"); }, "taint"},
        Lie{"AbsurdlyManyTaints",
            [](Registration& n) {
              for (int i = 0; i < 65; ++i) {
                AddTaint(n.node, absl::StrCat("k", i));
              }
            },
            "65 taints"},
        Lie{"AnAttemptWithoutId",
            [](Registration& n) {
              AddPlace(n).set_attempt_id(std::string(AttemptId().bytes()));
            },
            "without an id"},
        Lie{"OneAttemptTwice",
            [](Registration& n) {
              AddPlace(n);
              AddPlace(n);
            },
            "twice"},
        Lie{"AnImpossiblePort",
            [](Registration& n) { AddPlace(n).set_master_port(70'000); },
            "port 70000"},
        Lie{"ANegativeSlot",
            [](Registration& n) {
              AddPlace(n).mutable_processes(0)->set_slot(-1);
            },
            "slot -1"},
        Lie{"OneProcessTwice",
            [](Registration& n) {
              v1::ObservedPlace& place = AddPlace(n);
              *place.add_processes() = v1::ObservedProcess(place.processes(0));
            },
            "duplicate slot 3"},
        Lie{"ANegativePid",
            [](Registration& n) {
              AddPlace(n).mutable_processes(0)->set_pid(-7);
            },
            "pid -7"},
        Lie{"AnIncarnationBeyondAllCounting",
            [](Registration& n) {
              AddPlace(n).mutable_processes(0)->set_incarnation(~uint64_t{0});
            },
            "incarnation 18446744073709551615"},
        Lie{"AbsurdlyManyAttempts",
            [](Registration& n) {
              for (int i = 0; i <= kObservedPlacesMax; ++i) AddPlace(n);
            },
            "16385 attempts"}),
    [](const auto& lie) { return lie.param.name; });

class StrangeReportTest : public ClusterStateTest {
 protected:
  StrangeReportTest() {
    Join(a_, 1);
    Join(b_, 1);
    job_ = SubmitJob(Spec(2, 1));
    Run(job_);
  }
  // Also of processes on other nodes.
  void SayAll(const NodeId& node, const v1::ObservedPlace& observed) {
    v1::Observed message;
    *message.add_places() = observed;
    Transition transition;
    COHORT_EXPECT_OK(
        state_->Observe(node, incarnations_[node], message, transition));
    Submit(std::move(transition));
  }
  // So many places that nobody gave it.
  v1::Observed Unknown(size_t count) {
    v1::Observed observed;
    for (size_t i = 0; i < count; ++i) {
      *observed.add_places() =
          SomePlace(std::string(AttemptId::New(random_).bytes()));
    }
    return observed;
  }
  void ExpectUndisturbed() {
    EXPECT_EQ(StateOf(job_), v1::JOB_STATE_RUNNING);
    EXPECT_EQ(Attempt(job_).state, v1::ATTEMPT_STATE_RUNNING);
    EXPECT_EQ(Job(job_).row.failures(), 0);
  }
  JobId job_;
};

TEST_F(StrangeReportTest, ARankOfAnotherNodeIsNotItsToEnd) {
  // The one without rank 0 says it.
  const NodeId liar = Attempt(job_).processes[1].node;
  v1::ObservedPlace lie = At(job_, Stage::kRunning);
  v1::ObservedProcess& other = *lie.mutable_processes(0);
  other.set_state(v1::PROCESS_STATE_ENDED);
  other.mutable_exit()->set_code(1);
  other.set_exit_order(1);
  v1::ObservedProcess& unknown = *lie.add_processes();
  unknown = other;
  unknown.set_slot(1'000'000);
  v1::MetricsReport& metrics = *lie.add_metrics();
  metrics.set_count(~uint64_t{0});
  metrics.set_json("{}");
  *lie.add_metrics() = metrics;
  lie.mutable_metrics(1)->set_slot(-5);
  v1::Checkpoint& checkpoint = *lie.add_checkpoints();
  checkpoint.set_path("/etc/passwd");
  checkpoint.set_step(-1);
  checkpoint.set_epoch(99);
  lie.add_removed_checkpoints("/");
  SayAll(liar, lie);
  ExpectUndisturbed();
  EXPECT_EQ(Attempt(job_).processes[0].exit, std::nullopt);
  EXPECT_FALSE(Attempt(job_).processes[0].over());
  EXPECT_THAT(Job(job_).row.checkpoints(), IsEmpty());
}

TEST_F(StrangeReportTest, AnAttemptOfOtherNodesIsToBeForgotten) {
  const NodeId c = NodeId::New(random_);
  Join(c, 4);
  SayAll(c, EndedBy(At(job_, Stage::kEnded), v1::END_CAUSE_KEEPER_LOST));
  ExpectUndisturbed();
  SayAll(c, At(job_, Stage::kRunning));
  ExpectUndisturbed();
  ASSERT_FALSE(sent_[c].empty());
  EXPECT_EQ(sent_[c].back().goal(), v1::GOAL_FORGET);
  EXPECT_EQ(state_->nodes().AvailableOn(c).Get(kCpu), Amount::FromUnits(2))
      << "as much as the job has for two processes";
  EXPECT_FALSE(state_->nodes().IsEmpty(a_));
}

// PL-2: deltas do not say what a process holds.
TEST_F(StrangeReportTest, WhatRunsWithoutALeaseKeepsItsGpu) {
  Registration gpus = Node(NodeId::New(random_), 2);
  AddGpu(gpus, "g0");
  AddGpu(gpus, "g1");
  SetResource(gpus.node, kGpu, Amount::FromUnits(2));
  Join(gpus);
  JobSpec spec = Spec(1, 1);
  SetResource(spec, kGpu, Amount::FromUnits(1));
  const JobId job = SubmitJob(spec);
  Run(job);
  const v1::ObservedPlace running = At(job, Stage::kRunning);
  const std::string gpu = running.processes(0).gpu_ids(0);
  Pass(absl::Seconds(11), {a_, b_});
  *gpus.observed.add_places() = running;
  Join(gpus);
  for (int time = 0; time < 2; ++time) {
    EXPECT_THAT(state_->nodes().HoldersOf(gpus.id, gpu),
                ElementsAre(Pair(AttemptOf(running), Amount::FromUnits(1))));
    SayAll(gpus.id, running);
  }
}

TEST_F(StrangeReportTest, TooManyAttemptsThatNobodyGaveItAreRefused) {
  const v1::Observed observed = Unknown(kOrphansMax + 1);
  Transition transition;
  EXPECT_THAT(state_->Observe(a_, incarnations_[a_], observed, transition),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       HasSubstr("4096 attempts")));
  EXPECT_TRUE(transition.empty());
  EXPECT_THAT(state_->nodes().OrphansOn(a_), IsEmpty());
  ExpectUndisturbed();
}

// The limit is on how many there are, not on how often they are named.
TEST_F(StrangeReportTest, AttemptsThatNobodyGaveItMayBeNamedAgain) {
  const v1::Observed observed = Unknown(kOrphansMax);
  for (int time = 0; time < 2; ++time) {
    Transition transition;
    COHORT_EXPECT_OK(
        state_->Observe(a_, incarnations_[a_], observed, transition));
  }
  EXPECT_THAT(state_->nodes().OrphansOn(a_), SizeIs(kOrphansMax));
}

TEST_F(StrangeReportTest, WhatCannotBeChangesNothing) {
  for (const auto& tell : std::vector<std::function<void(v1::ObservedPlace&)>>{
           [](v1::ObservedPlace& p) { p.set_master_port(-1); },
           [](v1::ObservedPlace& p) { p.mutable_processes(0)->set_slot(-1); },
           [](v1::ObservedPlace& p) { p.set_attempt_id("short"); },
           [](v1::ObservedPlace& p) {
             p.set_attempt_id(std::string(AttemptId().bytes()));
           }}) {
    v1::Observed message;
    v1::ObservedPlace& lie = *message.add_places();
    lie = Exited(job_, a_, 1);
    tell(lie);
    Transition transition;
    EXPECT_THAT(state_->Observe(a_, incarnations_[a_], message, transition),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_TRUE(transition.empty());
    ExpectUndisturbed();
  }
}

// A node that comes back smaller than what it holds.
TEST_F(StrangeReportTest, ANodeThatLostItsDevicesIsFullUntilTheyAreReleased) {
  Registration smaller = Node(a_, 1);
  SetResources(smaller.node, ResourceSet());
  SetResource(smaller.node, kMemory, Amount::FromUnits(1));
  *smaller.observed.add_places() =
      OnlyOn(a_, &Attempt(job_), At(job_, Stage::kRunning));
  Join(smaller);
  ExpectUndisturbed();
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).Get(kCpu).IsZero());
  Say(a_, Exited(job_, a_, 0));
  Say(b_, Exited(job_, b_, 0));
  EXPECT_EQ(StateOf(job_), v1::JOB_STATE_SUCCEEDED);
  EXPECT_TRUE(state_->nodes().AvailableOn(a_).Get(kCpu).IsZero());
}

}  // namespace
}  // namespace cohort::head
