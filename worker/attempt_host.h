#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/status_util.h"
#include "common/strong_id.h"
#include "worker/keeper_host.h"

namespace cohort::worker {

// What NodeState knows of one attempt, as it survives the daemon.
struct JournalEntry {
  v1::DesiredAttempt desired;
  v1::ObservedAttempt observed;
};

// The reason of a failed Prepare that no node can mend: the head does not have
// the package any more, or only a damaged one.
inline constexpr char kPackageLost[] = "package_lost";
// The reason of a failed Save, Prepare or Start that is the node's fault: a
// full disk, no port, no process.  Another node may well do it.
inline constexpr char kNodeFault[] = "node_fault";

// `status` with that reason; OK stays OK.
inline absl::Status NodeFault(absl::Status status) {
  return SetReason(std::move(status), kNodeFault);
}

// Everything that NodeState does to the machine.
//
// LocalAttemptHost is the real one (directories, packages, ports, keepers,
// segments); simulations have their own.  Each call returns at once; `done`
// runs once on the node strand, never inside the call.
class AttemptHost {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  // What the host tells without being asked, on the node strand.
  struct Listener {
    absl::AnyInvocable<void(const AttemptId&, const KeeperEvent&)> on_event;
    // A rank's newest report: how many it has made, and the last.
    absl::AnyInvocable<void(const AttemptId&, int rank, uint64_t count,
                            std::string json)>
        on_metrics;
  };

  virtual ~AttemptHost() = default;

  virtual void SetListener(Listener listener) = 0;

  // Makes `entry` durable, replacing the attempt's last.  Saves of one attempt
  // are done in order.
  virtual void Save(const AttemptId& attempt, JournalEntry entry,
                    Done done) = 0;

  // Makes the attempt's directories and control segment, unpacks its package,
  // and, when it holds rank zero, reserves a port: the agreed one if there is
  // one already.  `done` gets it (else 0), or why not.
  // May be called again for an attempt that it prepared before.
  virtual void Prepare(
      const v1::DesiredAttempt& attempt,
      absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) = 0;

  // Gives the reserved port free and starts the ranks.  Events follow `done`.
  virtual void Start(const v1::DesiredAttempt& attempt, Done done) = 0;

  // Takes over what an earlier daemon left (KeeperHost::Adopt), and the
  // attempt's segments.
  virtual void Adopt(const v1::DesiredAttempt& attempt,
                     KeeperHost::AdoptCallback done) = 0;

  // Fails all pending collectives of the attempt on this node at once.
  virtual void Revoke(const AttemptId& attempt) = 0;
  // As KeeperHost.
  virtual void Stop(const AttemptId& attempt, absl::Duration grace) = 0;
  virtual void Kill(const AttemptId& attempt) = 0;

  // Removes all that the attempt has on this node but its logs and results:
  // runtime directory, keeper's directory, working directory, journal entry.
  // No process of it is left when this is called.  What cannot be removed,
  // which `done` is told, is tried again by itself.
  virtual void Forget(const AttemptId& attempt, Done done) = 0;

  // Removes a checkpoint directory of `job`.  OK when it is gone already;
  // InvalidArgument when the path is not a checkpoint directory of that job.
  virtual void RemoveCheckpoint(const v1::DesiredAttempt& attempt,
                                const std::string& path, Done done) = 0;

  // The last bytes of a rank's stderr, at most 64 KiB; empty when unreadable.
  virtual void ReadStderrTail(
      const AttemptId& attempt, int rank,
      absl::AnyInvocable<void(std::string) &&> done) = 0;
};

}  // namespace cohort::worker
