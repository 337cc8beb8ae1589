#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"

#include "common/executor.h"
#include "head/store/store.h"
#include "head/store/transition.h"

namespace cohort::head {

// Group commit: makes transitions durable in order and lets their effects leave
// afterwards.
//
//   CM-1: no effect runs with OK before every row submitted before it is
//         durable.
//   CM-2: the rows of one transition are in one batch.
//   CM-3: after a failed append nothing more is written; all effects, those
//         submitted later too, get UNAVAILABLE.
//
// While one batch syncs, all that is submitted meanwhile is joined into the
// next, so a slow disk makes batches larger, not the line longer.  The store's
// side takes them by itself: the disk does not wait for the strand.
//
// Strand-bound: made, used and destroyed on `strand`, on which effects run too;
// never inside the call that brought them.  The store is touched in tasks of
// `store_executor` only, one at a time; drain that executor before the store
// dies.  Everything passed by reference outlives the commit.  One commit serves
// one opened store: after a failure make a new pair.
//
// Unbounded by itself: who admits requests looks at pending_count() and
// pending_bytes() and says no (RESOURCE_EXHAUSTED) before anything is decided.
class Commit {
 public:
  // Called once, on the strand, after all effects that were pending got their
  // status.  FailedPrecondition: another head took the store (leave).
  // Otherwise the disk refused: open the store again.  May destroy the commit.
  using FailureCallback = absl::AnyInvocable<void(const absl::Status&) &&>;

  // What went to the store since the start, for metrics.
  struct Counters {
    uint64_t transitions = 0;  // that had rows
    uint64_t batches = 0;
    uint64_t rows = 0;
    uint64_t bytes = 0;  // of keys and values
  };

  // `term`: this head's own, already in the store (Store::Append's fence).
  Commit(Store& store, Executor& store_executor, Executor& strand,
         uint64_t term, FailureCallback on_failed);
  // Effects still pending get UNAVAILABLE in a last task on the strand.
  ~Commit();

  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;

  // Queues the rows; the effects run in order after they are durable.  Without
  // rows this is AfterDurable for each effect.
  void Submit(Transition transition);

  // For reads: `effect` runs after everything submitted so far is durable, soon
  // when nothing is pending.
  void AfterDurable(Effect effect);

  // Transitions submitted that are not durable yet, and their rows' size.
  size_t pending_count() const;
  size_t pending_bytes() const;

  // Whether an append failed.  Then all effects get UNAVAILABLE.
  bool failed() const;

  const Counters& counters() const;

 private:
  class Appender;

  // A transition that is not durable yet.
  struct Waiting {
    uint64_t number = 0;
    size_t bytes = 0;
    // Its own and those of later reads.
    std::vector<Effect> effects;
  };

  // A batch that the store was given, and what it said.
  struct Appended {
    absl::Status status;
    uint64_t last = 0;  // transition in it
    size_t rows = 0;
    size_t bytes = 0;
  };

  void OnAppended(const Appended& appended);
  void Fail(const absl::Status& status);
  // The effects of all transitions up to this one, which wait no longer.
  std::vector<Effect> TakeEffects(uint64_t last);
  void PostAll(std::vector<Effect> effects, absl::Status status);

  // Set in the constructor.
  Executor& strand_;

  // The strand.
  FailureCallback on_failed_;
  uint64_t last_number_ = 0;
  std::deque<Waiting> waiting_;  // by number
  size_t waiting_bytes_ = 0;
  absl::Status failure_;  // what effects get once an append failed
  Counters counters_;

  // A completion that reaches the strand after the commit's end does nothing.
  std::shared_ptr<char> alive_;  // Shared: only observed by that task.
  // Shared: its task on the store's executor may outlive the commit.
  const std::shared_ptr<Appender> appender_;
};

}  // namespace cohort::head
