#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "actor/call_target.h"
#include "actor/task_executor.h"
#include "actor/task_pool.h"
#include "actor/task_shape.h"
#include "common/mutex.h"

namespace cohort::actor {

// What a TaskPool is: tasks and where they go (task_pool.cc), what executors
// and actors say and ask for (task_pool_asks.cc).  Thread-safe; shared with
// calls and timers.
class TaskPool::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(TaskPoolOptions options, ExecutorSource& source, Executor& timers,
       const Clock& clock)
      : options_(options), source_(source), timers_(timers), clock_(clock) {}

  uint64_t Run(const char* function, std::string arguments,
               const TaskOptions& options, CallTarget::Done done);
  void Cancel(uint64_t id, bool by_force);
  void Serve(std::shared_ptr<CallTarget> actor);
  void SetRoomWanted(bool wanted);
  void End(const absl::Status& why);
  void Stop(const absl::Status& why);
  std::vector<v1::TaskCounts> Counts() const;
  std::string WaitReason(uint64_t task) const;
  // Where the task was sent, and the call that it is there; null: nowhere.
  std::pair<std::shared_ptr<CallTarget>, uint64_t> PlaceOf(uint64_t task);

 private:
  // What was decided under the lock and is done without it.
  struct Send {
    uint64_t lease;
    std::shared_ptr<CallTarget> target;
    TaskRef task;
    std::string arguments;
    uint64_t sending;
  };
  // To be told of a call of its.
  struct Tell {
    std::shared_ptr<CallTarget> target;
    uint64_t call;
    CallNotice notice;
  };
  // An executor to end, once the notices in `tells` have reached it.
  struct Kill {
    uint64_t lease;
    std::shared_ptr<CallTarget> target;
  };
  struct Ended {
    CallTarget::Done done;
    absl::StatusOr<std::string> result;
  };
  struct Work {
    std::vector<Send> sends;
    std::vector<Ended> ended;
    std::vector<std::pair<uint64_t, TaskOptions>> makes;
    std::vector<Tell> tells;
    std::vector<Kill> kills;
    std::vector<JobId> ends;
    bool sweep = false;
  };

  // For the compiler: within what After calls.
  void AssertLocked() const ABSL_ASSERT_EXCLUSIVE_LOCK(mutex_) {}
  template <typename Change>
  void After(Change change);
  void Do(Work work);
  void SendTask(Send send);
  void Make(uint64_t lease, const TaskOptions& options);

  // OK once one more may wait.
  absl::Status AwaitRoom(WhenFull when_full)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // With `first` it goes before others: tasks of tasks, so that few wait.
  uint64_t Add(WaitingTask task, const TaskOptions& options, bool first,
               Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<TaskShape*> ShapeOf(const TaskOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // What an executor says.
  void OnMade(uint64_t lease, absl::StatusOr<ExecutorSource::Made> made);
  void OnBegun(uint64_t lease, const absl::Status& begun);
  void OnResult(uint64_t lease, const TaskRef& task,
                absl::StatusOr<std::string> result);
  void OnAsked(uint64_t lease, const std::shared_ptr<CallTarget>& target,
               const absl::StatusOr<std::string>& bytes);

  // What its tasks ask for.
  void Ask(uint64_t asker, const std::shared_ptr<CallTarget>& target,
           bool is_first);
  // Drops what the actor asked for.  Whether it is to be asked again: not when
  // it has ended.
  bool MaybeForget(uint64_t actor, const absl::Status& why, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropAsked(uint64_t asker, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunAsked(uint64_t lease, TaskAsk ask, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelAsked(uint64_t asker, uint64_t ask, bool by_force, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(uint64_t lease, uint64_t ask,
              const absl::StatusOr<std::string>& result);

  void Sweep();
  bool NeedsRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropIdle(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartSweeping(Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Null: it is gone.
  ExecutorLease* Find(uint64_t lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null: none waits.
  TaskRef TakeWaiting(TaskShape& shape) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PutWaiting(TaskRef task, bool first)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendTo(ExecutorLease& lease, TaskRef task, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What waits goes where it may.
  void Spread(TaskShape& shape, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fill(ExecutorLease& lease, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AskForMore(TaskShape& shape, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelTask(const TaskRef& task, bool by_force, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // That its call is told, now or once it has a number.
  void Notice(WaitingTask& task, CallNotice notice, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KillExecutor(ExecutorLease& lease, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndKilled(uint64_t lease);
  // It has an end and is nowhere any more.
  void Forget(const WaitingTask& task) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: this is its end.
  bool MayRetry(WaitingTask& task, const absl::Status& why);
  void EndTask(WaitingTask& task, absl::StatusOr<std::string> result,
               Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndWaiting(TaskShape& shape, const absl::Status& why, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It did not come to serve.
  void Fail(ExecutorLease& lease, const absl::Status& why, bool is_final,
            Work& work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(ExecutorLease& lease, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(ExecutorLease& lease, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const TaskPoolOptions options_;
  ExecutorSource& source_;
  Executor& timers_;
  const Clock& clock_;

  mutable Mutex mutex_;
  CondVar has_room_;
  // They stay where they are.
  std::list<TaskShape> shapes_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, std::list<ExecutorLease>::iterator> leases_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, TaskRef> tasks_ ABSL_GUARDED_BY(mutex_);
  // What tasks and actors asked for: {asker, number of the ask} -> task.
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> asked_
      ABSL_GUARDED_BY(mutex_);
  // Actors whose methods run tasks, by numbers like those of executors.
  absl::flat_hash_map<uint64_t, std::shared_ptr<CallTarget>> actors_
      ABSL_GUARDED_BY(mutex_);
  uint64_t last_task_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t last_lease_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool room_wanted_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_sweeping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration last_given_back_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  // Threads in Do, for which Stop waits.
  int doing_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  CondVar done_doing_;
};

template <typename Change>
void TaskPool::Core::After(Change change) {
  Work work;
  {
    MutexLock lock(mutex_);
    change(work);
    ++doing_;
  }
  Do(std::move(work));
  MutexLock lock(mutex_);
  if (--doing_ == 0 && is_stopping_) done_doing_.SignalAll();
}

}  // namespace cohort::actor
