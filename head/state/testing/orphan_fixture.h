#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "head/archive/restore.h"
#include "head/state/cluster_state.h"
#include "head/state/orphans.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "head/testing/observed_places.h"

namespace cohort::head {

template <typename Id>
Id IdOf(char fill) {
  return *Id::FromBytes(std::string(Id::kBytes, fill));
}

inline const NodeId kNode = IdOf<NodeId>('n');
inline const NodeId kOtherNode = IdOf<NodeId>('o');

// A head's state before and after a restore.  Each change is committed at once.
class OrphansTest : public ::testing::Test,
                    public NodeLinks,
                    public JobWatchers {
 protected:
  OrphansTest() { Load(); }

  // NodeLinks, JobWatchers.
  void SendDesired(const NodeId& node, uint64_t,
                   const std::vector<v1::DesiredPlace>& places) override {
    for (const v1::DesiredPlace& place : places) sent_[node].push_back(place);
  }
  void SendExchanges(const NodeId&, uint64_t,
                     const std::vector<SharedExchange>&) override {}
  void SendAcknowledge(const NodeId&, uint64_t,
                       const std::vector<Acknowledged>& recorded) override {
    for (const Acknowledged& each : recorded) {
      if (!each.words.empty()) words_.push_back(each.attempt);
    }
  }
  void Disconnect(const NodeId&, uint64_t, const absl::Status&) override {}
  void JobChanged(const JobId&) override {}

  // A start of the head on what the disk has.
  void Load() {
    MemoryStore store(*disk_);
    absl::StatusOr<Rows> rows = LoadRows(store);
    COHORT_ASSERT_OK(rows);
    const uint64_t term = rows->cluster ? rows->cluster->term() : 0;
    state_ = std::make_unique<ClusterState>(limits_, time_, random_, *this,
                                            *this, *std::move(rows));
    Transition transition;
    state_->TakeTerm(transition);
    COHORT_ASSERT_OK(store.Append(term, transition.TakeBatch()));
  }

  void Submit(Transition transition) {
    MemoryStore store(*disk_);
    COHORT_ASSERT_OK(
        store.Append(state_->cluster().term(), transition.TakeBatch()));
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
    const uint64_t term = rows.cluster->term();
    COHORT_ASSERT_OK(store.Append(
        term, ChangeGeneration(rows, "user/ada", time_.Wall(), random_)));
    old_generation_ = state_->cluster().generation();
    sent_.clear();
    Load();
  }
  // A tick; all but silent_ are heard before it.
  void Tick() {
    Transition transition;
    for (const auto& [id, node] : state_->nodes().records()) {
      if (silent_.count(id) == 0) {
        state_->RenewLease(id, node.node.incarnation(), transition);
      }
    }
    time_.AdvanceBy(limits_.tick_period);
    state_->Tick(transition);
    Submit(std::move(transition));
  }
  void Settle() {
    for (int i = 0; i < 60; ++i) Tick();
    ASSERT_FALSE(state_->cluster().settling());
  }

  JobId NewJob(int cpus = 1, v1::RestartPolicy restart = v1::RESTART_POLICY_ALL,
               const DriverId& driver = DriverId()) {
    JobSpec spec = OneWorker();
    if (!driver.IsNil()) {
      spec.mutable_actor()->set_driver_id(IdBytes(driver));
      spec.mutable_launch()->mutable_actor()->set_secret(std::string(32, 's'));
    }
    spec.mutable_run()->set_restart(restart);
    if (restart == v1::RESTART_POLICY_ONE) {
      spec.mutable_run()->set_max_failures(-1);
    }
    SetCommand(spec, {"train"});
    SetResource(spec, kCpu, Amount::FromUnits(cpus));
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

  // A full set.
  static v1::Observed ObservedOf(const std::vector<v1::ObservedPlace>& places) {
    v1::Observed observed;
    observed.set_full(true);
    observed.mutable_places()->Assign(places.begin(), places.end());
    return observed;
  }
  RegisteredNode Join(const NodeId& node,
                      const std::vector<v1::ObservedPlace>& places = {},
                      int cpus = 2) {
    Registration registration;
    registration.id = node;
    registration.node.set_name(node == kNode ? "node-n" : "node-o");
    registration.node.set_host("10.0.0.1");
    SetResource(registration.node, kCpu, Amount::FromUnits(cpus));
    registration.observed = ObservedOf(places);
    Transition transition;
    auto registered = state_->RegisterNode(registration, transition);
    EXPECT_THAT(registered, IsOk());
    Submit(std::move(transition));
    return *std::move(registered);
  }
  void Say(const NodeId& node, const v1::ObservedPlace& observed) {
    Transition transition;
    v1::Observed message;
    *message.add_places() = observed;
    COHORT_EXPECT_OK(
        state_->Observe(node, state_->nodes().Find(node)->node.incarnation(),
                        message, transition));
    Submit(std::move(transition));
  }

  const JobRecord& Job(const JobId& job) { return *state_->jobs().Find(job); }
  const AttemptRecord& Last(const JobId& job) {
    return *state_->attempts().LastOf(job);
  }
  // What a worker says of the job's attempt, with what it holds.
  v1::ObservedPlace At(const JobId& job, Stage stage) {
    v1::ObservedPlace observed = PlaceAt(Last(job), stage);
    observed.set_generation(state_->cluster().generation());
    *observed.mutable_resources_per_process() =
        rpc::ToWire(ResourcesPerWorker(*Job(job).spec));
    return observed;
  }
  static v1::ObservedPlace Ended(v1::ObservedPlace observed, int code) {
    for (v1::ObservedProcess& each : *observed.mutable_processes()) {
      each.set_state(v1::PROCESS_STATE_ENDED);
      each.set_end_cause(v1::END_CAUSE_EXITED);
      each.mutable_exit()->set_code(code);
      each.set_exit_order(1);
    }
    return observed;
  }
  // Its only rank runs on `node`.
  v1::ObservedPlace Run(const JobId& job, const NodeId& node) {
    Say(node, At(job, Stage::kPrepared));
    Say(node, At(job, Stage::kRunning));
    EXPECT_EQ(Job(job).row.state(), v1::JOB_STATE_RUNNING);
    return At(job, Stage::kRunning);
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
  // What is wanted of a place, or of its last process that is to be had.
  static Goal GoalFor(const v1::DesiredPlace& place) {
    Goal goal = place.goal();
    for (const v1::DesiredProcess& each : place.processes()) {
      if (each.goal() != v1::GOAL_FORGET) goal = each.goal();
    }
    return goal;
  }
  std::vector<Goal> TakeGoals(const NodeId& node) {
    std::vector<Goal> goals;
    for (const v1::DesiredPlace& sent : std::exchange(sent_[node], {})) {
      goals.push_back(GoalFor(sent));
    }
    return goals;
  }
  const char* State(const AttemptId& attempt) {
    const OrphanTable::Entry* entry = state_->orphans().Find(attempt);
    return entry == nullptr ? "none" : StateOf(*entry);
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
  std::map<NodeId, std::vector<v1::DesiredPlace>> sent_;
  std::vector<AttemptId> words_;  // that are recorded
  std::set<NodeId> silent_;
  std::string old_generation_;
  int requests_ = 0;
};

}  // namespace cohort::head
