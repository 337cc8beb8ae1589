#pragma once

#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"

namespace cohort {

// Work that runs once, later.
using Task = absl::AnyInvocable<void() &&>;

// A place where tasks run: a thread pool, a strand, or a test's own hand.
//
// Domain classes take an Executor& and never hear of threads.  Unbounded on
// purpose: a post cannot fail, so what admits work (a gate, a mailbox, a
// server) is where the bound lives.  Implementations say their thread word.
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` later, never inside this call.  A stopped executor destroys it
  // instead, possibly inside this call.
  virtual void Post(Task task) = 0;

  // Runs `task` inside this call when the executor can and nothing is ahead of
  // it, else as Post.  Saves the switch to another thread for those who come
  // with a thread of their own; they hold no lock and expect anything to have
  // happened when it returns.
  virtual void Dispatch(Task task) { Post(std::move(task)); }

  // As Post, but not before `delay` has passed; zero or less is Post.
  virtual void PostAfter(absl::Duration delay, Task task) = 0;
};

}  // namespace cohort
