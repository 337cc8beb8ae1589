#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "head/state/cluster_state.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "head/testing/observed_places.h"
#include "rpc/enum_text.h"

namespace cohort::head {

// A state over a memory store.  Each change is committed at once, and after it
// a state built from the rows alone must say the same (CM-3).
class ClusterStateTest : public ::testing::Test,
                         public NodeLinks,
                         public JobWatchers {
 protected:
  ClusterStateTest() { Reload(); }

  // As a restart of the head.
  void Reload() {
    store_ = std::make_unique<MemoryStore>(disk_);
    absl::StatusOr<Rows> rows = LoadRows(*store_);
    COHORT_ASSERT_OK(rows);
    const uint64_t term = rows->cluster ? rows->cluster->term() : 0;
    state_ = std::make_unique<ClusterState>(limits_, time_, random_, *this,
                                            *this, *std::move(rows));
    Transition transition;
    state_->TakeTerm(transition);
    const Batch batch = transition.TakeBatch();
    rows_ = batch.size();
    COHORT_ASSERT_OK(store_->Append(term, batch));
  }

  void Submit(Transition transition) {
    const Batch batch = transition.TakeBatch();
    rows_ = batch.size();
    if (!batch.empty()) {
      COHORT_ASSERT_OK(store_->Append(state_->cluster().term(), batch));
    }
    for (Effect& effect : transition.TakeEffects()) {
      std::move(effect)(absl::OkStatus());
    }
    ExpectRowsMatch();
  }

  void ExpectRowsMatch() {
    MemoryStore reader(disk_);
    absl::StatusOr<Rows> rows = LoadRows(reader);
    COHORT_ASSERT_OK(rows);
    EXPECT_EQ(*rows->cluster, state_->cluster());
    EXPECT_EQ(rows->jobs.size(), state_->jobs().size());
    for (JobRecord& job : rows->jobs) {
      const JobRecord* current = state_->jobs().Find(job.id);
      ASSERT_NE(current, nullptr);
      KeepSoft(*current, job);
      EXPECT_EQ(job, *current) << EnumText(job.row.state());
    }
    EXPECT_EQ(rows->attempts.size(), state_->attempts().all().size());
    for (AttemptRecord& attempt : rows->attempts) {
      const AttemptRecord* current = state_->attempts().Find(attempt.id);
      ASSERT_NE(current, nullptr);
      KeepSoft(*current, attempt);
      EXPECT_EQ(attempt, *current);
    }
    EXPECT_EQ(rows->nodes.size(), state_->nodes().records().size());
    for (const NodeRecord& node : rows->nodes) {
      ASSERT_NE(state_->nodes().Find(node.id), nullptr);
      EXPECT_EQ(node, *state_->nodes().Find(node.id));
    }
    EXPECT_EQ(rows->requests.size(), state_->requests().size());
    EXPECT_EQ(rows->packages.size(), state_->packages().Hashes().size());
  }

  // What happened to node a_, of this kind.
  std::vector<EventRecord> NodeEvents(const std::string& kind) {
    MemoryStore reader(disk_);
    auto events = LoadRecords<EventRecord>(reader);
    EXPECT_THAT(events, IsOk());
    std::erase_if(*events, [&](const EventRecord& event) {
      return event.kind() != kind || IdOf<NodeId>(event.node_id()) != a_;
    });
    return *std::move(events);
  }

  // NodeLinks, JobWatchers.
  void SendDesired(const NodeId& node, uint64_t incarnation,
                   const std::vector<v1::DesiredPlace>& places) override {
    if (incarnations_[node] != incarnation) return;
    for (const v1::DesiredPlace& place : places) sent_[node].push_back(place);
  }
  void SendExchanges(const NodeId& node, uint64_t incarnation,
                     const std::vector<SharedExchange>& exchanges) override {
    if (incarnations_[node] != incarnation) return;
    for (const SharedExchange& each : exchanges) {
      exchanged_[node].push_back(*each);
    }
  }
  void SendAcknowledge(const NodeId&, uint64_t,
                       const std::vector<Acknowledged>& checkpoints) override {
    for (const auto& each : checkpoints) {
      acknowledged_.insert(acknowledged_.end(), each.paths.begin(),
                           each.paths.end());
      if (!each.words.empty()) words_.push_back(each.attempt);
    }
  }
  void Disconnect(const NodeId& node, uint64_t, const absl::Status&) override {
    disconnected_.push_back(node);
  }
  void JobChanged(const JobId& job) override { changed_.push_back(job); }

  // ---- clients ----

  static JobSpec Spec(int workers, int cpus) {
    JobSpec spec = OneWorker();
    SetCommand(spec, {"train"});
    spec.mutable_scaling()->set_num_workers(workers);
    SetResource(spec, kCpu, Amount::FromUnits(cpus));
    return spec;
  }

  absl::StatusOr<JobId> TrySubmitJob(JobSpec spec, const std::string& request,
                                     const std::string& body = "body") {
    Transition transition;
    absl::StatusOr<JobId> job = state_->SubmitJob(
        {.principal = "cluster", .request_id = request, .body_hash = body},
        "default", std::move(spec), transition);
    Submit(std::move(transition));
    return job;
  }
  JobId SubmitJob(JobSpec spec) {
    const auto job =
        TrySubmitJob(std::move(spec), absl::StrCat("request-", ++requests_));
    EXPECT_THAT(job, IsOk());
    return job.value_or(JobId());
  }
  absl::Status StopJob(const JobId& job) {
    Transition transition;
    const absl::Status status =
        state_->StopJob({.principal = "cluster",
                         .request_id = absl::StrCat("request-", ++requests_),
                         .body_hash = "stop"},
                        job, transition);
    Submit(std::move(transition));
    return status;
  }
  const JobRecord& Job(const JobId& job) { return *state_->jobs().Find(job); }
  JobState StateOf(const JobId& job) { return Job(job).row.state(); }
  const AttemptRecord& Attempt(const JobId& job) {
    return *state_->attempts().LastOf(job);
  }

  // ---- nodes ----

  Registration Node(const NodeId& node, int cpus) {
    Registration registration;
    registration.id = node;
    registration.node.set_name(
        absl::StrCat("node-", node.ToHex().substr(0, 4)));
    registration.node.set_host("10.0.0.1");
    SetResource(registration.node, kCpu, Amount::FromUnits(cpus));
    registration.observed.set_full(true);
    return registration;
  }
  RegisteredNode Join(const Registration& registration) {
    Transition transition;
    const auto registered = state_->RegisterNode(registration, transition);
    EXPECT_THAT(registered, IsOk());
    incarnations_[registration.id] = registered->incarnation;
    Submit(std::move(transition));
    return *registered;
  }
  RegisteredNode Join(const NodeId& node, int cpus) {
    return Join(Node(node, cpus));
  }

  v1::ObservedPlace At(const JobId& job, Stage stage) {
    return PlaceAt(Attempt(job), stage);
  }
  // All ranks of the attempt on `node` exited with `code`.
  v1::ObservedPlace Exited(const JobId& job, const NodeId& node, int code,
                           bool by_order = false) {
    return OnlyOn(node, &Attempt(job), ExitedAt(Attempt(job), code, by_order));
  }
  void Say(const NodeId& node, const v1::ObservedPlace& observed) {
    Transition transition;
    v1::Observed message;
    const AttemptId attempt = AttemptOf(observed);
    *message.add_places() =
        OnlyOn(node, state_->attempts().Find(attempt), observed);
    COHORT_EXPECT_OK(
        state_->Observe(node, incarnations_[node], message, transition));
    Submit(std::move(transition));
  }
  void Run(const JobId& job) {
    const std::vector<Place> places = Attempt(job).places;
    for (const Place& place : places)
      Say(place.node, At(job, Stage::kPrepared));
    for (const Place& place : places) Say(place.node, At(job, Stage::kRunning));
    ASSERT_EQ(StateOf(job), v1::JOB_STATE_RUNNING);
  }
  // The goals sent to `node` since the last call, for one attempt after the
  // other.
  std::vector<Goal> TakeGoals(const NodeId& node) {
    std::vector<Goal> goals;
    for (const v1::DesiredPlace& sent : std::exchange(sent_[node], {})) {
      goals.push_back(GoalFor(sent));
    }
    return goals;
  }
  static std::vector<Goal> GoalsOf(const RegisteredNode& registered) {
    std::vector<Goal> goals;
    for (const v1::DesiredPlace& desired : registered.desired) {
      goals.push_back(GoalFor(desired));
    }
    return goals;
  }

  // ---- time ----

  // Ticks through `span`; nodes in `alive` renew.
  void Pass(absl::Duration span, const std::vector<NodeId>& alive = {}) {
    for (absl::Duration t; t < span; t += limits_.tick_period) {
      time_.AdvanceBy(limits_.tick_period);
      for (const NodeId& node : alive) {
        Transition renewal;
        state_->RenewLease(node, incarnations_[node], renewal);
        Submit(std::move(renewal));
      }
      Transition transition;
      state_->Tick(transition);
      Submit(std::move(transition));
    }
  }

  ClusterLimits limits_;
  ManualExecutor time_;
  SeededRandom random_{7};
  MemoryDisk disk_;
  std::unique_ptr<MemoryStore> store_;
  std::unique_ptr<ClusterState> state_;
  int requests_ = 0;
  size_t rows_ = 0;  // of the last change

  const NodeId a_ = NodeId::New(random_);
  const NodeId b_ = NodeId::New(random_);
  std::map<NodeId, uint64_t> incarnations_;
  std::map<NodeId, std::vector<v1::DesiredPlace>> sent_;
  std::map<NodeId, std::vector<v1::Exchange>> exchanged_;
  std::vector<std::string> acknowledged_;
  std::vector<AttemptId> words_;  // that are recorded
  std::vector<NodeId> disconnected_;
  std::vector<JobId> changed_;
};

}  // namespace cohort::head
