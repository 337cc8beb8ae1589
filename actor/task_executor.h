#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "actor/codec.h"
#include "actor/task_options.h"
#include "actor/wait_observer.h"

namespace cohort::actor {

// A task that a task runs: its driver is asked to.
struct TaskAsk {
  uint64_t id = 0;  // of the process
  std::string function;
  std::string arguments;
  TaskOptions options;
  COHORT_FIELDS(id, function, arguments, options)
};

// What a process tells its driver at a time.
struct TaskAsks {
  std::vector<TaskAsk> run;
  std::vector<uint64_t> cancel;  // ids
  // How many of its tasks wait for futures now.
  int waiting = 0;
  std::vector<uint64_t> force_cancel;  // ids
  COHORT_FIELDS(run, cancel, waiting, force_cancel)
};

// The actor that runs tasks: functions are methods of it (function.h).  Beside
// an actor of another class it only asks, for that one's methods.  A driver
// creates executors by resource shape (TaskPool) and
//   - calls Begin, whose answer says that it serves,
//   - always has a call of Asked there, whose end says that it is gone,
//   - answers what was asked by Answer.
// Its tasks run each on a thread of their own and one at a time, but that one
// which waits lets the next begin (CallLane::gives_way).
//
// One in a process, whose TaskRunner it is.  Thread-safe.
class TaskExecutor {
 private:
  class Asking;

 public:
  // Groups of calls that wait for no task, nor tasks for them.
  static constexpr char kAsks[] = "cohort.asks";
  static constexpr char kAnswers[] = "cohort.answers";

  // Whether a method, as in method.h, is of those that ask and answer.
  static bool IsAsk(const std::string& method);

  TaskExecutor();
  // REQUIRES: no method runs.
  ~TaskExecutor();

  void Begin() {}
  // Waits until there is something to tell.  `is_first`: the caller is a new
  // driver.  Asks that the former one was told of end as kReasonMayHaveRun, and
  // its call that still waits ends with nothing.
  TaskAsks Asked(bool is_first);
  // A value as bytes of its Codec.  Ids that are not known are ignored: they
  // were cancelled.
  void Answer(uint64_t id, const absl::StatusOr<std::string>& result);

  // While a task runs, on its thread: that it waits is told.
  class Task final : public WaitObserver {
   public:
    explicit Task(TaskExecutor& executor);
    ~Task() override;

    absl::Status OnWait() override;
    void OnWaited() override;

   private:
    Asking& asking_;
    WaitObserver* const outer_;  // the lane's; null: none
    const Here here_;
  };

 private:
  const std::shared_ptr<Asking> asking_;  // shared: with futures of tasks
};

}  // namespace cohort::actor
