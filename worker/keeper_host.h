#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "worker/keeper/reports.h"
#include "worker/keeper/spec.h"

namespace cohort::worker {

using keeper::ExitCause;
using keeper::ExitReport;
using keeper::ProcessKey;
using keeper::ProcessSpec;

// Reports about a process, each once per Begin or Adopt, in this order.
//
// Not of one that cannot run.
struct ProcessStarted {
  ProcessKey process;
  int64_t pid = 0;
};
// With the cause kKeeperLost (signal SIGKILL, the message says why) where the
// keeper died before it recorded the exit.
using ProcessExited = ExitReport;
// Nothing of its tree is left and its logs are closed.  Of a lost keeper a
// process may be left that would not die; the log names it.
struct ProcessEnded {
  ProcessKey process;
};
using KeeperEvent = std::variant<ProcessStarted, ProcessExited, ProcessEnded>;

struct AdoptedKeeper {
  // The processes that its directory has records of; their events follow.
  std::vector<ProcessKey> known;
  std::string message;  // for people: what is lost; empty when nothing is
};

// The node's keepers: begins processes under one, takes over those of an
// earlier daemon, and tells what becomes of their processes.
//
// The seam between the worker's decisions and the machine: KeeperClient is the
// real one, simulations have their own.  A keeper is named by an id
// (keeper::IsKeeperId), which its directory has too, and parents processes of
// any attempts.  Callbacks and events run on the executor given at
// construction, never inside a call; `done` runs once, and before the first
// event of what it is about.
//
// KH-1: at most one keeper runs in a directory, and it begins a process at most
//       once (PR-2).
// KH-2: after Begin failed nothing of its processes runs or remains on disk.
// KH-3: an event is told once per Begin or Adopt; Adopt tells from the
//       beginning, so a restarted daemon misses nothing.
class KeeperHost {
 public:
  using Listener =
      absl::AnyInvocable<void(const std::string& keeper, const KeeperEvent&)>;
  using DoneCallback = absl::AnyInvocable<void(absl::Status) &&>;
  using AdoptCallback =
      absl::AnyInvocable<void(absl::StatusOr<AdoptedKeeper>) &&>;

  virtual ~KeeperHost() = default;

  // Begins the processes of `specs`, all or none: OK once the keeper has taken
  // them (they may not run yet).  Starts the keeper when it does not run; a
  // directory that was not adopted is adopted first.  A process that was begun
  // before is passed over: its story is told by that Begin, or by Adopt.
  // InvalidArgument what Validate says, or for more processes than a
  // keeper runs; ResourceExhausted, Internal,
  // Unavailable, DeadlineExceeded when they cannot be begun.
  virtual void Begin(std::string keeper, std::vector<ProcessSpec> specs,
                     DoneCallback done) = 0;

  // Takes over what an earlier daemon left of a keeper.  NotFound when there is
  // no directory; AlreadyExists when it was adopted or begun here; Unavailable
  // when it cannot be read: then nothing of it runs any more (the message names
  // any process that would not die).
  virtual void Adopt(std::string keeper, AdoptCallback done) = 0;

  // SIGTERM to the processes' groups, SIGKILL to their trees after `grace`.  A
  // second Stop can only shorten the grace.  No effect on what is unknown or
  // has ended; kept across a lost connection to the keeper.
  virtual void Stop(const std::string& keeper, std::vector<ProcessKey> which,
                    absl::Duration grace) = 0;

  // SIGKILL to the trees now.  Else as Stop.
  virtual void Kill(const std::string& keeper,
                    std::vector<ProcessKey> which) = 0;

  // Drops the records of processes that have ended; not their logs.
  // FailedPrecondition, and none is dropped, when one has not ended; NotFound
  // when the keeper was neither begun nor adopted.  OK for those that are
  // unknown.
  virtual void Forget(const std::string& keeper, std::vector<ProcessKey> which,
                      DoneCallback done) = 0;

  // Ends the keeper and removes its directories, with all records.
  // FailedPrecondition while a process of it has not ended; Unavailable while
  // that cannot be known; OK when there is none.
  virtual void Close(const std::string& keeper, DoneCallback done) = 0;
};

}  // namespace cohort::worker
