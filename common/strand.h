#pragma once

#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

#include "common/executor.h"

namespace cohort {

// Runs its tasks one at a time, in the order they were posted, on the threads
// of another executor.
//
// The owner of a piece of state guards it with a strand as with a mutex, and
// the compiler checks it:
//
//   Strand strand_{pool_};
//   NodeTable nodes_ ABSL_GUARDED_BY(strand_);
//   strand_.Post([this] {
//     strand_.AssertHeld();
//     nodes_.Touch();
//   });
//
// Thread-safe.  The executor underneath outlives the strand; timers that fire
// later than the strand's end do nothing.
class ABSL_LOCKABLE Strand final : public Executor {
 public:
  explicit Strand(Executor& executor);
  // Stops.
  ~Strand() override;

  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;

  // ST-1: tasks of one strand never overlap and run in the order of posting;
  // what one did, the next sees.
  void Post(Task task) override;
  // ST-4: on the caller's thread when the strand is idle; what was posted
  // meanwhile then goes on elsewhere.
  void Dispatch(Task task) override;
  // ST-2: a task that waits for its time is destroyed by Stop, not by its time.
  void PostAfter(absl::Duration delay, Task task) override;

  // Crashes unless called from a task of this strand; tells the compiler that
  // what the strand guards may be touched.
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK();

  // Blocks until nothing is queued or running, including what tasks post; does
  // not wait for timers.  Returns at once when stopped.  REQUIRES: not called
  // from a task of this strand, and the executor runs on other threads.
  void Drain();

  // ST-3: when Stop returns no task runs and none will; those queued and those
  // waiting for their time are destroyed.  Called from a task of this strand,
  // that task is the last.  A second call only waits.
  void Stop();

 private:
  class State;

  // Shared: timers and the turn in flight, both held by the executor, may
  // outlive the strand.
  const std::shared_ptr<State> state_;
};

}  // namespace cohort
