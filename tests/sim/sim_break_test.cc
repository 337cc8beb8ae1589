// Each invariant of the simulation bites: something is broken on purpose, and
// the violation is reported under its number.
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "head/state/failure_class.h"
#include "head/state/rows.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "head/testing/no_links.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_invariants.h"
#include "tests/sim/sim_watch.h"

namespace cohort::sim {
namespace {

using ::testing::StartsWith;

// ---- what is broken in a running cluster ----

// Each ends with the first seed that notices.
constexpr uint64_t kSeeds = 300;

struct Broken {
  Break what;
  const char* invariant;
};

// For the name of the test.
void PrintTo(const Broken& broken, std::ostream* out) {
  *out << broken.invariant << " " << static_cast<int>(broken.what);
}

class BreakTest : public ::testing::TestWithParam<Broken> {};

// Another invariant may notice first in some seeds.
TEST_P(BreakTest, IsNoticed) {
  std::string others;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SimOptions options;
    options.seed = seed;
    options.broken = GetParam().what;
    // Other faults would only hide that one.
    options.faulty = GetParam().what != Break::kProgramIsCutUnseen;
    const SimResult result = SimCluster(options).Run();
    if (absl::StartsWith(result.violation, GetParam().invariant)) return;
    if (!result.violation.empty()) others += result.violation + "\n";
  }
  FAIL() << kSeeds << " seeds did not notice as " << GetParam().invariant
         << ":\n"
         << others;
}

INSTANTIATE_TEST_SUITE_P(
    All, BreakTest,
    ::testing::Values(Broken{Break::kStoreSkipsSyncs, "CM-1"},
                      Broken{Break::kStoreSkipsSyncsUnseen, "AK-1"},
                      Broken{Break::kClientForgetsItsId, "RQ-1"},
                      Broken{Break::kMachineDoublesDevices, "PL-2"},
                      Broken{Break::kRestoreIsForged, "CK-1"},
                      Broken{Break::kMachineForgetsNothing, "LK-1"},
                      Broken{Break::kRanksNeverEnd, "LV-1"},
                      Broken{Break::kHeartbeatsVanish, "LS-1"},
                      Broken{Break::kRowRots, "RS-1"},
                      Broken{Break::kStoreLosesEvents, "EV-1"},
                      Broken{Break::kStoreSplitsBatches, "CM-2"},
                      Broken{Break::kWorkerEndsOnItsOwn, "RC-1"},
                      Broken{Break::kWorkerLosesReports, "LK-1"},
                      Broken{Break::kHeadFallsSilent, "LV-1"},
                      Broken{Break::kHeadClockCrawls, "DR-2"},
                      Broken{Break::kRestoreKeepsGeneration, "OR-1"},
                      Broken{Break::kCopyIsFollowed, "OR-1"},
                      Broken{Break::kProgramIsCutUnseen, "DS-4"}));

// ---- what is wrong with a state ----

class DoctoredStateTest : public ::testing::Test, public head::NoLinks {
 protected:
  DoctoredStateTest() {
    rows_.cluster = head::NewCluster();
    rows_.cluster->set_cluster_id(head::IdBytes(ClusterId::New(random_)));
    rows_.cluster->set_term(1);
    head::NodeRecord node;
    node.id = NodeId::New(random_);
    node.node.set_name("node-0");
    head::SetResources(node.node, *ParseResources("CPU=4,GPU=2"));
    rows_.nodes.push_back(node);
    AddRunningJob(/*gpu=*/"gpu0");
  }

  // A job of two ranks that share a GPU.
  void AddRunningJob(const std::string& gpu) {
    head::JobRecord job(JobId::New(random_));
    job.row.set_sequence(rows_.jobs.size() + 1);
    job.row.set_state(v1::JOB_STATE_RUNNING);
    head::SetCommand(job.spec.Own(), {"train"});
    job.spec.Own().mutable_scaling()->set_num_workers(2);
    *job.spec.Own().mutable_scaling()->mutable_resources_per_worker() =
        rpc::ToWire(*ParseResources("CPU=1,GPU=0.5"));
    job.row.set_num_workers(2);
    job.row.set_attempts(1);
    job.row.set_epoch(1);
    rows_.jobs.push_back(job);
    AddAttempt(job.id, gpu);
  }

  void AddAttempt(const JobId& job, const std::string& gpu) {
    head::AttemptRecord attempt;
    attempt.id = AttemptId::New(random_);
    attempt.job = job;
    attempt.number = 1;
    attempt.epoch = 1;
    attempt.state = v1::ATTEMPT_STATE_RUNNING;
    attempt.places.push_back({.node = rows_.nodes[0].id});
    for (int slot = 0; slot < 2; ++slot) {
      attempt.processes.push_back(
          {.slot = slot,
           .incarnation = static_cast<uint64_t>(slot + 1),
           .node = rows_.nodes[0].id,
           .local_rank = slot,
           .devices = {{gpu, Amount::FromTenThousandths(5'000)}}});
    }
    rows_.attempts.push_back(std::move(attempt));
  }

  std::string Check() {
    return CheckState(
        head::ClusterState({}, time_, random_, *this, *this, rows_));
  }

  SeededRandom random_{1};
  ManualExecutor time_;
  head::Rows rows_;
};

TEST_F(DoctoredStateTest, IsFineAsItIs) {
  AddRunningJob("gpu1");
  EXPECT_EQ(Check(), "");
}

TEST_F(DoctoredStateTest, HalfAGangIsNoticed) {
  rows_.attempts[0].processes.pop_back();
  EXPECT_THAT(Check(), StartsWith("PL-1"));
}

TEST_F(DoctoredStateTest, ASlotTwiceInAGangIsNoticed) {
  rows_.attempts[0].processes[1].slot = 0;
  EXPECT_THAT(Check(), StartsWith("PR-1"));
}

TEST_F(DoctoredStateTest, AnIncarnationTwiceInAnAttemptIsNoticed) {
  rows_.attempts[0].processes[1].incarnation = 1;
  EXPECT_THAT(Check(), StartsWith("PR-1"));
}

TEST_F(DoctoredStateTest, TwoMembershipsOfOneEpochAreNoticed) {
  EpochWatch watch;
  EXPECT_EQ(
      watch.Check(head::ClusterState({}, time_, random_, *this, *this, rows_)),
      "");
  rows_.attempts[0].processes[1].again = true;
  EXPECT_THAT(
      watch.Check(head::ClusterState({}, time_, random_, *this, *this, rows_)),
      StartsWith("PR-4"));
}

TEST_F(DoctoredStateTest, ADeviceHeldTwiceIsNoticed) {
  AddRunningJob("gpu0");
  EXPECT_THAT(Check(), StartsWith("PL-2: gpu0"));
}

TEST_F(DoctoredStateTest, MoreThanANodeHasIsNoticed) {
  *rows_.jobs[0].spec.Own().mutable_scaling()->mutable_resources_per_worker() =
      rpc::ToWire(*ParseResources("CPU=3,GPU=0.5"));
  EXPECT_THAT(Check(), StartsWith("PL-2: more is held"));
}

TEST_F(DoctoredStateTest, AChargeTooManyIsNoticed) {
  rows_.jobs[0].row.set_failures(2);
  EXPECT_THAT(Check(), StartsWith("JB-2"));
}

TEST_F(DoctoredStateTest, ACheckpointOfALaterEpochIsNoticed) {
  v1::Checkpoint& checkpoint = *rows_.jobs[0].row.add_checkpoints();
  checkpoint.set_path("/x");
  checkpoint.set_step(1);
  checkpoint.set_epoch(2);
  EXPECT_THAT(Check(), StartsWith("CK-1"));
}

// The table itself would rather die.
TEST_F(DoctoredStateTest, ASecondAttemptIsNoticed) {
  AddAttempt(rows_.jobs[0].id, "gpu1");
  rows_.attempts[1].number = 2;
  EXPECT_DEATH(Check(), "attempt_table");
}

TEST_F(DoctoredStateTest, AStateThatIsNotTheStoredOneIsNoticed) {
  head::MemoryDisk disk;
  head::Batch batch = {
      head::ToWrite(*rows_.cluster), head::ToWrite(rows_.nodes[0]),
      head::ToWrite(rows_.jobs[0]), head::ToWrite(rows_.attempts[0]),
      head::ToWrite(head::SpecRecord{rows_.jobs[0].id, rows_.jobs[0].spec})};
  ASSERT_TRUE(head::MemoryStore(disk).Append(0, batch).ok());
  const head::ClusterState state({}, time_, random_, *this, *this, rows_);
  EXPECT_EQ(CheckRebuilt(state, disk, {}, time_), "");

  head::AttemptRecord other = rows_.attempts[0];
  other.places[0].phase = v1::PLACE_PHASE_ENDED;
  ASSERT_TRUE(head::MemoryStore(disk).Append(1, {head::ToWrite(other)}).ok());
  EXPECT_THAT(CheckRebuilt(state, disk, {}, time_), StartsWith("RS-1"));
}

TEST_F(DoctoredStateTest, ARankWhereItsJobMayNotBeIsNoticed) {
  head::SetLabels(rows_.nodes[0].node, {{"zone", "a"}});
  head::JobSpec& spec = rows_.jobs[0].spec.Own();
  spec.mutable_scaling()->add_selectors("zone=a, host=node-0");
  EXPECT_EQ(Check(), "");
  spec.mutable_scaling()->set_selectors(0, "zone=b");
  EXPECT_THAT(Check(), StartsWith("PL-4"));
  spec.mutable_scaling()->clear_selectors();
  head::AddTaint(rows_.nodes[0].node, "dedicated");
  EXPECT_THAT(Check(), StartsWith("PL-4"));
  *spec.mutable_scaling()->add_tolerations() =
      rpc::ToWire(Toleration{.key = "dedicated", .value = std::nullopt});
  EXPECT_EQ(Check(), "");
  head::AddDevice(rows_.nodes[0].node,
                  {.id = "gpu0", .kind = "gpu", .model = "Beta"});
  spec.mutable_scaling()->set_accelerator_type("Alpha");
  EXPECT_THAT(Check(), StartsWith("PL-4"));
  spec.mutable_scaling()->set_accelerator_type("Beta");
  head::SetTopology(spec, "rack", true);
  EXPECT_THAT(Check(), StartsWith("PL-4"));
}

TEST_F(DoctoredStateTest, AHeldJobThatRunsIsNoticed) {
  rows_.jobs[0].row.set_held(true);
  EXPECT_THAT(Check(), StartsWith("EL-1"));
}

TEST_F(DoctoredStateTest, AJobBeforeItsTurnIsNoticed) {
  AddRunningJob("gpu1");
  head::AddAfter(rows_.jobs[1].spec.Own(), rows_.jobs[0].id);
  EXPECT_THAT(Check(), StartsWith("DP-1"));
}

TEST_F(DoctoredStateTest, AJobBeforeItsStartTimeIsNoticed) {
  head::JobPhase& phase = *rows_.jobs[0].row.add_phases();
  phase.set_kind(v1::WAIT_KIND_NOTHING);
  phase.set_since_us(10'000'000);
  rows_.jobs[0].spec.Own().set_start_at_us(10'000'000);
  EXPECT_EQ(Check(), "");
  rows_.jobs[0].spec.Own().set_start_at_us(11'000'000);
  EXPECT_THAT(Check(), StartsWith("ST-1"));
}

TEST_F(DoctoredStateTest, AnArrayBeyondItsLimitIsNoticed) {
  AddRunningJob("gpu1");
  head::ArrayRecord& array = rows_.arrays.emplace_back();
  array.id = JobId::New(random_);
  for (uint32_t index = 0; index < 2; ++index) {
    rows_.jobs[index].id = array.id.Element(index);
    rows_.jobs[index].row.set_job_id(head::IdBytes(rows_.jobs[index].id));
    rows_.attempts[index].job = rows_.jobs[index].id;
  }
  const auto limit = [this](const std::string& spec) {
    for (head::JobRecord& element : rows_.jobs) {
      element.spec.Own().set_array(spec);
    }
    rows_.arrays[0].spec = rows_.jobs[0].spec;
  };
  limit("0-1%2");
  EXPECT_EQ(Check(), "");
  limit("0-1%1");
  EXPECT_THAT(Check(), StartsWith("EL-2"));
}

// ---- what is wrong from one look at a head to the next ----

class WatchTest : public DoctoredStateTest {
 protected:
  head::ClusterState State() {
    return head::ClusterState({}, time_, random_, *this, *this, rows_);
  }
  // The same cluster, with its node registered.
  void Register(head::ClusterState& state,
                head::Registration registration = {}) {
    head::Transition transition;
    registration.id = rows_.nodes[0].id;
    registration.node.set_name("node-0");
    registration.node.set_host("host-0");
    *registration.node.mutable_resources() = rows_.nodes[0].node.resources();
    for (const char* gpu : {"gpu0", "gpu1"}) {
      head::AddDevice(registration.node,
                      {.id = gpu, .kind = "gpu", .model = ""});
    }
    ASSERT_TRUE(state.RegisterNode(registration, transition).ok());
  }
  void MakePending() {
    rows_.jobs[0].row.set_state(v1::JOB_STATE_PENDING);
    rows_.attempts.clear();
  }
  std::string Watch(const head::ClusterState& state) {
    return watch_.Check(state);
  }

  NodeWatch watch_;
};

TEST_F(WatchTest, ADecisionOfManyRowsIsNoticed) {
  head::SetResources(rows_.nodes[0].node, *ParseResources("CPU=100,GPU=2"));
  rows_.cluster->set_next_job_sequence(2);
  head::ClusterLimits limits;
  limits.turn_rows_max = 1;
  head::ClusterState state(limits, time_, random_, *this, *this, rows_);
  Register(state);
  EXPECT_EQ(CheckState(state), "");
  head::JobSpec spec = *rows_.jobs[0].spec;
  spec.set_array("0-59");
  spec.mutable_scaling()->set_num_workers(1);
  head::SetResource(spec, kGpu, Amount());
  head::Transition transition;
  // Each of them starts at once.
  EXPECT_TRUE(state
                  .SubmitJob({.principal = "user/sim",
                              .request_id = "r1",
                              .body_hash = "body"},
                             "default", spec, transition)
                  .ok());
  EXPECT_THAT(CheckState(state), StartsWith("BD-1"));
}

TEST_F(WatchTest, APlacementOnAClosedNodeIsNoticed) {
  EXPECT_EQ(Watch(State()), "");
  EXPECT_EQ(Watch(State()), "");
  AddRunningJob("gpu1");
  EXPECT_THAT(Watch(State()), StartsWith("DR-1"));
}

TEST_F(WatchTest, AFencedDeviceThatIsGivenOutIsNoticed) {
  head::AddDevice(rows_.nodes[0].node, {.id = "gpu1", .kind = "gpu"});
  rows_.nodes[0].node.mutable_devices(0)->set_state(v1::DEVICE_STATE_FENCED);
  DeviceWatch devices;
  EXPECT_EQ(devices.Check(State()), "");
  EXPECT_EQ(devices.Check(State()), "");
  AddRunningJob("gpu1");
  EXPECT_THAT(devices.Check(State()), StartsWith("DV-5: device gpu1"));
}

// Seed 2882: one of two machines with one identity still ran what the other had
// reported lost, and a new head saw the device fenced before it heard of that.
TEST_F(WatchTest, WhatAnOrphanHasOfAFencedDeviceWasNotGivenOut) {
  head::AddDevice(rows_.nodes[0].node, {.id = "gpu1", .kind = "gpu"});
  rows_.nodes[0].node.mutable_devices(0)->set_state(v1::DEVICE_STATE_FENCED);
  DeviceWatch devices;
  EXPECT_EQ(devices.Check(State()), "");
  head::Registration registration;
  v1::DeviceStatus& fenced = registration.devices.emplace_back();
  fenced.set_id("gpu1");
  fenced.set_state(v1::DEVICE_STATE_FENCED);
  v1::ObservedPlace& orphan = *registration.observed.add_places();
  const AttemptId attempt = AttemptId::New(random_);
  orphan.set_attempt_id(head::IdBytes(attempt));
  orphan.set_job_id(JobId::New(random_).bytes());
  *orphan.mutable_resources_per_process() =
      rpc::ToWire(*ParseResources("CPU=1,GPU=1"));
  v1::ObservedProcess& process = *orphan.add_processes();
  process.set_incarnation(1);
  process.set_state(v1::PROCESS_STATE_RUNNING);
  process.add_gpu_ids("gpu1");
  head::ClusterState state = State();
  Register(state, registration);
  const NodeId& node = rows_.nodes[0].id;
  ASSERT_TRUE(state.nodes().HoldersOf(node, "gpu1").contains(attempt));
  EXPECT_EQ(devices.Check(state), "");
}

TEST_F(WatchTest, ANodeThatIsOfferedTooEarlyIsNoticed) {
  head::ClusterState early = State();
  rows_.cluster->set_next_incarnation(7);
  EXPECT_EQ(Watch(State()), "");
  Register(early);  // as the first of its head's, and no such head began
  EXPECT_THAT(Watch(early), StartsWith("PL-3"));
}

TEST_F(WatchTest, WorkThatOutstaysADeadlineIsNoticed) {
  const absl::Time now = time_.Wall();
  head::Drain& drain = *rows_.nodes[0].node.mutable_drain();
  *drain.mutable_asked_at() = rpc::ToWire(now);
  *drain.mutable_deadline() = rpc::ToWire(now + absl::Seconds(5));
  const head::ClusterState state = State();
  DrainWatch drains;
  const absl::Duration at = time_.Monotonic();
  EXPECT_EQ(drains.Check(state, at, at), "");
  EXPECT_EQ(drains.Check(state, at + absl::Seconds(5), at), "");
  EXPECT_THAT(drains.Check(state, at + absl::Seconds(7), at),
              StartsWith("DR-2"));
  // A head that stood still is given a moment.
  EXPECT_EQ(drains.Check(state, at + absl::Seconds(7), at + absl::Seconds(7)),
            "");
}

TEST_F(WatchTest, AJobThatNothingKeepsOutOfLineIsNoticed) {
  MakePending();
  const auto stands = [](bool yes) {
    return [yes](const head::JobRecord&) { return yes; };
  };
  EXPECT_EQ(CheckLine(State(), stands(true)), "");
  EXPECT_THAT(CheckLine(State(), stands(false)), StartsWith("EL-1"));
  rows_.jobs[0].row.set_held(true);
  EXPECT_EQ(CheckLine(State(), stands(false)), "");
  EXPECT_THAT(CheckLine(State(), stands(true)), StartsWith("EL-1"));
}

TEST_F(WatchTest, AJobThatSleepsThoughThereIsRoomIsNoticed) {
  head::Rows idle = rows_;
  idle.jobs.clear();
  idle.attempts.clear();
  MakePending();
  const head::ClusterState waiting = State();
  EXPECT_EQ(CheckWoken(waiting, waiting.nodes().index()), "");
  rows_ = idle;
  head::ClusterState free = State();
  Register(free);
  EXPECT_THAT(CheckWoken(waiting, free.nodes().index()), StartsWith("PL-5"));
}

class BudgetTest : public ::testing::Test {
 protected:
  BudgetTest() {
    job_.row.set_state(v1::JOB_STATE_SUCCEEDED);
    job_.row.set_attempts(3);
    job_.row.set_failures(1);
    job_.row.set_infra_restarts(1);
    head::CountFailure(v1::FAILURE_CLASS_USER, job_);
    head::CountFailure(v1::FAILURE_CLASS_INFRA, job_);
    job_.spec.Own().mutable_run()->set_max_failures(1);
  }

  head::JobRecord job_;
};

TEST_F(BudgetTest, AnAttemptThatNobodyCountedIsNoticed) {
  EXPECT_EQ(CheckBudget(job_, /*is_whole=*/true), "");
  job_.row.set_attempts(4);
  EXPECT_THAT(CheckBudget(job_, /*is_whole=*/true), StartsWith("JB-2"));
  job_.row.set_attempts(2);
  EXPECT_THAT(CheckBudget(job_, /*is_whole=*/true), StartsWith("JB-2"));
  job_.row.set_state(v1::JOB_STATE_FAILED);
  EXPECT_THAT(CheckBudget(job_, /*is_whole=*/true), StartsWith("JB-2"))
      << "it had budget";
}

TEST_F(BudgetTest, AFailureInTwoClassesIsNoticed) {
  head::CountFailure(v1::FAILURE_CLASS_OOM, job_);
  EXPECT_THAT(CheckBudget(job_, /*is_whole=*/true), StartsWith("BG-1"));
}

TEST_F(BudgetTest, ATimeLimitThatDidNotEndItsJobIsNoticed) {
  head::CountFailure(v1::FAILURE_CLASS_TIMEOUT, job_);
  job_.row.set_attempts(4);
  EXPECT_THAT(CheckBudget(job_, /*is_whole=*/true), StartsWith("TL-1"));
}

// ---- what is wrong with what the disk went through ----

class HistoryTest : public ::testing::Test {
 protected:
  template <typename Record>
  std::string Write(const Record& record) {
    return history_.OnDurable({head::ToWrite(record)});
  }

  SeededRandom random_{1};
  DurableHistory history_;
};

TEST_F(HistoryTest, AJobThatEndedTwiceIsNoticed) {
  head::JobRecord job(JobId::New(random_));
  job.row.set_state(v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Write(job), "");
  EXPECT_EQ(Write(job), "");
  job.row.set_state(v1::JOB_STATE_FAILED);
  EXPECT_THAT(Write(job), StartsWith("JB-1"));
}

TEST_F(HistoryTest, AJobThatGoesBeforeItsEndIsNoticed) {
  head::JobRecord job(JobId::New(random_));
  EXPECT_EQ(Write(job), "");
  EXPECT_THAT(history_.OnDurable(
                  {{head::Table::kJobs, head::RowKey(job.id), std::nullopt}}),
              StartsWith("JB-1"));
}

TEST_F(HistoryTest, AnAttemptThatComesBackIsNoticed) {
  head::AttemptRecord attempt;
  attempt.id = AttemptId::New(random_);
  attempt.state = v1::ATTEMPT_STATE_ENDED;
  EXPECT_EQ(Write(attempt), "");
  attempt.state = v1::ATTEMPT_STATE_RUNNING;
  EXPECT_THAT(Write(attempt), StartsWith("AT-1"));
}

TEST_F(HistoryTest, ATermThatGoesBackIsNoticed) {
  head::ClusterRecord cluster = head::NewCluster();
  cluster.set_term(7);
  EXPECT_EQ(Write(cluster), "");
  cluster.set_term(6);
  EXPECT_THAT(Write(cluster), StartsWith("TM-1"));
}

}  // namespace
}  // namespace cohort::sim
