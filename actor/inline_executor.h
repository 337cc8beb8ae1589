#pragma once

#include "absl/time/time.h"

#include "common/executor.h"

namespace cohort::actor {

// Runs what is posted on the thread that posts: no switch to another between a
// transport's thread and who waits for its events.
//
// Only for those who say that they take it (CallChannel, ActorService):
// Executor promises that Post never runs its task inside, and executors of
// streams run one task at a time; here neither holds.  What a task posts runs
// after it, so that tasks which post each other need no stack.  Thread-safe.
class InlineExecutor final : public Executor {
 public:
  // `timers` outlives this, and runs nothing any more when this goes.
  explicit InlineExecutor(Executor& timers) : timers_(timers) {}

  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;

 private:
  Executor& timers_;
};

}  // namespace cohort::actor
