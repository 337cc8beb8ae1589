#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "shm/arena.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/gpu_rendezvous.h"
#include "trainer/preflight/gpu_grant.h"
#include "trainer/preflight/lockstep.h"
#include "trainer/preflight/preflight_report.h"
#include "trainer/session.h"

namespace cohort::trainer {

// How long a preflight takes at most, and what it sends.
struct PreflightLimits {
  // For all ranks to come to the first meeting.
  absl::Duration join = absl::Seconds(60);
  // For each call of the driver while GPUs are opened; the slowest wakes up all
  // of a machine.
  absl::Duration gpu_call = absl::Seconds(30);
  // For a pair to connect, and again to measure.
  absl::Duration pair = absl::Seconds(5);
  // Of taking one communicator down.
  absl::Duration leave = absl::Seconds(1);
  // After it no other round begins, however many ranks there are.
  absl::Duration rounds_max = absl::Minutes(5);
  // Beyond the caches that matter, below what a small /dev/shm has.
  size_t host_bytes = size_t{2} << 20;
  // Enough for GPUs and links that fail only under load.
  size_t gpu_bytes = size_t{64} << 20;
  int repetitions = 5;
  // Pairs that look slow and are measured again, each alone.
  size_t again_max = 8;

  // To each meeting but the first: longer than a pair may take, so that who
  // waits for it is not taken for who is missing.
  absl::Duration meeting() const { return 2 * (pair + leave); }
  // For the rounds of that many ranks: enough for all of them where a round
  // takes as long as may be expected.
  absl::Duration rounds(int world) const;
};

struct PreflightOptions {
  RunPlace place;
  // The address at which other nodes' ranks reach this one.
  std::string host;
  // Of this node's ranks: holds an arena for them, of place.epoch.
  std::string directory;
  // What this rank has of GPUs; unset on all ranks where they have none.
  std::optional<GpuGrant> gpus = std::nullopt;
  // Told of a call of the driver or NCCL that does not come back, while it
  // still has not: names rank, GPU and call.  Nothing is left but to say so and
  // to end the process.
  std::function<void(absl::string_view why)> hung = nullptr;
  PreflightLimits limits = {};
};

// One rank's part in trying a gang: docs/design/0007-preflight.md.
//
// All ranks run it, each in a process of its own or on a thread.
// Thread-compatible.
//
// PF-2: Run ends within limits: each wait has a deadline, and an error names
//       the ranks that were waited for, as far as the communicators can.
class Preflight {
 public:
  // `exchange` is that of all ranks through their daemons.  Both outlive it.
  Preflight(PreflightOptions options, Exchange& exchange);
  ~Preflight();

  // The same report on all ranks.  An error when not all
  // ranks came through to its end: those of Comm, ArenaPlace and Exchange.
  absl::StatusOr<PreflightReport> Run();

  // After Run failed with `why`: ends it on the other ranks too, as far as they
  // are reached.  Not when they wait for the same rank until the same deadline:
  // each shall say whom it misses.
  void RevokeFor(const absl::Status& why);

 private:
  // Two ranks that are tried with each other.
  struct Duo {
    int peer = 0;
    std::string directory;  // of their arena
    std::unique_ptr<shm::ArenaPlace> place;
    std::unique_ptr<Comm> comm;
  };
  using Pairs = std::vector<std::pair<int, int>>;  // a < b
  struct Round {
    std::vector<PairResult> results;  // by pair
    bool is_last = false;             // their time is over
  };

  bool on_one_node() const { return options_.place.node_count == 1; }
  int rank() const { return all_->rank(); }
  int world() const { return all_->world(); }

  absl::Status RunAlone();
  absl::Status RunTogether();
  absl::Status Connect();
  absl::Status ConnectOverNodes();
  // Whether every rank can use what it was granted; the report says who cannot.
  absl::StatusOr<bool> TakeGpus();
  // Opens this rank's; empty, or why that cannot be.
  std::string TakeOwnGpus();
  GpuCommOptions GpuOptions() const;
  absl::Status TryGpusTogether();
  absl::Status GatherFacts();
  absl::Status MeasurePairs();
  // Until the slowest pair is slow alone, too.
  absl::Status MeasureSlowestAgain();

  // One round, in which these pairs are tried.
  absl::StatusOr<Round> RunRound(const Pairs& pairs);
  absl::Status ConnectDuo(Duo& duo, Lockstep& lockstep);
  absl::Status ConnectInArena(Duo& duo, Lockstep& lockstep);
  // In GB/s.
  absl::StatusOr<double> TryDuo(Duo& duo, Lockstep& lockstep);
  // Tells all what this rank found, null for nothing, and learns what the
  // others did.
  absl::StatusOr<Round> Share(const Pairs& pairs,
                              const absl::StatusOr<double>* found);

  const PreflightOptions options_;
  Exchange& exchange_;
  absl::Duration rounds_end_;
  // In this order: the communicator lies in the place.
  std::unique_ptr<shm::ArenaPlace> place_;
  std::unique_ptr<Comm> all_;
  std::string gpu_;  // the name of the one that it reduces on
  PreflightReport report_;
};

}  // namespace cohort::trainer
