#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "head/store/memory_store.h"
#include "rpc/testing/loopback.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_clock.h"
#include "tests/sim/sim_counters.h"
#include "tests/sim/sim_follower.h"
#include "tests/sim/sim_head.h"
#include "tests/sim/sim_invariants.h"
#include "tests/sim/sim_machine.h"
#include "tests/sim/sim_program.h"
#include "tests/sim/sim_restore.h"
#include "tests/sim/sim_watch.h"
#include "tests/sim/sim_worker.h"

namespace cohort::sim {

// Where a crash of the head falls, seen from one write of its store.
enum class Crash : uint8_t {
  kBefore,       // nothing of the batch is there
  kTorn,         // it was not synced, and the power failed with the head
  kAfter,        // it is durable, and nothing of its effects has left
  kAmidEffects,  // some of its effects have left
};

// What a test breaks on purpose, to see that an invariant notices.
enum class Break : uint8_t {
  kNothing,
  kStoreSkipsSyncs,         // CM-1: acknowledged before it was durable
  kStoreSkipsSyncsUnseen,   // AK-1: the same, found out only at the end
  kClientForgetsItsId,      // RQ-1: a repeat under another request id
  kMachineDoublesDevices,   // PL-2: every rank gets the node's first GPU
  kRestoreIsForged,         // CK-1: ranks go on from a step nobody wrote
  kMachineForgetsNothing,   // LK-1: directories stay
  kRanksNeverEnd,           // LV-1: ranks live for ever
  kHeartbeatsVanish,        // LS-1: a node that runs and talks is given up
  kRowRots,                 // RS-1: what is stored is not what is known
  kStoreLosesEvents,        // EV-1: an event is never written
  kStoreSplitsBatches,      // CM-2: half of a transition is durable alone
  kWorkerEndsOnItsOwn,      // RC-1: a daemon ends what nobody told it to
  kWorkerLosesReports,      // RC-3: a daemon that starts again knows nothing
  kHeadFallsSilent,         // RC-2: messages are lost, and no connection breaks
  kHeadClockCrawls,         // DR-2: deadlines come too late
  kRestoreKeepsGeneration,  // OR-1: workers are not told that it is older
  kCopyIsFollowed,          // HD-1: a copy of the store is not told from it
  kProgramIsCutUnseen,      // DS-4: a session is over, and nobody knows why
};

struct SimOptions {
  uint64_t seed = 1;
  int machines = 3;
  int jobs = 20;
  // That own actors.
  int programs = 2;
  // How long faults go on; then everything is healed and has to come to rest.
  absl::Duration faults_for = absl::Seconds(45);
  // Virtual time in which every job must have ended after the last fault.
  absl::Duration rest_within = absl::Minutes(20);
  // Off: nothing goes wrong but the crash below.
  bool faulty = true;
  // The one write of the run, from 1, at which the head crashes; 0: none.
  int crash_at_write = 0;
  Crash crash = Crash::kAfter;
  Break broken = Break::kNothing;
  // Prints each fault and each job's edge.
  bool verbose = false;
};

// What one seed came to.
struct SimResult {
  // Empty when every invariant held; else what broke, and when.
  std::string violation;
  // Folded over everything that happened, in order: one seed, one trace.
  uint64_t trace = 0;
  // Batches that the head gave to its store.
  int writes = 0;
  Counters counters;
  absl::Duration virtual_time;
};

// A head, workers, their ranks and clients in one thread, with the very
// libraries of the binaries; a seed chooses delays, losses, partitions, pauses,
// clock steps, crashes at any write, power failures and failed appends.
//
// Checked after every step: sim_invariants.h (PL-1, PL-2, JB-1, JB-2, JB-3,
// CK-1, TM-1, AT-1; RS-1 now and then), PL-2 and CK-1 again as the machines
// see them, and
//   CM-1  what a client or a worker was told is durable,
//   RQ-1  one request, one answer, one job,
//   LS-1  no node that could be heard is given up,
//   CM-2  sim_store.h, EV-1 there and sim_follower.h,
//   RC-1, OR-1, OR-2  sim_restore.h: nothing is ended that is wanted or that
//         nobody spoke for, and nothing begins beside it,
//   DR-1, DR-2, PL-3, and now and then EL-1, PL-5  sim_watch.h.
//   DS-1, DS-4  sim_program.h: what a program is told, and when it is given up.
// And at the end, once all was healed:
//   LV-1  every job ends, and no program is known any more,
//   AK-1  no acknowledged job is lost, none is there that nobody asked for,
//   LK-1  nothing is held, no rank lives, no directory is left.
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
    NodeKind kind;
    // Another machine that booted from an image of this one; often null.
    std::unique_ptr<Machine> copy;
    std::unique_ptr<WorkerDaemon> copy_daemon;
    bool cut = false;
    bool drain_asked = false;  // and not undrained yet
    // When it last could not be heard for a reason of ours.
    absl::Duration disturbed_at;
    head::NodeState seen = v1::NODE_STATE_ALIVE;
    bool was_dead = false;  // since the last restore
  };

  World world() { return WorldBy(clock_); }
  World WorldBy(const Clock& clock);
  Machine::Parts PartsOf(const std::string& name, const NodeId& node);
  void Plan();
  v1::JobSpec RandomSpec();
  void AddWhere(v1::JobSpec& spec);
  void AddTimes(v1::JobSpec& spec);
  void AddOrder(v1::JobSpec& spec);
  void AddRestart(v1::JobSpec& spec);
  void ReleaseTheHeld();

  // ---- restores (sim_replaced_store.cc) ----
  void TakeBackup(bool of_a_head_that_ends);
  void RestoreBackup();
  // In place of the newer store; a person sees that nodes refuse it, and
  // restores it.
  void PutCopyBack();
  void EndHeadForGood();
  // Everybody else learns that `rows` are there now.
  void OnReplaced(const head::Batch& rows, bool as_a_copy);
  void UndrainAll();
  // Persons speak for orphans.
  void SpeakForOrphans();
  void SpeakFor(const head::OrphanTable::Entry& entry);
  // OR-2: why an attempt must not begin now.
  std::string MayStart(const v1::DesiredPlace& starting) const;

  // ---- faults (sim_faults.cc) ----
  void Fault();
  void RareFault(uint64_t kind, Node& node);
  void HeadFault(uint64_t kind);
  void NodeFault(uint64_t kind, Node& node);
  void NetworkFault(uint64_t kind, Node& node);
  void Fired(const std::string& name);
  void KillHead();
  void KillDaemon(Node& node, absl::Duration for_at_least, uint64_t and_ms);
  void Cut(Node& node, absl::Duration time);
  void BootACopy(Node& node);
  void EndTheCopy(Node& node);
  void SpeakAnotherVersion(Node& node);
  // A person drains the node, and undrains it later.
  void Drain(Node& node);
  void Undrain(Node& node);
  // The fate of a batch that the head writes now.
  std::optional<head::AppendFault> OnWrite(const head::Batch& batch);
  std::optional<head::AppendFault> CrashNow(Crash crash);
  void FinishCrash();
  void HealEverything();
  void ReviveTheDead();
  void BreakOnPurpose();

  // Runs one task, or moves time to the next one.
  void Step();
  void AfterStep();

  // ---- invariants ----
  void CheckInvariants();
  void NoteJobs(const head::ClusterState& state);
  void CheckNodes(const head::ClusterState& state);
  void MaybeCheckRebuilt();
  void CheckAtRest();
  bool AtRest() const;
  bool AllJobsEnded(const head::ClusterState& state) const;
  bool AllProgramsEnded(const head::ClusterState& state) const;
  // Those of persons and of programs.
  std::vector<const Client*> AllClients() const;
  std::string DescribeUnrest() const;
  void NoteEdge(const JobId& job, head::JobState from, head::JobState to);
  void Violate(const std::string& what);
  void Say(const std::string& what);

  const SimOptions options_;
  SeededRandom random_;
  ManualExecutor executor_;
  SteppingClock clock_;
  CrawlingClock crawling_clock_;
  const absl::Duration start_;
  rpc::Credential credential_;
  rpc::LoopbackNetwork network_;
  Counters counters_;
  WrittenCheckpoints written_;
  head::MemoryDisk disk_;
  head::ClusterLimits limits_;
  std::unique_ptr<HeadDaemon> head_;
  absl::Duration head_back_at_;
  std::vector<Node> nodes_;
  // Copies that were switched off; what they posted may still come.
  std::vector<std::unique_ptr<Machine>> switched_off_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Program>> programs_;
  ShownEvents shown_;
  std::vector<std::unique_ptr<Follower>> followers_;
  DurableHistory history_;
  EpochWatch epoch_watch_;
  NodeWatch node_watch_;
  DeviceWatch device_watch_;
  DrainWatch drain_watch_;
  // When the head last came back from standing still.
  absl::Duration steady_since_;
  Restores restores_{disk_};
  bool restoring_ = false;
  // Those of which an attempt was an orphan, and ended uncounted.
  std::set<JobId> spoken_jobs_;
  // What was last seen of each job.
  std::map<JobId, head::JobState> seen_;
  bool faulty_ = true;
  int drains_ = 0;
  int words_ = 0;  // spoken for attempts
  int writes_ = 0;
  int writes_seen_ = 0;
  // The next write, or none, is the head's last.
  std::optional<Crash> crash_at_next_write_;
  // The head dies after this step, or once some of its effects have left.
  std::optional<Crash> crashing_;
  absl::Duration crash_at_the_latest_;
  int64_t silenced_before_ = 0;
  uint64_t head_runs_seen_ = 0;
  uint64_t next_event_seen_ = 0;
  std::string violation_;
  uint64_t trace_ = 14695981039346656037u;
};

}  // namespace cohort::sim
