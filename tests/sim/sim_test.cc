// Every seed is a cluster with its own faults; see sim_cluster.h for what is
// checked after each step.  A seed that failed once becomes a named test here.
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

#include "tests/sim/sim_cluster.h"

namespace cohort::sim {
namespace {

// Each shard sees enough seeds that every fault, edge and refusal comes up
// several times.
constexpr int kShards = 4;
constexpr int kSeedsForCoverage = 1000;
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COHORT_SIM_IS_SLOW
#endif
#endif
#if defined(COHORT_SIM_IS_SLOW)
constexpr int kSeeds = 16;
#elif defined(NDEBUG)
constexpr int kSeeds = kSeedsForCoverage;
#else
constexpr int kSeeds = 100;
#endif

// More by COHORT_SIM_SEEDS; fewer under sanitizers, which look for other things
// and are ten times slower.
int Seeds() {
  const char* text = std::getenv("COHORT_SIM_SEEDS");
  return text == nullptr ? kSeeds : std::atoi(text);
}

// What must have happened at least once over the seeds: a fault, an edge or a
// refusal that never fires is one that is not tested.
constexpr const char* kMustHappen[] = {
    // Faults.
    "head_killed", "head_killed_before_write", "head_killed_write_torn",
    "head_killed_before_sending", "head_killed_amid_effects", "head_paused",
    "power_failed", "unsynced_batch_lost", "worker_killed", "worker_paused",
    "keeper_killed", "rank_killed", "machine_rebooted", "client_killed",
    "node_drained", "client_partitioned", "clock_stepped_forward",
    "clock_stepped_back", "partitioned", "connections_broken",
    "append_fails_landed", "append_fails_not_landed", "append_fails_unsynced",
    "append_failed", "disk_full", "prepare_failed", "node_failed",
    "node_not_ready", "device_fenced", "device_suspect", "net_refused",
    "net_request_lost", "net_reply_lost", "net_stream_broken", "net_held",
    "net_partition_timeout", "net_silenced", "request_duplicated",
    "request_abandoned", "node_copied", "state_directory_copied",
    "worker_of_another_version", "two_workers_of_one_name", "follower_killed",
    "backup_taken", "backup_restored", "copy_put_back",
    "worker_refused_unknown_life",
    // Recoveries.
    "adopted", "adopted_nothing", "submit_repeated", "submit_answered_again",
    "exchange_answered", "exchange_repeated", "checkpoint_accepted",
    "checkpoint_unanswered", "checkpoint_removed", "restored", "revoked",
    "killed_after_grace", "infra_restart", "charged_failure", "node_dead",
    "opened_to_read", "rebuilt_and_compared", "looked", "time_limit_fired",
    "job_with_wishes", "array", "submitted_held", "submitted_after",
    "submitted_to_begin_later", "held", "array_held", "array_released",
    "hold_refused", "released", "restart_one", "restart_none", "resized",
    "resize_refused", "edge_PENDING_FAILED", "acknowledged_after_backup",
    "orphan_adopted", "orphan_ended", "events_asked_again", "event_seen",
    "event_seen_by_another", "actor_told", "room_wanted",
    // Programs.
    "program_ended", "program_killed", "program_cut", "session_over",
    "actor_detached", "executor_created", "group_created",
    // Refusals.
    "refused_invalid", "refused_used_id", "actor_refused_session_over",
    "actor_refused_name_taken", "adopt_refused",
    "worker_refused_protocol_version", "worker_refused_duplicate_node",
    // Every edge of a job's life.
    "edge_PENDING_STARTING", "edge_PENDING_STOPPED", "edge_STARTING_RUNNING",
    "edge_STARTING_PENDING", "edge_STARTING_FAILED", "edge_STARTING_STOPPING",
    "edge_RUNNING_SUCCEEDED", "edge_RUNNING_PENDING", "edge_RUNNING_FAILED",
    "edge_RUNNING_STOPPING", "edge_STOPPING_STOPPED"};

class SimTest : public ::testing::TestWithParam<int> {};

TEST_P(SimTest, InvariantsHoldOverAllSeedsAndEverythingHappens) {
  Counters counters;
  for (int seed = 1 + GetParam(); seed <= Seeds(); seed += kShards) {
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

INSTANTIATE_TEST_SUITE_P(Shards, SimTest, ::testing::Range(0, kShards));

// Seeds that found something once, when there were no programs.
class SimSeedTest : public ::testing::Test {
 protected:
  static std::string ViolationOf(uint64_t seed) {
    SimOptions options;
    options.seed = seed;
    options.programs = 0;
    return SimCluster(options).Run().violation;
  }
};

// A backup knew a node as given up: LS-1.
TEST_F(SimSeedTest, ARestoredStoreMayKnowANodeAsGivenUp) {
  EXPECT_EQ(ViolationOf(880938), "");
}

// Of two daemons with one identity each begins what the other does not know:
// PL-2, twice.
TEST_F(SimSeedTest, TwoDaemonsOfOneIdentityTakeTurns) {
  EXPECT_EQ(ViolationOf(8905567), "");
}
TEST_F(SimSeedTest, TwoDaemonsOfOneIdentityTakeTurnsAfterARestore) {
  EXPECT_EQ(ViolationOf(8902911), "");
}

// A node that was dead comes back with a rank on a GPU that was fenced: DV-5 by
// the watch, which had forgotten it.
TEST_F(SimSeedTest, WhoHeldAFencedDeviceIsSeenThereAgain) {
  EXPECT_EQ(ViolationOf(13001785), "");
}

// The head stood still between the load of its state and its first tick: LS-1.
TEST_F(SimSeedTest, APauseBeforeTheFirstTickIsNoSilence) {
  EXPECT_EQ(ViolationOf(8909070), "");
}

TEST(SimScheduleTest, OneSeedGivesOneSchedule) {
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

// A small run in which nothing else goes wrong, once for each write that the
// head makes in it: so no transition is left out.
class CrashTest : public ::testing::TestWithParam<Crash> {
 protected:
  static SimOptions Calm() {
    SimOptions options;
    options.seed = 3;
    options.machines = 2;
    options.jobs = 6;
    options.faults_for = absl::Seconds(10);
    options.faulty = false;
    return options;
  }
};

TEST_P(CrashTest, AtEveryWriteLosesNothing) {
  SimOptions options = Calm();
  const SimResult undisturbed = SimCluster(options).Run();
  ASSERT_EQ(undisturbed.violation, "");
  ASSERT_GT(undisturbed.writes, 40);
#ifdef COHORT_SIM_IS_SLOW
  const int step = 16;
#else
  const int step = 1;
#endif
  options.crash = GetParam();
  for (int write = 1; write <= undisturbed.writes; write += step) {
    options.crash_at_write = write;
    const SimResult result = SimCluster(options).Run();
    EXPECT_EQ(result.violation, "") << "the crash at write " << write;
    // It happened, and the head came back.
    EXPECT_EQ(result.counters.Of("head_started"), 2) << write;
  }
}

INSTANTIATE_TEST_SUITE_P(Crashes, CrashTest,
                         ::testing::Values(Crash::kBefore, Crash::kTorn,
                                           Crash::kAfter, Crash::kAmidEffects));

}  // namespace
}  // namespace cohort::sim
