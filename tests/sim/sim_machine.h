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
#include "common/random.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "rpc/channel.h"
#include "tests/sim/sim_counters.h"
#include "worker/attempt_host.h"

namespace cohort::sim {

// What a machine does wrong on purpose, for tests of the invariants.
enum class Flaw : uint8_t {
  kNone,
  kDoublesDevices,  // every rank gets the first GPU
  kForgesRestore,   // ranks go on from a step that nobody wrote
  kForgetsNothing,  // directories stay
  kRanksNeverEnd,   // neither by themselves nor by a signal
  kEndsOnItsOwn,    // its daemon ends what runs when it joins again
  kLosesReports,    // its daemon's journal is gone when it starts
};

// The steps of which each job wrote a checkpoint, on whatever machine.
using WrittenCheckpoints = std::map<std::string, std::set<int64_t>>;

// A machine with a disk, devices, keepers and ranks: what outlives a worker
// daemon.  Checks by itself that no device and no amount is given to two
// attempts at once (PL-2) and that ranks go on from what some rank wrote
// (CK-1).
//
// Ranks do what their command says:
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
  // The ranks' way to the daemon's socket, with the attempt's own credential.
  using ConnectRank = absl::AnyInvocable<std::unique_ptr<rpc::Channel>(
      const AttemptId& attempt)>;

  // All passed by reference outlive it.
  struct Parts {
    std::string name;
    ResourceSet resources;
    Flaw flaw = Flaw::kNone;
    ConnectRank connect;
    // Why ranks must not be ended, or begin, by order of the daemon now; empty
    // when they may.  Null: always.
    std::function<std::string(const AttemptId&)> may_end = nullptr;
    std::function<std::string(const v1::DesiredAttempt&)> may_start = nullptr;
  };
  Machine(Parts parts, Executor& world, const Clock& clock, Random& random,
          Counters& counters, WrittenCheckpoints& written);
  ~Machine();

  const std::string& name() const { return parts_.name; }
  Flaw flaw() const { return parts_.flaw; }

  // ---- disk ----
  std::map<AttemptId, worker::JournalEntry> journal;
  std::optional<v1::Stamp> binding;
  // Becomes what an image of `from`, made now, is when it boots: its files, and
  // no process.
  void BootFromImageOf(const Machine& from);

  // ---- for the daemon's host ----
  using Tell =
      absl::AnyInvocable<void(const AttemptId&, const worker::KeeperEvent&)>;
  using TellMetrics =
      absl::AnyInvocable<void(const AttemptId&, int, uint64_t, std::string)>;
  // Who hears of keepers' events from now on; null: nobody.
  void SetDaemon(Tell tell, TellMetrics metrics);

  void Start(const v1::DesiredAttempt& attempt);
  // What an Adopt finds; nothing when there is no directory.
  std::optional<worker::AttemptPhase> PhaseOf(const AttemptId& attempt) const;
  // Tells the whole story of an attempt again.
  void Replay(const AttemptId& attempt);
  void Stop(const AttemptId& attempt, absl::Duration grace);
  void Kill(const AttemptId& attempt);
  void Remove(const AttemptId& attempt);

  // ---- faults ----
  bool KillARank();
  bool KillAKeeper();
  // Power off and on: every process is gone, the disk is not.
  void Reboot();

  // ---- invariants ----
  size_t live_ranks() const;
  size_t attempts() const { return attempts_.size(); }
  // Why the last check failed; empty while all is well.
  const std::string& violation() const { return violation_; }
  // Something that the daemon here saw.  The first one stays.
  void Violate(std::string what);
  // Attempts with a living rank.
  std::set<AttemptId> Live() const;

 private:
  struct Rank;
  struct Attempt;

  void StartRank(Attempt& attempt, Rank& rank);
  void RunRank(const std::shared_ptr<Rank>& rank);
  void TrainStep(const std::shared_ptr<Rank>& rank);
  void Exit(Rank& rank, worker::ExitStatus status);
  void End(Attempt& attempt);
  // SIGTERM, and SIGKILL after `grace` to those who do not mind it.
  void EndRanks(Attempt& attempt, absl::Duration grace,
                worker::ExitStatus::Cause asked,
                worker::ExitStatus::Cause forced);
  void TimeIsUp(const AttemptId& attempt);
  void Say(Attempt& attempt, worker::KeeperEvent event);
  void CheckMayEnd(const AttemptId& id);
  void CheckHolds(const v1::DesiredAttempt& starting);
  void CheckRestore(const v1::DesiredAttempt& starting);
  absl::Duration Between(absl::Duration low, absl::Duration high);
  std::vector<std::shared_ptr<Rank>> LiveRanks() const;

  Parts parts_;
  Executor& world_;
  const Clock& clock_;
  Random& random_;
  Counters& counters_;
  WrittenCheckpoints& written_;
  Tell tell_;
  TellMetrics tell_metrics_;
  int64_t next_pid_ = 1000;
  std::map<AttemptId, std::unique_ptr<Attempt>> attempts_;
  // Also those that were removed since.
  std::set<AttemptId> started_;
  std::string violation_;
};

}  // namespace cohort::sim
