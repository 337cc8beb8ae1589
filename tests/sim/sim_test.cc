// Every seed is a cluster with its own faults; see sim_cluster.h for what is
// checked after each step.  A seed that failed once becomes a named test here.
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

#include "tests/sim/sim_cluster.h"

namespace cohort::sim {
namespace {

// Enough that every fault, edge and refusal comes up several times.
constexpr int kSeedsForCoverage = 100;

// More by COHORT_SIM_SEEDS (tools/check.sh --all); fewer under sanitizers,
// which look for other things and are ten times slower.
int Seeds() {
  const char* text = std::getenv("COHORT_SIM_SEEDS");
  return text == nullptr ? kSeedsForCoverage : std::atoi(text);
}

// What must have happened at least once over the seeds: a fault, an edge or a
// refusal that never fires is one that is not tested.
constexpr const char* kMustHappen[] = {
    // Faults.
    "head_killed", "head_killed_before_sending", "head_paused", "worker_killed",
    "keeper_killed", "rank_killed", "machine_rebooted", "partitioned",
    "connections_broken", "append_fails_landed", "append_fails_not_landed",
    "append_failed", "disk_full", "prepare_failed", "net_refused",
    "net_request_lost", "net_reply_lost", "net_stream_broken", "net_held",
    "net_partition_timeout",
    // Recoveries.
    "adopted", "adopted_nothing", "submit_repeated", "submit_answered_again",
    "exchange_answered", "exchange_repeated", "checkpoint_accepted",
    "checkpoint_unanswered", "checkpoint_removed", "revoked",
    "killed_after_grace", "infra_restart", "charged_failure",
    // Refusals.
    "refused_invalid", "refused_used_id",
    // Every edge of a job's life.
    "edge_PENDING_STARTING", "edge_PENDING_STOPPED", "edge_STARTING_RUNNING",
    "edge_STARTING_PENDING", "edge_STARTING_FAILED", "edge_STARTING_STOPPING",
    "edge_RUNNING_SUCCEEDED", "edge_RUNNING_PENDING", "edge_RUNNING_FAILED",
    "edge_RUNNING_STOPPING", "edge_STOPPING_STOPPED"};

TEST(SimTest, InvariantsHoldOverAllSeedsAndEverythingHappens) {
  Counters counters;
  for (int seed = 1; seed <= Seeds(); ++seed) {
    SCOPED_TRACE("replay: sim_main --seed " + std::to_string(seed));
    SimOptions options;
    options.seed = static_cast<uint64_t>(seed);
    const SimResult result = SimCluster(options).Run();
    EXPECT_EQ(result.violation, "");
    counters.Add(result.counters);
  }
  if (Seeds() < kSeedsForCoverage) return;
  for (const char* name : kMustHappen) {
    EXPECT_GT(counters.Of(name), 0) << name << " never happened";
  }
}

TEST(SimTest, OneSeedGivesOneSchedule) {
  SimOptions options;
  options.seed = 7;
  const SimResult first = SimCluster(options).Run();
  const SimResult second = SimCluster(options).Run();
  EXPECT_EQ(first.trace, second.trace);
  EXPECT_EQ(first.virtual_time, second.virtual_time);
  EXPECT_EQ(first.counters.all(), second.counters.all());
  options.seed = 8;
  EXPECT_NE(SimCluster(options).Run().trace, first.trace);
}

}  // namespace
}  // namespace cohort::sim
