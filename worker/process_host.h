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
#include "common/process_id.h"
#include "common/status_util.h"
#include "worker/keeper_host.h"

namespace cohort::worker {

// What NodeState knows of a place, as it survives the daemon.
struct PlaceEntry {
  // Its processes are, of each slot, the newest incarnation that was begun.
  v1::DesiredPlace desired;
  v1::ObservedPlace observed;  // without processes
};

// The same of a process.
struct ProcessEntry {
  // The membership that it was begun with, with itself as the only process;
  // without processes where it never was.
  v1::DesiredPlace begun;
  v1::ObservedProcess observed;
};

struct JournalEntries {
  std::vector<PlaceEntry> places;
  std::vector<ProcessEntry> processes;
};

// What a saved entry is to survive.
enum class Durability {
  kDaemon,   // the daemon's end
  kMachine,  // the machine's too: it is synced
};

// The reason of a failed Prepare that no node can mend: the head does not have
// the package any more, or only a damaged one.
inline constexpr char kPackageLost[] = "package_lost";
// The reason of a failed Save, Prepare or Begin that is the node's fault: a
// full disk, no port, no process.  Another node may well do it.
inline constexpr char kNodeFault[] = "node_fault";

// `status` with that reason; OK stays OK.
inline absl::Status NodeFault(absl::Status status) {
  return SetReason(std::move(status), kNodeFault);
}

// Everything that NodeState does to the machine.
//
// LocalProcessHost is the real one (directories, packages, ports, keepers,
// segments); simulations have their own.  Each call returns at once; `done`
// runs once on the node strand, never inside the call.
class ProcessHost {
 public:
  using Done = absl::AnyInvocable<void(absl::Status) &&>;

  // What the host tells without being asked, on the node strand.
  struct Listener {
    absl::AnyInvocable<void(const KeeperEvent&)> on_event;
    // A process's newest report: how many it has made, and the last.
    absl::AnyInvocable<void(const ProcessId&, uint64_t count, std::string json)>
        on_metrics;
    // What people are to know of the files that a job's attempts left here,
    // before the call that came upon it is done.
    absl::AnyInvocable<void(const AttemptId&, const std::string&)> on_warning;
  };

  virtual ~ProcessHost() = default;

  virtual void SetListener(Listener listener) = 0;

  // Keeps `entry`, replacing the last one of that place or process.  Saves are
  // done in order.
  virtual void Save(const AttemptId& attempt, PlaceEntry entry,
                    Durability durability, Done done) = 0;
  virtual void Save(const ProcessId& process, ProcessEntry entry,
                    Durability durability, Done done) = 0;

  // Makes the place's directories and, under restart policy ALL, its control
  // segment for local_world_size processes; unpacks its package; and reserves a
  // port where it is to: the agreed one if there is one already.  `done` gets
  // it (else 0), or why not.  May be called again for what it prepared before,
  // unless a process was begun there.
  virtual void Prepare(
      const v1::DesiredPlace& place,
      absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) = 0;

  // Begins those processes of `place` (which has all that are wanted here), all
  // or none; gives the reserved port free for rank 0.  One that was begun
  // before is not begun again.  Events follow `done`.
  virtual void Begin(const v1::DesiredPlace& place,
                     std::vector<ProcessId> which, Done done) = 0;

  // Takes over what an earlier daemon left of the place's keeper
  // (KeeperHost::Adopt) and of its segments; `place` has the processes that
  // were begun and have not ENDED.
  virtual void Adopt(const v1::DesiredPlace& place,
                     KeeperHost::AdoptCallback done) = 0;

  // Fails all pending collectives of the attempt on this node at once.
  virtual void Revoke(const AttemptId& attempt) = 0;
  // As KeeperHost.
  virtual void Stop(const ProcessId& process, absl::Duration grace) = 0;
  virtual void Kill(const ProcessId& process) = 0;

  // Drops all records of a process; its logs stay.  Nothing of it runs.
  virtual void Forget(const ProcessId& process, Done done) = 0;

  // Removes all that the attempt has on this node but its logs and results:
  // runtime directory, keeper's directory, working directory, journal entries.
  // No process of it is left when this is called.  What cannot be removed,
  // which `done` is told, is tried again by itself.
  virtual void Forget(const AttemptId& attempt, Done done) = 0;

  // Removes a checkpoint directory of `job`.  OK when it is gone already;
  // InvalidArgument when the path is not a checkpoint directory of that job.
  virtual void RemoveCheckpoint(const v1::DesiredPlace& place,
                                const std::string& path, Done done) = 0;

  // The last bytes of a process's stderr, at most 64 KiB; empty when
  // unreadable.
  virtual void ReadStderrTail(
      const ProcessId& process,
      absl::AnyInvocable<void(std::string) &&> done) = 0;
};

// Whether the place's processes begin and end together.
inline bool IsGang(const v1::DesiredPlace& place) {
  return place.restart() <= v1::RESTART_POLICY_ALL;
}

// As keepers name it.
inline ProcessKey KeyOf(const ProcessId& process) {
  return {.attempt = process.attempt.ToHex(),
          .slot = process.slot,
          .incarnation = process.incarnation};
}
// REQUIRES: the place's attempt id is one.
inline ProcessId IdOf(const v1::DesiredPlace& place,
                      const v1::DesiredProcess& process) {
  return {.attempt = *AttemptId::FromBytes(place.attempt_id()),
          .slot = process.slot(),
          .incarnation = process.incarnation()};
}

}  // namespace cohort::worker
