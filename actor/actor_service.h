#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "actor/call_target.h"
#include "common/clock.h"
#include "common/executor.h"
#include "rpc/router.h"
#include "shm/served_calls.h"
#include "shm/spinner.h"

namespace cohort::actor {

struct ActorServiceOptions {
  // Who this process is: callers who mean another are refused (AC-5).
  std::string job_id;
  uint64_t incarnation = 0;
  // Notes down what was served and when; null: nothing does.  Both outlive the
  // service.
  shm::ServedCalls* served = nullptr;
  const Clock* clock = nullptr;
  // Callers on this machine get rings (docs/design/0019-ring.md); null: none.
  // Outlives the lanes' runners.
  shm::Spinner* spinner = nullptr;
};

// What a service holds now.
struct ActorServiceUsage {
  size_t callers = 0;  // that are remembered,
  size_t streams = 0;  // of which so many have a stream
  size_t waiting = 0;  // calls
  size_t running = 0;
  size_t result_bytes = 0;  // of results that callers may not have
};

// Calls that do not wait for those of other lanes, as long as their stream's
// window (call_limits.h) has room: a concurrency group.
struct CallLane {
  // Runs them: posted to when the first waits, and held until none does, so a
  // thread or strand of the actor's own lets streams be read while a method
  // takes its time.  An InlineExecutor saves the switch of threads: only for
  // methods that are short and wait for nothing, since they run on the
  // transport's threads.  Outlives the service.
  Executor* runner = nullptr;
  // The group's name; "" of calls that name none.
  std::string group;
  // How many run at once; `runner` has a thread for each.
  int max_concurrency = 1;
  // A call that waits for a future lets the next one begin, up to
  // kGivenWayMax; `runner` has threads for these, too.  Beyond, such a wait
  // ends as RESOURCE_EXHAUSTED (WaitObserver).
  bool gives_way = false;
  // Its threads look at the rings of callers while they have no call: only for
  // a runner where nothing else waits for the thread.
  bool looks_at_rings = false;
  // Each of so many actors of the process has such a lane; 1: calls of all go
  // here.
  uint32_t actors = 1;
};

// The callee's end of calls to an actor: takes them from its callers' streams
// and runs them.
//
// Lives in an actor's process.  Thread-safe.
//
//   stream --> waiting, by lane and caller --> Invoke --> results held -->
//   stream
//
// AS-1: of a lane at most max_concurrency calls run at once, besides those
//       that gave way and go on; those of one caller begin in the order of
//       their sequence, those of several in the order of arrival.
// AS-2: each call has one result, unless its stream is over first; a call whose
//       stream is over does not begin unless it is sent again, nor does one
//       that was cancelled.
// AS-3: a caller that breaks the protocol loses its stream (INVALID_ARGUMENT,
//       RESOURCE_EXHAUSTED), and nobody else notices.
// AS-4: what waits is bounded for each caller (call_limits.h): one that does
//       not read its results has its calls wait, not those of others.
// AS-5: each call runs at most once, over all streams of its caller.  One that
// is
//       sent again on a later stream gets the result of its run; where that is
//       not remembered any more (call_limits.h), the answer is `forgotten`.
class ActorService {
 public:
  // Runs a method by its name, of one of the process's actors; what it answers
  // is the call's result.
  using Invoke = absl::AnyInvocable<absl::StatusOr<std::string>(
      const std::string& method, absl::string_view arguments, uint32_t actor)>;

  // REQUIRES: the first lane is that of calls in no group, of all actors; names
  // differ.
  // `invoke` is thread-safe where calls of several threads may run.
  ActorService(ActorServiceOptions options, std::vector<CallLane> lanes,
               Invoke invoke);
  // As Stop.
  ~ActorService();

  ActorService(const ActorService&) = delete;
  ActorService& operator=(const ActorService&) = delete;

  // Goes on with a call elsewhere; `done` comes once, on any thread.
  using Relay = absl::AnyInvocable<void(const std::string& arguments,
                                        CallTarget::Done done)>;

  // Answers calls of kRelayMethod, while their stream is read: in the order of
  // their sequence, and whatever else waits.  REQUIRES: before Register.
  // kFlushMethod is answered in any case.
  void SetRelay(Relay relay);

  ActorServiceUsage usage() const;

  // Serves kCallActor on `router`; its cluster credential is the actor's
  // secret.  `strand` handles the streams' events and timers; it need not run
  // one task at a time.  REQUIRES: once; the transport is shut down before this
  // and `strand` go.
  void Register(rpc::Router& router, Executor& strand);

  // No call begins any more; waits for those that run, but for one that calls
  // it.
  void Stop();

 private:
  class Core;

  // Shared: this, streams, and what is posted.
  const std::shared_ptr<Core> core_;
};

}  // namespace cohort::actor
