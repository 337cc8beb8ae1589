#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "worker/keeper/reports.h"
#include "worker/keeper/spec.h"

namespace cohort::worker {

using keeper::KeeperSpec;

// How a rank ended.  Exactly one of the two: signal > 0, or exit_code >= 0.
struct ExitStatus {
  int exit_code = -1;
  int signal = 0;
  bool oom_killed = false;  // its cgroup says so; false where there is none

  // What the keeper had done to it before it ended.
  using Cause = keeper::ExitCause;
  Cause cause = Cause::kItself;
  std::string message;  // for people; empty unless there is more to say

  // By the keeper's monotonic clock; zero when it is not known.
  absl::Duration ran;

  bool operator==(const ExitStatus&) const = default;
};

// What is reported of an attempt after Start or Adopt said OK.  In this order:
// any RankStarted and RankExited (a rank that cannot run has only the latter),
// then exactly one of AllDone and KeeperLost, then nothing.
struct RankStarted {
  int rank = 0;
  int64_t pid = 0;
};
struct RankExited {
  int rank = 0;
  ExitStatus status;
};
// Every rank has ended, was reported, and no process of the attempt is left.
struct AllDone {};
// The keeper died.  Every rank without a record was reported with kKeeperLost
// and no process of the attempt is left (`message` names any that would not
// die).
struct KeeperLost {
  std::string message;
};
using KeeperEvent = std::variant<RankStarted, RankExited, AllDone, KeeperLost>;

// What a directory of an attempt says about it, when it is adopted.
enum class AttemptPhase {
  kNoSpec,       // the daemon died while it made the directory: nothing ran
  kSpecDamaged,  // bytes that no crash explains; nothing is known to run
  kNotStarted,   // spec, but no keeper took it and none ever will: nothing ran
  kRunning,      // its keeper lives; events follow
  kKeeperLost,   // its keeper died (or the machine restarted); events follow
  kDone,         // all ended; events follow (the whole story again)
};

struct AdoptedAttempt {
  AttemptPhase phase = AttemptPhase::kNoSpec;
  std::string message;  // for people: what is damaged or lost
};

// The node's keepers: starts one for an attempt, takes over those of an earlier
// daemon, and tells what becomes of their ranks.
//
// The seam between the worker's decisions and the machine: KeeperClient is the
// real one, simulations have their own.  Attempts are named by KeeperSpec's
// `attempt`.  Callbacks and events run on the executor given at construction,
// never inside a call; `done` runs once, and before the attempt's first event.
//
// KH-1: at most one keeper ever runs an attempt.
// KH-2: after Start failed nothing of the attempt runs or remains on disk.
// KH-3: an event is reported once per Start or Adopt; Adopt reports from the
//       beginning, so a restarted daemon misses nothing.
class KeeperHost {
 public:
  using Listener =
      absl::AnyInvocable<void(const std::string& attempt, const KeeperEvent&)>;
  using DoneCallback = absl::AnyInvocable<void(absl::Status) &&>;
  using AdoptCallback =
      absl::AnyInvocable<void(absl::StatusOr<AdoptedAttempt>) &&>;

  virtual ~KeeperHost() = default;

  // Starts the ranks of `spec`: OK once a keeper has taken it (ranks may not
  // run yet).  InvalidArgument what Validate says; AlreadyExists when the
  // attempt has a directory (Adopt it); ResourceExhausted, Internal,
  // Unavailable, DeadlineExceeded when no keeper could be started: nothing is
  // left.
  virtual void Start(KeeperSpec spec, DoneCallback done) = 0;

  // Takes over an attempt's directory and says what it is.  NotFound when there
  // is none; AlreadyExists when it is already started or adopted here;
  // Unavailable when it cannot be read: then nothing of it runs any more
  // (the message names any process that would not die).
  virtual void Adopt(absl::string_view attempt, AdoptCallback done) = 0;

  // SIGTERM to the ranks' process groups, SIGKILL to the trees after `grace`.
  // A second Stop can only shorten the grace.  No effect on an attempt that
  // is unknown or ended; kept across a lost connection to the keeper.
  virtual void Stop(absl::string_view attempt, absl::Duration grace) = 0;

  // SIGKILL to the trees now.  Else as Stop.
  virtual void Kill(absl::string_view attempt) = 0;

  // Forgets an attempt and removes its directory with its exit records (not its
  // log directory unless that lies inside; not its runtime directory).
  // FailedPrecondition while its keeper runs; Unavailable while that cannot be
  // known; OK when there is none.
  virtual void Remove(absl::string_view attempt, DoneCallback done) = 0;
};

}  // namespace cohort::worker
