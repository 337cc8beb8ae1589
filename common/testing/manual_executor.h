#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/executor.h"

namespace cohort {

// An executor and a clock that move by hand, in one thread: one schedule, one
// outcome, no waiting.
//
// For tests and simulations.  Strands may stand on it.  Thread-compatible.
class ManualExecutor final : public Executor, public Clock {
 public:
  // `wall` is the time of day at the start, when Monotonic() is one hour (not
  // zero, so that code which takes zero for "never" is found out).
  explicit ManualExecutor(absl::Time wall = DefaultWall());
  // Destroys what is left.
  ~ManualExecutor() override;

  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;

  absl::Duration Monotonic() const override { return now_; }
  absl::Time Wall() const override { return wall_at_zero_ + now_; }

  // Runs the oldest task that is due now; false when there is none.
  bool RunOne();

  // Runs everything due now, in posting order, with what that posts.  Crashes
  // after ten million tasks: they post each other forever.
  void RunUntilIdle();

  // Moves time forward, running each task at its own instant and those of one
  // instant in posting order, then everything due at the end.
  void AdvanceBy(absl::Duration step);

  // How long until the first task is due, zero when one is; none when nothing
  // waits.
  std::optional<absl::Duration> UntilNext() const;

  // Tasks that wait, timers included.
  size_t pending() const { return tasks_.size(); }

 private:
  static absl::Time DefaultWall();

  absl::Time wall_at_zero_;
  absl::Duration now_;
  uint64_t next_ = 0;
  // By instant, then order of posting.
  std::map<std::pair<absl::Duration, uint64_t>, Task> tasks_;
};

}  // namespace cohort
