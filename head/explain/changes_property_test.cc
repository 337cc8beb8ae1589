// Every change that explain tells, made as a person would who reads it, against
// the head itself.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/seed.h"
#include "head/explain/changes.h"
#include "head/explain/explanation.h"
#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/job_specs.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

// A cluster with jobs of all kinds, the same for each seed.
class Cluster final : public ClusterStateTest {
 public:
  explicit Cluster(uint64_t seed) : choice_(seed) {
    for (int n = 0; n < 3; ++n) AddNode(static_cast<int>(2 + Below(5)));
    const int64_t jobs = 4 + Below(10);
    for (int64_t j = 0; j < jobs; ++j) {
      SubmitSome();
      if (Below(5) == 0) EndSome();
      if (Below(12) == 0) Drain(nodes_[static_cast<size_t>(Below(3))], true);
      if (Below(3) == 0) ResizeSome();
      if (Below(3) == 0) FailSome();
    }
  }
  void TestBody() override {}

  std::vector<JobId> Waiting() const {
    std::vector<JobId> waiting;
    for (const auto& [sequence, id] : state_->jobs().by_sequence()) {
      if (state_->jobs().Find(id)->row.state() == v1::JOB_STATE_PENDING ||
          !state_->SlotsInLineOf(id).empty()) {
        waiting.push_back(id);
      }
    }
    return waiting;
  }
  v1::ExplainJobResponse Why(const JobId& job) {
    return explainer_.Explain(*state_, *state_->jobs().Find(job),
                              /*read_only=*/false);
  }

  // Who starts once it is made: the job, or what it is submitted as again, or a
  // slot of it.  Nothing: it is not told in full.
  std::optional<AskId> Make(const JobId& job, const v1::Remedy& change) {
    if (std::regex_search(change.text(), std::regex("and \\d+ more"))) {
      return std::nullopt;
    }
    std::smatch of_slots;
    if (std::regex_search(change.text(), of_slots,
                          std::regex("^ranks? (\\d+).*: "))) {
      const AskId slot{job, std::stoi(of_slots[1])};
      v1::Remedy bare = change;
      bare.set_text(of_slots.suffix());
      if (!change.of_request()) {
        return Apply(job, bare).has_value() ? std::optional<AskId>(slot)
                                            : std::nullopt;
      }
      Resize(job, std::stoi(of_slots.suffix()));
      return slot;
    }
    const std::optional<JobId> starts = Apply(job, change);
    if (!starts.has_value()) return std::nullopt;
    return AskId{*starts};
  }

  bool HasStarted(const AskId& ask) const {
    if (ask.IsJob()) return state_->jobs().Find(ask.job)->row.attempts() > 0;
    return !state_->attempts()
                .LastOf(ask.job)
                ->processes[static_cast<size_t>(ask.first)]
                .waits();
  }

  std::string Describe() const {
    std::string text;
    for (const auto& [id, node] : state_->nodes().records()) {
      absl::StrAppend(&text, node.node.name(), " ",
                      state_->nodes().ResourcesOf(node.id).ToString(),
                      node.node.has_drain() ? " drained" : "", "\n");
    }
    for (const auto& [sequence, id] : state_->jobs().by_sequence()) {
      const JobRecord& job = *state_->jobs().Find(id);
      absl::StrAppend(
          &text, id.ToText(), " ", EnumText(job.row.state()), " ",
          job.spec->scaling().num_workers(), " x ",
          ResourcesPerWorker(*job.spec).ToString(), " strategy ",
          static_cast<int>(job.spec->scaling().placement_strategy()),
          " priority ", job.spec->priority(), " ", job.spec->array(),
          job.row.held() ? " held" : "",
          job.spec->after().empty()
              ? ""
              : absl::StrCat(" after ", JobOf(job.spec->after(0)).ToText()),
          " ", state_->ReasonOf(job), "\n");
    }
    return text;
  }

 private:
  std::optional<JobId> Apply(const JobId& job, const v1::Remedy& change) {
    if (change.of_request()) return SubmitAgain(job, change.text());
    // Another submission, which is kept from the line as this one is.
    if (absl::StrContains(change.text(), " instead") ||
        absl::StrContains(change.text(), "strategy")) {
      return std::nullopt;
    }
    const std::string& text = change.text();
    std::vector<std::function<void()>> steps;
    for (const JobId& ends : IdsIn(text)) {
      const JobRecord* const ending = state_->jobs().Find(ends);
      if (ending == nullptr || HasEnded(ending->row.state())) {
        return std::nullopt;
      }
      // It does not succeed before they have run.
      if (change.kind() == "DEPENDENCY_ENDS" && HasWaiting(Attempt(ends))) {
        return std::nullopt;
      }
      steps.emplace_back([this, ends] { End(ends); });
    }
    if (absl::StrContains(text, "release it")) {
      steps.emplace_back([this, job] { Release(job); });
    }
    if (absl::StrContains(text, "undrain")) {
      for (const NodeId& node : nodes_) {
        if (!absl::StrContains(text, state_->nodes().Find(node)->node.name()))
          continue;
        steps.emplace_back([this, node] { Drain(node, false); });
      }
    }
    std::smatch found;
    if (std::regex_search(text, found,
                          std::regex("(\\d+) more nodes? like ([^ ]+)"))) {
      const int count = std::stoi(found[1]);
      const std::string name = found[2];
      for (int i = 0; i < count; ++i) {
        steps.emplace_back([this, name] { AddNode(CpusOf(name)); });
      }
    } else if (std::regex_search(text, found,
                                 std::regex("(\\d+) nodes? with CPU (\\d+)"))) {
      for (int i = 0; i < std::stoi(found[1]); ++i) {
        steps.emplace_back(
            [this, cpus = std::stoi(found[2])] { AddNode(cpus); });
      }
    }
    // Those that come before it in an array that waits as a whole.
    const JobRecord& record = Job(job);
    if (record.id.IsElement() && record.id.index() > 0 &&
        !record.spec->after().empty()) {
      return std::nullopt;
    }
    if (steps.empty() || absl::StrContains(text, "elements")) {
      return std::nullopt;
    }
    for (size_t i = steps.size(); i-- > 1;) {
      std::swap(steps[i], steps[static_cast<size_t>(Below(i + 1))]);
    }
    for (const auto& step : steps) step();
    return job;
  }

  int64_t Below(uint64_t n) { return static_cast<int64_t>(choice_.Below(n)); }
  RequestKey Key() {
    return {.principal = "ada",
            .request_id = absl::StrCat("key-", ++keys_),
            .body_hash = "h"};
  }

  void AddNode(int cpus) {
    nodes_.push_back(NodeId::New(random_));
    Join(nodes_.back(), cpus);
  }
  int CpusOf(const std::string& name) const {
    for (const auto& [id, node] : state_->nodes().records()) {
      if (node.node.name() == name) {
        return static_cast<int>(
            state_->nodes().ResourcesOf(node.id).Get(kCpu).WholeUnits());
      }
    }
    return 0;
  }

  void SubmitSome() {
    JobSpec spec =
        Spec(static_cast<int>(1 + Below(3)), static_cast<int>(1 + Below(4)));
    spec.mutable_scaling()->set_placement_strategy(
        static_cast<PlacementStrategy>(1 + Below(4)));
    spec.set_priority(static_cast<int>(Below(3)) - 1);
    spec.set_hold(Below(7) == 0);
    if (Below(3) == 0) {
      spec.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
      spec.mutable_run()->set_max_failures(-1);
      spec.mutable_run()->set_retry_delay_us(0);
    }
    if (Below(9) == 0) {
      spec.set_start_in_us(absl::ToInt64Microseconds(absl::Hours(1)));
    }
    if (Below(5) == 0) {
      spec.set_array(Below(2) == 0 ? "0-5%2" : "0-3");
      spec.mutable_scaling()->set_num_workers(1);
    }
    if (Below(6) == 0 && !submitted_.empty()) {
      const JobId& first =
          submitted_[static_cast<size_t>(Below(submitted_.size()))];
      AddAfter(
          spec, first,
          Below(2) == 0 ? v1::DEPENDENCY_KIND_ANY : v1::DEPENDENCY_KIND_OK);
    }
    submitted_.push_back(SubmitJob(spec));
  }

  void EndSome() {
    std::vector<JobId> running;
    for (const auto& [sequence, id] : state_->jobs().by_sequence()) {
      if (StateOf(id) == v1::JOB_STATE_STARTING) running.push_back(id);
    }
    if (!running.empty()) {
      End(running[static_cast<size_t>(Below(running.size()))]);
    }
  }

  void End(const JobId& job) {
    if (HasEnded(StateOf(job))) return;
    if (StateOf(job) == v1::JOB_STATE_STARTING) Run(job);
    // Else the slots of it that wait would go on.
    if (HasWaiting(Attempt(job))) {
      COHORT_EXPECT_OK(StopJob(job));
    }
    const std::vector<Place> places = Attempt(job).places;
    for (const Place& place : places) {
      Say(place.node, Exited(job, place.node, 0));
    }
  }
  // Of those whose ranks live one by one, and that run.
  std::optional<JobId> AnyOneByOne() {
    std::vector<JobId> running;
    for (const auto& [sequence, id] : state_->jobs().by_sequence()) {
      const JobRecord& job = *state_->jobs().Find(id);
      if (!RunsOneByOne(job)) continue;
      if (job.row.state() == v1::JOB_STATE_STARTING) Run(id);
      if (job.row.state() == v1::JOB_STATE_RUNNING) running.push_back(id);
    }
    if (running.empty()) return std::nullopt;
    return running[static_cast<size_t>(Below(running.size()))];
  }
  void ResizeSome() {
    const std::optional<JobId> job = AnyOneByOne();
    if (job.has_value()) {
      Resize(*job,
             Job(*job).row.num_workers() + static_cast<int>(1 + Below(3)));
    }
  }
  void Resize(const JobId& job, int workers) {
    Transition transition;
    COHORT_EXPECT_OK(state_->ResizeJob(Key(), job, workers, transition));
    Submit(std::move(transition));
  }
  // All of its ranks on some node: they go elsewhere if that is drained.
  void FailSome() {
    const std::optional<JobId> job = AnyOneByOne();
    if (!job.has_value()) return;
    const std::vector<Place> places = Attempt(*job).places;
    const NodeId node = places[static_cast<size_t>(Below(places.size()))].node;
    Say(node, Exited(*job, node, 3));
  }

  void Release(const JobId& job) {
    Transition transition;
    COHORT_EXPECT_OK(state_->ReleaseJob(Key(), job, transition));
    Submit(std::move(transition));
  }
  void Drain(const NodeId& node, bool drained) {
    Transition transition;
    const RequestKey key = Key();
    COHORT_EXPECT_OK(drained
                         ? state_->DrainNode(key, node.ToHex(), {}, transition)
                         : state_->UndrainNode(key, node.ToHex(), transition));
    Submit(std::move(transition));
  }

  static std::vector<JobId> IdsIn(const std::string& text) {
    static const std::regex id("[0-9a-f]{32}(\\.\\d+)?");
    std::vector<JobId> ids;
    for (auto at = std::sregex_iterator(text.begin(), text.end(), id);
         at != std::sregex_iterator(); ++at) {
      ids.push_back(*JobId::FromText(at->str()));
    }
    return ids;
  }

  std::optional<JobId> SubmitAgain(const JobId& job, const std::string& text) {
    const JobRecord& record = Job(job);
    if (record.id.IsElement() || record.row.held() ||
        !record.spec->after().empty()) {
      return std::nullopt;
    }
    JobSpec spec = *record.spec;
    std::smatch found;
    if (std::regex_search(text, found, std::regex("(\\d+) workers? instead"))) {
      spec.mutable_scaling()->set_num_workers(std::stoi(found[1]));
    }
    if (std::regex_search(text, found,
                          std::regex("CPU ([0-9.]+) a worker instead"))) {
      double cpus = 0;
      EXPECT_TRUE(absl::SimpleAtod(found[1].str(), &cpus));
      SetResource(spec, kCpu, *Amount::FromDouble(cpus));
    }
    if (absl::StrContains(text, "without --begin")) spec.clear_start_at_us();
    if (absl::StrContains(text, "strategy PACK")) {
      spec.mutable_scaling()->set_placement_strategy(
          v1::PLACEMENT_STRATEGY_PACK);
    }
    if (absl::StrContains(text, "strategy SPREAD")) {
      spec.mutable_scaling()->set_placement_strategy(
          v1::PLACEMENT_STRATEGY_SPREAD);
    }
    return SubmitJob(spec);
  }

  SeededRandom choice_;
  Explainer explainer_{limits_.history.wait_reasons, time_, {}};
  std::vector<NodeId> nodes_;
  std::vector<JobId> submitted_;
  int keys_ = 0;
};

// EX-2, EX-4.
TEST(ChangesPropertyTest, WhatIsToldStartsTheJob) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  int made = 0;
  int of_cluster = 0;
  int of_slots = 0;
  // Until enough of each kind were made.
  for (int round = 0; made < 60 || of_cluster < 20 || of_slots < 6; ++round) {
    ASSERT_LT(round, 3'000) << made << ", " << of_cluster << ", " << of_slots;
    const uint64_t world = random.Below(UINT64_MAX);
    const std::vector<JobId> waiting = Cluster(world).Waiting();
    if (waiting.empty()) continue;
    const JobId job = waiting[random.Below(waiting.size())];
    const v1::ExplainJobResponse why = Cluster(world).Why(job);
    for (const v1::Remedy& change : why.changes()) {
      SCOPED_TRACE(absl::StrCat("round ", round, " of COHORT_SEED=", seed));
      Cluster cluster(world);
      const std::string before = cluster.Describe();
      const std::optional<AskId> starts = cluster.Make(job, change);
      if (!starts.has_value()) continue;
      ASSERT_TRUE(cluster.HasStarted(*starts))
          << "world " << world << ": " << job.ToText() << ": " << change.kind()
          << ": " << change.text() << "\n"
          << before << "then\n"
          << cluster.Describe();
      ++made;
      of_cluster += !change.of_request();
      of_slots += !starts->IsJob();
    }
  }
}

}  // namespace
}  // namespace cohort::head
