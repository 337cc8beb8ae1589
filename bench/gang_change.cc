// What one change of membership costs the head: a rank dies under restart
// policy `one`, of a gang on two nodes, whose slot is filled again, and under
// `all`, of a gang that has 50 ranks a node, or lies on two, and ends.  Rows
// are to be the same for every size, messages one a node.

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "common/check.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "head/state/cluster_state.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "head/testing/no_links.h"
#include "head/testing/observed_places.h"

namespace cohort {
namespace {

using head::Batch;
using head::ClusterState;
using head::Stage;
using head::Transition;

// A head's state whose rows and pushes are counted; nothing is stored.
class CountedState final : private head::NoLinks {
 public:
  CountedState() : state_(Limits(), clock_, random_, *this, *this, {}) {
    Transition transition;
    state_.TakeTerm(transition);
    Submit(std::move(transition));
  }

  NodeId Join(int cpus) {
    head::Registration registration;
    registration.id = NodeId::New(random_);
    registration.node.set_name(absl::StrCat("node-", incarnations_.size()));
    registration.node.set_host("10.0.0.1");
    head::SetResource(registration.node, kCpu, Amount::FromUnits(cpus));
    registration.observed.set_full(true);
    Transition transition;
    const auto registered = state_.RegisterNode(registration, transition);
    COHORT_CHECK(registered.ok()) << registered.status().ToString();
    incarnations_[registration.id] = registered->incarnation;
    Submit(std::move(transition));
    return registration.id;
  }

  // A gang that runs, half of it on each node.
  JobId Run(int workers, head::RestartPolicy policy) {
    head::JobSpec spec = head::OneWorker();
    head::SetCommand(spec, {"./train", "--epochs", "10"});
    head::SetResource(spec, kCpu, Amount::FromUnits(1));
    spec.mutable_scaling()->set_num_workers(workers);
    spec.mutable_scaling()->set_placement_strategy(
        v1::PLACEMENT_STRATEGY_SPREAD);
    spec.mutable_run()->set_restart(policy);
    spec.mutable_run()->clear_max_failures();
    spec.mutable_run()->set_retry_delay_us(0);
    Transition transition;
    const auto job =
        state_.SubmitJob({.principal = "bench",
                          .request_id = absl::StrCat("request-", ++requests_),
                          .body_hash = std::string(32, 'h')},
                         "default", std::move(spec), transition);
    COHORT_CHECK(job.ok()) << job.status().ToString();
    Submit(std::move(transition));
    for (const Stage stage : {Stage::kPrepared, Stage::kRunning}) {
      for (const NodeId& node : NodesOf(*job)) {
        Say(node, PlaceAt(Attempt(*job), stage));
      }
    }
    COHORT_CHECK(state_.jobs().Find(*job)->row.state() ==
                 v1::JOB_STATE_RUNNING);
    return *job;
  }

  // One rank dies: what its node says of it.
  void Kill(const JobId& job, int rank) {
    v1::ObservedPlace place = PlaceAt(Attempt(job), Stage::kRunning);
    v1::ObservedProcess& process = *place.mutable_processes(rank);
    process.set_state(v1::PROCESS_STATE_ENDED);
    process.set_end_cause(v1::END_CAUSE_EXITED);
    process.mutable_exit()->set_signal(9);
    process.set_exit_order(1);
    const NodeId node = Attempt(job).processes[static_cast<size_t>(rank)].node;
    Say(node, place);
  }

  // Since the last call.
  struct Counts {
    size_t rows = 0;
    size_t bytes = 0;
    size_t pushes = 0;
  };
  Counts Take() { return std::exchange(counts_, {}); }

 private:
  static head::ClusterLimits Limits() {
    head::ClusterLimits limits;
    limits.node_timeout = absl::Hours(1);  // nobody renews
    return limits;
  }

  const head::AttemptRecord& Attempt(const JobId& job) const {
    return *state_.attempts().LastOf(job);
  }
  std::vector<NodeId> NodesOf(const JobId& job) const {
    std::vector<NodeId> nodes;
    for (const head::Place& place : Attempt(job).places) {
      nodes.push_back(place.node);
    }
    return nodes;
  }

  void Say(const NodeId& node, const v1::ObservedPlace& place) {
    v1::Observed observed;
    *observed.add_places() =
        OnlyOn(node, state_.attempts().Find(head::AttemptOf(place)), place);
    Transition transition;
    const absl::Status said =
        state_.Observe(node, incarnations_.at(node), observed, transition);
    COHORT_CHECK(said.ok()) << said.ToString();
    Submit(std::move(transition));
  }

  void Submit(Transition transition) {
    const Batch batch = transition.TakeBatch();
    counts_.rows += batch.size();
    counts_.bytes += head::BytesOf(batch);
    for (head::Effect& effect : transition.TakeEffects()) {
      std::move(effect)(absl::OkStatus());
    }
  }

  void SendDesired(const NodeId&, uint64_t,
                   const std::vector<v1::DesiredPlace>& places) override {
    counts_.pushes += places.size();
  }

  MachineClock clock_;
  SeededRandom random_{1};
  Counts counts_;
  int requests_ = 0;
  std::map<NodeId, uint64_t> incarnations_;
  ClusterState state_;
};

void BenchDeath(bench::Report& report, const bench::Flags& flags, int workers,
                head::RestartPolicy policy, const std::string& name) {
  const auto figure = [&](const std::string& what, const std::string& unit) {
    return bench::Figure{.name = absl::StrCat(name, "/", workers, "/", what),
                         .unit = unit};
  };
  bench::Figure rows = figure("rows", "rows");
  bench::Figure bytes = figure("bytes", "bytes");
  bench::Figure pushes = figure("pushes", "messages");
  bench::Figure time = figure("cpu", "us");
  const int runs = flags.quick ? 5 : 25;
  for (int run = 0; run < runs; ++run) {
    CountedState state;
    // Of a gang that starts again a node holds as many as its arena.
    const int nodes =
        policy == v1::RESTART_POLICY_ONE ? 2 : std::max(2, workers / 50);
    for (int node = 0; node < nodes; ++node) state.Join(workers / nodes);
    const JobId job = state.Run(workers, policy);
    state.Take();
    const absl::Time start = absl::Now();
    state.Kill(job, workers - 1);
    time.samples.values.push_back(
        absl::ToDoubleMicroseconds(absl::Now() - start));
    const CountedState::Counts counts = state.Take();
    rows.samples.values.push_back(static_cast<double>(counts.rows));
    bytes.samples.values.push_back(static_cast<double>(counts.bytes));
    pushes.samples.values.push_back(static_cast<double>(counts.pushes));
  }
  for (const bench::Figure* each : {&rows, &bytes, &pushes, &time}) {
    report.Add(*each);
  }
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  const cohort::bench::Flags flags = cohort::bench::ParseFlags(argc, argv);
  cohort::bench::Report report("gang_change", flags);
  for (const int workers : {2, 100, 1'000}) {
    cohort::BenchDeath(report, flags, workers, cohort::v1::RESTART_POLICY_ONE,
                       "one");
    cohort::BenchDeath(report, flags, workers, cohort::v1::RESTART_POLICY_ALL,
                       "all");
  }
  return 0;
}
