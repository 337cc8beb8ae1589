#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "actor/call_limits.h"
#include "actor/call_target.h"
#include "cohort/v1/actor.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/random.h"
#include "rpc/channel.h"
#include "shm/spinner.h"

namespace cohort::actor {

struct CallChannelOptions {
  std::string job_id;  // the actor's
  // Calls without an end at once; 0 or less: any number, as Ray's default.
  int64_t max_pending_calls = -1;
  // How often a call whose process ended under it is sent to the next one, and
  // so may run again; negative: until it has run.
  int max_task_retries = 0;
  // Whether somebody tells of the actor's ends (SetStanding), so that calls
  // wait for that word.  Else all calls end when a stream cannot be opened.
  bool is_told = true;
  // Of calls that were sent and have no result.  Larger for one whose calls
  // wait for each other, and who bounds what has not begun by other means.
  size_t window_bytes = kWindowBytes;
  // Of actors on this machine a ring is asked for
  // (docs/design/0019-ring.md); null: none.
  shm::Spinner* spinner = nullptr;
};

// Makes the way to an actor's process, which lets in who knows `secret`.
// Thread-safe; a part of it is called on the threads of those who call.
using ActorConnect =
    absl::AnyInvocable<absl::StatusOr<std::unique_ptr<rpc::Channel>>(
        const std::vector<std::string>& addresses, const std::string& secret)
                           const>;

// The caller's end of the calls to one actor, over its restarts.
//
// A program has one for each actor that it calls, and passes what the head says
// of that actor (DriverSession) to SetStanding.  Thread-safe.
//
//   Call -> waiting --stream is open--> sent --result--> done
//              ^               stream broke |  ^ stream is open again
//              |                            v  |
//              +--process ended, a retry-- lost --else: "may_have_run"--> done
//
// CC-1: each call ends exactly once (AC-3).  What was not sent when its actor
//       died for good ends as "not_started".
// CC-2: a call is sent to one incarnation, and to as many more as it has
//       retries (max_task_retries); to one incarnation always under the same
//       sequence, so that it runs once there (AS-5).
// CC-3: calls are sent in the order in which they were made, those that are
//       sent again first (AC-4).
// CC-4: nothing is sent before the process at the other end has said that it is
//       the actor, in the incarnation that the head told of (AC-5).
//
// There is a stream from the first call on.  When it breaks it is opened again,
// with back-off, for as long as the head does not say that this incarnation
// ended; then calls without a result are sent again.  Calls without a retry
// wait for either for kResumeMax.  A stream that is still open when the head
// says that its process ended has a second for results on their way.
class CallChannel final : public CallTarget {
 public:
  // `executor` (for the streams' events and for timers), `clock` and `random`
  // (thread-safe, or nobody else's) outlive this.
  //
  // What `executor` must be: PostAfter with a delay never runs its task inside.
  // Post may: then results reach Done on the transport's own thread, without
  // the switch to another.  It need not run one task at a time, since no two
  // events of a stream overlap.  Done must not block it.
  CallChannel(CallChannelOptions options, ActorConnect connect,
              Executor& executor, const Clock& clock, Random& random);
  // As End, with FAILED_PRECONDITION, "session_over".  REQUIRES: no other
  // method runs.
  ~CallChannel() override;

  CallChannel(const CallChannel&) = delete;
  CallChannel& operator=(const CallChannel&) = delete;

  // What the head says of the actor; of another job it is ignored.  Once the
  // job is over, calls that were not sent end with the reason and so do later
  // ones, at once.
  void SetStanding(const v1::ActorStanding& standing);

  // Somebody here has killed the actor: later calls end at once.  Those before
  // go on until the head says that it is over.
  void MarkKilled();

  // All calls end with `why`, and so do later ones, at once; of several the
  // first counts.  When it returns no Done of an earlier call runs on another
  // thread and none will.  Waits for the transport to let go of the streams.
  // May be called from a Done: then what is left of the connection is destroyed
  // on `executor` a moment later.  REQUIRES: the thread holds no lock that a
  // Done takes.
  void End(absl::Status why);

  // The actor's job has ended, says the head: nothing will serve its calls.
  bool IsOver() const;

  // CallTarget.  Arguments over kArgumentsBytesMax end as "too_large", a call
  // beyond max_pending_calls as "queue_full", both inside Call.
  uint64_t Call(CalledMethod method, std::string arguments, Done done) override;
  void Cancel(uint64_t call) override;
  void Tell(uint64_t call, CallNotice notice) override;
  void Look(uint64_t call, absl::FunctionRef<bool()> finished) override;
  std::string WaitReason(uint64_t call) const override;

  // Calls without an end, but for ours (kOwnGroups).
  size_t pending() const;

 private:
  class Core;

  // Shared: events and timers in flight.
  const std::shared_ptr<Core> core_;
};

}  // namespace cohort::actor
