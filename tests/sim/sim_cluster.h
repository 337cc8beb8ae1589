#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "head/memory_store.h"
#include "rpc/loopback.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_counters.h"
#include "tests/sim/sim_head.h"
#include "tests/sim/sim_machine.h"
#include "tests/sim/sim_worker.h"

namespace cohort::sim {

struct SimOptions {
  uint64_t seed = 1;
  int machines = 3;
  int jobs = 25;
  // How long faults go on; then everything is healed and has to come to rest.
  absl::Duration faults_for = absl::Seconds(60);
  // Virtual time in which every job must have ended after the last fault.
  absl::Duration rest_within = absl::Minutes(20);
  // Prints each fault and each job's edge.
  bool verbose = false;
};

// What one seed came to.
struct SimResult {
  // Empty when every invariant held; else what broke, and when.
  std::string violation;
  // Folded over everything that happened, in order: one seed, one trace.
  uint64_t trace = 0;
  Counters counters;
  absl::Duration virtual_time;
};

// A head, workers, their ranks and clients in one thread, with the very
// libraries of the binaries; a seed chooses delays, losses, partitions, pauses,
// crashes and failed appends.  Invariants are checked after every step:
// PL-1, PL-2, JB-1, JB-2, JB-3, RQ-1, CK-1, CM-1, and at rest that nothing is
// left and that no acknowledged job was lost.
class SimCluster {
 public:
  explicit SimCluster(SimOptions options);
  ~SimCluster();

  SimResult Run();

 private:
  struct Node {
    NodeId id;
    std::unique_ptr<Machine> machine;
    std::unique_ptr<WorkerDaemon> daemon;  // null: killed
    absl::Duration back_at;                // when killed
    ResourceSet resources;
    int gpus = 0;
  };
  // What was last seen of a job.
  struct Seen {
    head::JobState state = head::JobState::kPending;
    int64_t checkpoint_step = 0;
    int attempts = 0;
  };

  World world() {
    return {executor_, executor_, random_, network_, credential_, counters_};
  }
  void Plan();
  v1::JobSpec RandomSpec();
  void Fault();
  void KillHead();
  void HealEverything();
  // Runs one task, or moves time to the next one.
  void Step();
  void AfterStep();
  void ReviveTheDead();
  void CheckInvariants();
  void CheckJobs(const head::ClusterState& state);
  void CheckAttempts(const head::ClusterState& state);
  void CheckHolds(const head::ClusterState& state);
  void CheckAtRest();
  bool AtRest() const;
  void NoteEdge(const JobId& job, head::JobState from, head::JobState to);
  void Violate(const std::string& what);
  void Say(const std::string& what);
  std::string DescribeUnrest() const;

  const SimOptions options_;
  SeededRandom random_;
  ManualExecutor executor_;
  const absl::Duration start_;
  rpc::Credential credential_;
  rpc::LoopbackNetwork network_;
  Counters counters_;
  head::MemoryDisk disk_;
  head::ClusterLimits limits_;
  std::unique_ptr<HeadDaemon> head_;
  absl::Duration head_back_at_;
  std::vector<Node> nodes_;
  std::vector<std::unique_ptr<Client>> clients_;
  // By name, when it comes to life again (SIGCONT).
  std::map<JobId, Seen> seen_;
  bool faulty_ = true;
  bool kill_after_append_ = false;
  int appends_seen_ = 0;
  std::string violation_;
  uint64_t trace_ = 14695981039346656037u;
};

}  // namespace cohort::sim
