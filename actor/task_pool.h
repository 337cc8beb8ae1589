#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "actor/call_target.h"
#include "actor/task_options.h"
#include "actor/task_runner.h"
#include "cohort/v1/actor.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/job_id.h"

namespace cohort::actor {

// Who makes and ends executors: actors of class TaskExecutor.  Thread-safe.
class ExecutorSource {
 public:
  struct Made {
    JobId id;
    std::shared_ptr<CallTarget> target;
  };
  using OnMade = absl::AnyInvocable<void(absl::StatusOr<Made> made) &&>;

  virtual ~ExecutorSource() = default;

  // Asks for one of these options' resources.  `on_made` comes exactly once, on
  // any thread, perhaps inside this call: when the ask is accepted, which may
  // wait for room.  UNAVAILABLE is tried again; any other error is the end of
  // the tasks that wait for it.
  virtual void Make(const TaskOptions& options, OnMade on_made) = 0;
  // It is not needed any more, whatever it does.
  virtual void End(const JobId& id) = 0;
};

struct TaskPoolOptions {
  // Tasks that were not sent, at least 1; more wait at Run.  A task takes some
  // 500 bytes and its arguments twice.
  size_t max_waiting = 10'000;
  // How long an executor without tasks is kept: starting one takes tens of
  // milliseconds.
  absl::Duration idle = absl::Seconds(2);
  // The same while others wait for room, and how often one that has tasks is
  // given back then, having been held for as long at least: several drivers
  // share a cluster by turns.
  absl::Duration wanted_idle = absl::Milliseconds(100);
  absl::Duration give_back_every = absl::Milliseconds(500);
  // What an executor is sent ahead of what it runs: as much work as this, so
  // that short tasks cost no round trip, and long ones do not wait behind
  // others.
  absl::Duration ahead = absl::Milliseconds(2);
  int ahead_max = 256;
  // How long an executor that is to be ended by force has to say which of its
  // tasks it has not begun.
  absl::Duration kill_after = absl::Seconds(1);
};

// The tasks of a program: holds executors for them, one kind for each shape of
// resources, and sends tasks to those (docs/design/0013-tasks.md).
//
//   task:      WAITING --sent--> SENT --result--> gone
//                 ^--its executor died, retries left--|
//   executor:  ASKED -> STARTING -> SERVING -> CLOSING -> gone
//
// TP-1: a task ends exactly once.
// TP-2: a task is sent once, and once more for each retry.
// TP-3: what waits is bounded: tasks by max_waiting, and 10,000 of each process
//       that runs tasks; asks for executors by what waits, kinds by kShapesMax.
// TP-4: a task that waits for another (task_options.h) never keeps it from
//       running: its executor takes one more while all that it has wait.
//
// Thread-safe.
class TaskPool final : public TaskRunner {
 public:
  // `timers` never runs a task with a delay inside PostAfter.  All outlive
  // Stop.
  static std::shared_ptr<TaskPool> New(TaskPoolOptions options,
                                       ExecutorSource& source, Executor& timers,
                                       const Clock& clock);
  // REQUIRES: Stop was called.
  ~TaskPool() override;

  // TaskRunner.
  uint64_t Run(const char* function, std::string arguments,
               const TaskOptions& options, CallTarget::Done done) override;
  void Cancel(uint64_t task) override;
  void ForceCancel(uint64_t task) override;
  void Look(uint64_t task, absl::FunctionRef<bool()> finished) override;
  std::string WaitReason(uint64_t task) const override;

  // Runs what the methods of this actor run (TaskExecutor beside it), as long
  // as it is not dead.
  void Serve(std::shared_ptr<CallTarget> actor);

  // Whether others wait for room, says the head.
  void SetRoomWanted(bool wanted);

  // All tasks end with `why`, and later ones at once.  Executors are left to
  // who ends the session.
  void End(const absl::Status& why);
  // As End, and waits until nobody uses `source` and `timers` any more.
  // REQUIRES: not within a `done`.
  void Stop(const absl::Status& why);

  // What it has, by shape, for people; of 64 shapes at most.
  std::vector<v1::TaskCounts> Counts() const;

 private:
  class Core;

  explicit TaskPool(std::shared_ptr<Core> core);

  const std::shared_ptr<Core> core_;  // shared: with calls and timers
};

}  // namespace cohort::actor
