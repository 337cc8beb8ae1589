#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/process_id.h"
#include "common/random.h"
#include "common/resources.h"
#include "rpc/channel.h"
#include "tests/sim/sim_counters.h"
#include "worker/process_host.h"

namespace cohort::sim {

// What a machine does wrong on purpose, for tests of the invariants.
enum class Flaw : uint8_t {
  kNone,
  kDoublesDevices,  // every process gets the first GPU
  kForgesRestore,   // ranks go on from a step that nobody wrote
  kForgetsNothing,  // directories stay
  kRanksNeverEnd,   // neither by themselves nor by a signal
  kEndsOnItsOwn,    // its daemon ends what runs when it joins again
  kLosesReports,    // its daemon's journal is gone when it starts
};

// The steps of which each job wrote a checkpoint, on whatever machine.
using WrittenCheckpoints = std::map<std::string, std::set<int64_t>>;

// A machine with a disk, devices, keepers and processes: what outlives a worker
// daemon.  Checks by itself that no device and no amount is given to two
// processes at once (PL-2), that processes go on from what some process wrote
// (CK-1), that a slot has one live incarnation, which is begun after those
// before it and under a later epoch (PR-1), and that none is begun twice
// (PR-2).
//
// Processes do what their command says:
//   run MS          exits 0 after MS
//   fail N MS CODE  exits CODE after MS in the first N attempts, then 0
//   segv MS         dies of SIGSEGV after MS
//   train STEPS MS  meets its gang by an exchange, then commits a checkpoint
//                   every third step, and exits 0; goes on from the last
//                   committed one
//   stubborn MS     as run, and ignores SIGTERM
// They live no longer than their time limit and its grace.
// Thread-compatible.
class Machine {
 public:
  // The way of a process to the daemon's socket, with its own credential.
  using ConnectRank =
      absl::AnyInvocable<std::unique_ptr<rpc::Channel>(const ProcessId&)>;

  // All passed by reference outlive it.
  struct Parts {
    std::string name;
    ResourceSet resources;
    Flaw flaw = Flaw::kNone;
    ConnectRank connect;
    // Why processes must not be ended, or begin, by order of the daemon now;
    // empty when they may.  Null: always.
    std::function<std::string(const ProcessId&)> may_end = nullptr;
    std::function<std::string(const v1::DesiredPlace&)> may_start = nullptr;
  };
  Machine(Parts parts, Executor& world, const Clock& clock, Random& random,
          Counters& counters, WrittenCheckpoints& written);
  ~Machine();

  const std::string& name() const { return parts_.name; }
  Flaw flaw() const { return parts_.flaw; }

  // ---- disk ----
  std::map<AttemptId, worker::PlaceEntry> places;
  std::map<ProcessId, worker::ProcessEntry> processes;
  std::optional<v1::Stamp> binding;
  // Becomes what an image of `from`, made now, is when it boots: its files, and
  // no process.
  void BootFromImageOf(const Machine& from);

  // ---- for the daemon's host ----
  using Tell = absl::AnyInvocable<void(const worker::KeeperEvent&)>;
  using TellMetrics =
      absl::AnyInvocable<void(const ProcessId&, uint64_t, std::string)>;
  // Who hears of keepers' events from now on; null: nobody.
  void SetDaemon(Tell tell, TellMetrics metrics);

  // Of `place`, which has all that are wanted there, those in `which`; by order
  // of a head of `generation`.
  void Begin(const v1::DesiredPlace& place, const std::vector<ProcessId>& which,
             const std::string& generation);
  // What an Adopt finds; nothing when there is no directory.
  std::optional<std::vector<worker::ProcessKey>> KnownOf(
      const AttemptId& attempt) const;
  // Tells the whole story of an attempt's processes again.
  void Replay(const AttemptId& attempt);
  void Stop(const ProcessId& process, absl::Duration grace);
  void StopAll(absl::Duration grace);
  void Kill(const ProcessId& process);
  void Remove(const ProcessId& process);
  void Remove(const AttemptId& attempt);

  // ---- faults ----
  bool KillARank();
  bool KillAKeeper();
  // Power off and on: every process is gone, the disk is not.
  void Reboot();

  // ---- invariants ----
  size_t live_ranks() const;
  // Those of which it has processes or their records.
  size_t attempts() const { return keepers_.size(); }
  // Why the last check failed; empty while all is well.
  const std::string& violation() const { return violation_; }
  // Something that the daemon here saw.  The first one stays.
  void Violate(std::string what);
  // Attempts with a living process.
  std::set<AttemptId> Live() const;

 private:
  struct Process;
  struct Keeper;
  using Shared = std::shared_ptr<Process>;  // its keeper and its timers

  void BeginOne(const v1::DesiredPlace& place,
                const v1::DesiredProcess& desired,
                const std::string& generation);
  void Run(const Shared& process);
  void Train(const Shared& process);
  void TrainStep(const Shared& process);
  void Exit(const Shared& process, worker::ExitReport status);
  // Nothing of its tree is left.
  void End(Process& process);
  // SIGTERM, and SIGKILL after `grace` to one that does not mind it.
  void EndByOrder(const Shared& process, absl::Duration grace,
                  worker::ExitCause asked, worker::ExitCause forced);
  void TimeIsUp(const Shared& process);
  void Say(Process& process, worker::KeeperEvent event);
  Shared Find(const ProcessId& id) const;
  std::vector<Shared> All() const;
  void CheckMayEnd(const ProcessId& id);
  void CheckHolds();
  void CheckRestore(const v1::DesiredPlace& starting);
  void CheckIncarnation(const Process& starting, const std::string& generation);
  absl::Duration Between(absl::Duration low, absl::Duration high);
  std::vector<Shared> Living() const;

  Parts parts_;
  Executor& world_;
  const Clock& clock_;
  Random& random_;
  Counters& counters_;
  WrittenCheckpoints& written_;
  Tell tell_;
  TellMetrics tell_metrics_;
  int64_t next_pid_ = 1000;
  std::map<AttemptId, Keeper> keepers_;
  // Also those that were removed since, by the store generation whose head
  // ordered it, with the epoch.
  std::map<std::string, std::map<ProcessId, int64_t>> begun_;
  std::string violation_;
};

}  // namespace cohort::sim
