#include "actor/task_pool.h"

#include <algorithm>
#include <list>
#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

#include "actor/actor_end.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/codec.h"
#include "actor/handle.h"
#include "actor/method.h"
#include "actor/task_executor.h"
#include "actor/task_shape.h"
#include "common/mutex.h"
#include "common/printable_text.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

constexpr size_t kShapesMax = 256;
// How many shapes the head is told of, and how long the text of each may be.
constexpr size_t kCountedMax = 64;
constexpr size_t kShapeBytesMax = 256;
// Executors that were asked for and do not serve yet.
constexpr size_t kAskedMin = 2;
constexpr size_t kAskedMax = 32;
// Executors that ended before they served, one after the other, before their
// tasks end.
constexpr int kStartFailuresMax = 3;
constexpr absl::Duration kStartRetry = absl::Milliseconds(200);
constexpr absl::Duration kSweepEvery = absl::Milliseconds(50);

// Naming it registers it, too.
template <auto M>
const char* MethodName() {
  using Own = AutoMethod<TaskExecutor, M>;
  (void)&Own::kRegistered;
  return Own::Name();
}
CalledMethod BeginMethod() { return MethodName<&TaskExecutor::Begin>(); }
CalledMethod AskedMethod() {
  return {MethodName<&TaskExecutor::Asked>(), TaskExecutor::kAsks};
}
CalledMethod AnswerMethod() {
  return {MethodName<&TaskExecutor::Answer>(), TaskExecutor::kAnswers};
}

}  // namespace

class TaskPool::Core : public std::enable_shared_from_this<Core> {
 public:
  Core(TaskPoolOptions options, ExecutorSource& source, Executor& timers,
       const Clock& clock)
      : options_(options), source_(source), timers_(timers), clock_(clock) {}

  uint64_t Run(const char* function, std::string arguments,
               const TaskOptions& options, CallTarget::Done done);
  void Cancel(uint64_t id);
  void SetRoomWanted(bool wanted);
  void End(const absl::Status& why);
  void Stop(const absl::Status& why);
  std::vector<v1::TaskCounts> Counts() const;

 private:
  // What was decided under the lock and is done without it.
  struct Send {
    uint64_t lease;
    std::shared_ptr<CallTarget> target;
    TaskRef task;
    std::string arguments;
  };
  struct Ended {
    CallTarget::Done done;
    absl::StatusOr<std::string> result;
  };
  struct Work {
    std::vector<Send> sends;
    std::vector<Ended> ended;
    std::vector<std::pair<uint64_t, TaskOptions>> makes;
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
  void Ask(uint64_t lease, const std::shared_ptr<CallTarget>& target);
  void RunAsked(uint64_t lease, TaskAsk ask, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelAsked(uint64_t lease, uint64_t ask, Work& work)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(uint64_t lease, uint64_t ask,
              const absl::StatusOr<std::string>& result);

  void Sweep();
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
  // What tasks of executors asked for: {lease, number of the ask} -> task.
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> asked_
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

void TaskPool::Core::Do(Work work) {
  for (Send& send : work.sends) SendTask(std::move(send));
  for (const auto& [lease, options] : work.makes) Make(lease, options);
  for (const JobId& id : work.ends) source_.End(id);
  for (Ended& each : work.ended) std::move(each.done)(std::move(each.result));
  if (work.sweep) {
    timers_.PostAfter(kSweepEvery, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->Sweep();
    });
  }
}

void TaskPool::Core::SendTask(Send send) {
  send.target->Call(send.task->function, std::move(send.arguments),
                    [self = shared_from_this(), lease = send.lease,
                     task = send.task](absl::StatusOr<std::string> result) {
                      self->OnResult(lease, task, std::move(result));
                    });
}

void TaskPool::Core::Make(uint64_t lease, const TaskOptions& options) {
  source_.Make(options, [weak = weak_from_this(),
                         lease](absl::StatusOr<ExecutorSource::Made> made) {
    if (const auto self = weak.lock()) self->OnMade(lease, std::move(made));
  });
}

// ---- What the program does. ----

uint64_t TaskPool::Core::Run(const char* function, std::string arguments,
                             const TaskOptions& options,
                             CallTarget::Done done) {
  uint64_t id = 0;
  After([&](Work& work) {
    AssertLocked();
    absl::Status refusal = AwaitRoom(options.when_full);
    if (refusal.ok() && arguments.size() > kArgumentsBytesMax) {
      refusal = TooLarge("arguments are", arguments.size(), kArgumentsBytesMax);
    }
    if (!refusal.ok()) {
      work.ended.push_back({std::move(done), std::move(refusal)});
      return;
    }
    WaitingTask task;
    task.function = function;
    task.arguments = std::move(arguments);
    task.done = std::move(done);
    id = Add(std::move(task), options, /*first=*/false, work);
  });
  return id;
}

absl::Status TaskPool::Core::AwaitRoom(WhenFull when_full) {
  while (!ended_.has_value() && waiting_ >= options_.max_waiting) {
    if (when_full == WhenFull::kDontWait) return QueueFull(waiting_);
    has_room_.Wait(mutex_);
  }
  return ended_.value_or(absl::OkStatus());
}

uint64_t TaskPool::Core::Add(WaitingTask task, const TaskOptions& options,
                             bool first, Work& work) {
  const absl::StatusOr<TaskShape*> shape = ShapeOf(options);
  if (!shape.ok()) {
    work.ended.push_back({std::move(task.done), shape.status()});
    return 0;
  }
  task.id = ++last_task_;
  task.shape = *shape;
  task.bytes = task.arguments.size();
  task.retries_left = options.max_retries;
  task.retries_exceptions = options.retry_exceptions;
  const auto added = std::make_shared<WaitingTask>(std::move(task));
  tasks_.emplace(added->id, added);
  PutWaiting(added, first);
  Spread(**shape, work);
  AskForMore(**shape, work);
  return added->id;
}

absl::StatusOr<TaskShape*> TaskPool::Core::ShapeOf(const TaskOptions& options) {
  for (TaskShape& shape : shapes_) {
    if (SameShape(shape.options, options)) return &shape;
  }
  if (shapes_.size() >= kShapesMax) {
    shapes_.remove_if([](const TaskShape& shape) {
      return shape.leases.empty() && shape.waiting_live == 0;
    });
  }
  if (shapes_.size() >= kShapesMax) {
    return SetReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "tasks of ", shapes_.size(),
            " different resource requests are under way, which is all that a "
            "program may have (use fewer kinds, or wait for some)")),
        kReasonQueueFull);
  }
  shapes_.emplace_back().options = options;
  return &shapes_.back();
}

void TaskPool::Core::Cancel(uint64_t id) {
  After([&](Work& work) {
    AssertLocked();
    const auto at = tasks_.find(id);
    if (at != tasks_.end()) {
      const TaskRef task = at->second;
      EndTask(*task, CallCancelled(), work);
    }
  });
}

void TaskPool::Core::SetRoomWanted(bool wanted) {
  MutexLock lock(mutex_);
  room_wanted_ = wanted;
}

void TaskPool::Core::End(const absl::Status& why) {
  After([&](Work& work) {
    AssertLocked();
    if (!ended_.has_value()) ended_ = why;
    for (TaskShape& shape : shapes_) EndWaiting(shape, why, work);
    while (!tasks_.empty()) {
      const TaskRef task = tasks_.begin()->second;
      EndTask(*task, why, work);
    }
    for (TaskShape& shape : shapes_) {
      shape.leases.clear();
      shape.asked = 0;
    }
    leases_.clear();
    asked_.clear();
    has_room_.SignalAll();
  });
}

void TaskPool::Core::Stop(const absl::Status& why) {
  End(why);
  MutexLock lock(mutex_);
  is_stopping_ = true;
  while (doing_ > 0) done_doing_.Wait(mutex_);
}

std::vector<v1::TaskCounts> TaskPool::Core::Counts() const {
  std::vector<v1::TaskCounts> all;
  MutexLock lock(mutex_);
  for (const TaskShape& shape : shapes_) {
    if (all.size() == kCountedMax) break;
    v1::TaskCounts& counts = all.emplace_back();
    counts.set_shape(Cut(Shown(ShapeText(shape.options)), kShapeBytesMax));
    counts.set_waiting(shape.waiting_live);
    counts.set_finished(shape.finished);
    counts.set_failed(shape.failed);
    counts.set_executors(shape.leases.size() - shape.asked);
    uint64_t running = 0;
    for (const ExecutorLease& lease : shape.leases) running += lease.sent;
    counts.set_running(running);
  }
  return all;
}

// ---- What executors say. ----

void TaskPool::Core::OnMade(uint64_t lease,
                            absl::StatusOr<ExecutorSource::Made> made) {
  std::shared_ptr<CallTarget> target;
  After([&](Work& work) {
    AssertLocked();
    ExecutorLease* const found = Find(lease);
    if (found == nullptr) {
      if (made.ok() && !ended_.has_value()) work.ends.push_back(made->id);
    } else if (!made.ok()) {
      Fail(*found, made.status(), !absl::IsUnavailable(made.status()), work);
    } else {
      found->state = ExecutorState::kStarting;
      found->id = made->id;
      found->target = made->target;
      target = made->target;
    }
  });
  if (target == nullptr) return;
  target->Call(BeginMethod(), std::string(),
               [self = shared_from_this(),
                lease](const absl::StatusOr<std::string>& begun) {
                 self->OnBegun(lease, begun.status());
               });
}

void TaskPool::Core::OnBegun(uint64_t lease, const absl::Status& begun) {
  std::shared_ptr<CallTarget> target;
  After([&](Work& work) {
    AssertLocked();
    ExecutorLease* const found = Find(lease);
    if (found == nullptr) return;
    if (!begun.ok()) {
      ++found->shape->start_failures;
      return Fail(*found, begun,
                  found->shape->start_failures >= kStartFailuresMax, work);
    }
    found->state = ExecutorState::kServing;
    found->since = clock_.Monotonic();
    found->idle_since = found->since;
    --found->shape->asked;
    found->shape->start_failures = 0;
    target = found->target;
    Fill(*found, work);
    AskForMore(*found->shape, work);
  });
  if (target != nullptr) Ask(lease, target);
}

void TaskPool::Core::OnResult(uint64_t lease, const TaskRef& task,
                              absl::StatusOr<std::string> result) {
  After([&](Work& work) {
    AssertLocked();
    const bool is_gone = !result.ok() && IsActorEnd(result.status());
    ExecutorLease* from = Find(lease);
    if (from != nullptr) {
      --from->sent;
      from->sent_bytes -= task->bytes;
      NoteResult(clock_.Monotonic(), options_, *from);
      if (is_gone) Close(*std::exchange(from, nullptr), work);
    }
    TaskShape& shape = *task->shape;
    if (task->done == nullptr) {
      // Cancelled meanwhile.
    } else if (!result.ok() && MayRetry(*task, result.status())) {
      PutWaiting(task, /*first=*/true);
      Spread(shape, work);
    } else {
      EndTask(*task, std::move(result), work);
    }
    if (from != nullptr) Fill(*from, work);
    if (shape.waiting_live > 0) AskForMore(shape, work);
  });
}

void TaskPool::Core::Ask(uint64_t lease,
                         const std::shared_ptr<CallTarget>& target) {
  target->Call(AskedMethod(), std::string(),
               [self = shared_from_this(), lease,
                target](const absl::StatusOr<std::string>& bytes) {
                 self->OnAsked(lease, target, bytes);
               });
}

void TaskPool::Core::OnAsked(uint64_t lease,
                             const std::shared_ptr<CallTarget>& target,
                             const absl::StatusOr<std::string>& bytes) {
  absl::StatusOr<TaskAsks> asks =
      bytes.ok() ? DecodeValue<TaskAsks>(*bytes) : bytes.status();
  bool is_there = false;
  After([&](Work& work) {
    AssertLocked();
    ExecutorLease* const found = Find(lease);
    if (found == nullptr) return;
    if (!asks.ok()) {
      Close(*found, work);
      return;
    }
    is_there = true;
    found->waiting = asks->waiting;
    for (TaskAsk& ask : asks->run) RunAsked(lease, std::move(ask), work);
    for (const uint64_t ask : asks->cancel) CancelAsked(lease, ask, work);
    Fill(*found, work);
  });
  if (is_there) Ask(lease, target);
}

void TaskPool::Core::RunAsked(uint64_t lease, TaskAsk ask, Work& work) {
  ExecutorLease& by = *Find(lease);
  ++by.asked_for;
  by.shape->nests = true;
  // It may wait for what it asked for, and have no place to run it but its own.
  if (by.state == ExecutorState::kClosing) by.state = ExecutorState::kServing;
  WaitingTask task;
  task.function = KeptText(ask.function);
  task.arguments = std::move(ask.arguments);
  task.done = [weak = weak_from_this(), lease,
               id = ask.id](const absl::StatusOr<std::string>& result) {
    if (const auto self = weak.lock()) self->Answer(lease, id, result);
  };
  const uint64_t id = Add(std::move(task), ask.options, /*first=*/true, work);
  asked_[{lease, ask.id}] = id;
}

void TaskPool::Core::CancelAsked(uint64_t lease, uint64_t ask, Work& work) {
  const auto asked = asked_.find({lease, ask});
  if (asked == asked_.end()) return;
  const auto at = tasks_.find(asked->second);
  if (at == tasks_.end()) return;
  const TaskRef task = at->second;
  EndTask(*task, CallCancelled(), work);
}

void TaskPool::Core::Answer(uint64_t lease, uint64_t ask,
                            const absl::StatusOr<std::string>& result) {
  std::shared_ptr<CallTarget> target;
  After([&](Work& work) {
    AssertLocked();
    asked_.erase({lease, ask});
    ExecutorLease* const by = Find(lease);
    if (by == nullptr) return;
    --by->asked_for;
    target = by->target;
    Fill(*by, work);
  });
  if (target == nullptr) return;
  absl::StatusOr<std::string> answer = WriteParameters(ask, result);
  if (answer.ok() && answer->size() > kArgumentsBytesMax) {
    answer = WriteParameters(
        ask, absl::StatusOr<std::string>(TooLarge(
                 "the result is", result->size(), kArgumentsBytesMax)));
  }
  // Whoever waits for it is gone when it cannot be brought.
  if (answer.ok()) target->Call(AnswerMethod(), *answer, [](const auto&) {});
}

// ---- Where tasks go. ----

ExecutorLease* TaskPool::Core::Find(uint64_t lease) {
  const auto at = leases_.find(lease);
  return at == leases_.end() ? nullptr : &*at->second;
}

void TaskPool::Core::PutWaiting(TaskRef task, bool first) {
  TaskShape& shape = *task->shape;
  task->is_sent = false;
  ++shape.waiting_live;
  ++waiting_;
  if (first) {
    shape.waiting.push_front(std::move(task));
  } else {
    shape.waiting.push_back(std::move(task));
  }
}

TaskRef TaskPool::Core::TakeWaiting(TaskShape& shape) {
  while (!shape.waiting.empty()) {
    TaskRef task = std::move(shape.waiting.front());
    shape.waiting.pop_front();
    if (task->done == nullptr) continue;
    --shape.waiting_live;
    if (waiting_-- == options_.max_waiting) has_room_.SignalAll();
    return task;
  }
  return nullptr;
}

void TaskPool::Core::SendTo(ExecutorLease& lease, TaskRef task, Work& work) {
  if (lease.sent++ == 0) lease.busy_since = clock_.Monotonic();
  lease.sent_bytes += task->bytes;
  task->is_sent = true;
  // What may be sent again is kept.
  std::string arguments =
      task->retries_left == 0 ? std::move(task->arguments) : task->arguments;
  work.sends.push_back(
      {lease.number, lease.target, std::move(task), std::move(arguments)});
}

void TaskPool::Core::Spread(TaskShape& shape, Work& work) {
  while (shape.waiting_live > 0) {
    ExecutorLease* best = nullptr;
    for (ExecutorLease& lease : shape.leases) {
      if (!HasRoom(lease)) continue;
      if (best == nullptr || lease.sent < best->sent) best = &lease;
    }
    if (best == nullptr) return;
    SendTo(*best, TakeWaiting(shape), work);
  }
}

void TaskPool::Core::Fill(ExecutorLease& lease, Work& work) {
  while (HasRoom(lease)) {
    TaskRef task = TakeWaiting(*lease.shape);
    if (task == nullptr) break;
    SendTo(lease, std::move(task), work);
  }
  if (lease.sent > 0) return;
  lease.idle_since = clock_.Monotonic();
  if (lease.state == ExecutorState::kClosing) Drop(lease, work);
}

void TaskPool::Core::AskForMore(TaskShape& shape, Work& work) {
  const size_t serving = shape.leases.size() - shape.asked;
  const size_t wanted =
      std::min(shape.waiting_live, std::clamp(serving, kAskedMin, kAskedMax));
  if (shape.asked >= wanted || ended_.has_value()) return;
  StartSweeping(work);
  if (clock_.Monotonic() < shape.ask_at) return;
  for (; shape.asked < wanted; ++shape.asked) {
    ExecutorLease& lease = shape.leases.emplace_back();
    lease.number = ++last_lease_;
    lease.shape = &shape;
    lease.idle_since = clock_.Monotonic();
    leases_.emplace(lease.number, std::prev(shape.leases.end()));
    work.makes.emplace_back(lease.number, shape.options);
  }
}

// ---- Ends. ----

bool TaskPool::Core::MayRetry(WaitingTask& task, const absl::Status& why) {
  const bool is_exception =
      task.retries_exceptions && GetReason(why) == kReasonException;
  if (task.retries_left == 0 || !(IsActorEnd(why) || is_exception)) {
    return false;
  }
  if (task.retries_left > 0) --task.retries_left;
  return true;
}

void TaskPool::Core::EndTask(WaitingTask& task,
                             absl::StatusOr<std::string> result, Work& work) {
  TaskShape& shape = *task.shape;
  if (!task.is_sent) {
    --shape.waiting_live;
    if (waiting_-- == options_.max_waiting) has_room_.SignalAll();
  }
  ++(result.ok() ? shape.finished : shape.failed);
  work.ended.push_back({std::move(task.done), std::move(result)});
  task.done = nullptr;
  task.arguments = std::string();
  tasks_.erase(task.id);
  DropEnded(shape);
}

void TaskPool::Core::EndWaiting(TaskShape& shape, const absl::Status& why,
                                Work& work) {
  const std::deque<TaskRef> waiting = std::exchange(shape.waiting, {});
  for (const TaskRef& task : waiting) {
    if (task->done != nullptr) EndTask(*task, why, work);
  }
}

void TaskPool::Core::Fail(ExecutorLease& lease, const absl::Status& why,
                          bool is_final, Work& work) {
  TaskShape& shape = *lease.shape;
  Drop(lease, work);
  shape.ask_at = clock_.Monotonic() + kStartRetry;
  // Those that serve go on with what waits.
  if (is_final && shape.leases.size() == shape.asked) {
    shape.start_failures = 0;
    EndWaiting(shape, why, work);
  } else if (shape.waiting_live > 0) {
    StartSweeping(work);
  }
}

void TaskPool::Core::Close(ExecutorLease& lease, Work& work) {
  if (lease.sent == 0) return Drop(lease, work);
  lease.state = ExecutorState::kClosing;
}

void TaskPool::Core::Drop(ExecutorLease& lease, Work& work) {
  const uint64_t number = lease.number;
  TaskShape& shape = *lease.shape;
  if (lease.state == ExecutorState::kAsked ||
      lease.state == ExecutorState::kStarting) {
    --shape.asked;
  }
  if (lease.target != nullptr) work.ends.push_back(lease.id);
  // Nobody waits for what its tasks asked for.
  for (auto it = asked_.lower_bound({number, 0});
       it != asked_.end() && it->first.first == number;) {
    const auto at = tasks_.find(it->second);
    it = asked_.erase(it);
    if (at == tasks_.end()) continue;
    const TaskRef task = at->second;
    EndTask(*task, CallCancelled(), work);
  }
  const auto at = leases_.find(number);
  const auto place = at->second;
  leases_.erase(at);
  shape.leases.erase(place);
}

// ---- What is kept, and given back. ----

void TaskPool::Core::StartSweeping(Work& work) {
  if (!std::exchange(is_sweeping_, true)) work.sweep = true;
}

void TaskPool::Core::Sweep() {
  After([&](Work& work) {
    AssertLocked();
    is_sweeping_ = false;
    if (ended_.has_value()) return;
    DropIdle(work);
    if (room_wanted_) GiveBack(work);
    for (TaskShape& shape : shapes_) AskForMore(shape, work);
    if (!leases_.empty()) StartSweeping(work);
  });
}

void TaskPool::Core::DropIdle(Work& work) {
  const absl::Duration keep =
      room_wanted_ ? options_.wanted_idle : options_.idle;
  const absl::Duration before = clock_.Monotonic() - keep;
  for (TaskShape& shape : shapes_) {
    if (shape.waiting_live > 0) continue;
    for (auto it = shape.leases.begin(); it != shape.leases.end();) {
      ExecutorLease& lease = *it++;
      // What its tasks asked for goes on after they have ended.
      const bool is_idle = lease.sent == 0 && lease.asked_for == 0;
      if (is_idle && lease.idle_since < before) Drop(lease, work);
    }
  }
}

// One that its driver has had for longest.
void TaskPool::Core::GiveBack(Work& work) {
  const absl::Duration before = clock_.Monotonic() - options_.give_back_every;
  if (last_given_back_ > before) return;
  ExecutorLease* oldest = nullptr;
  for (const auto& [number, at] : leases_) {
    ExecutorLease& lease = *at;
    if (lease.state != ExecutorState::kServing || lease.asked_for > 0) continue;
    if (lease.since > before) continue;
    if (oldest == nullptr || lease.since < oldest->since) oldest = &lease;
  }
  if (oldest == nullptr) return;
  last_given_back_ = clock_.Monotonic();
  Close(*oldest, work);
}

// ---- The pool. ----

TaskPool::TaskPool(std::shared_ptr<Core> core) : core_(std::move(core)) {}

std::shared_ptr<TaskPool> TaskPool::New(TaskPoolOptions options,
                                        ExecutorSource& source,
                                        Executor& timers, const Clock& clock) {
  return std::shared_ptr<TaskPool>(new TaskPool(
      std::make_shared<Core>(std::move(options), source, timers, clock)));
}

TaskPool::~TaskPool() = default;

uint64_t TaskPool::Run(const char* function, std::string arguments,
                       const TaskOptions& options, CallTarget::Done done) {
  return core_->Run(function, std::move(arguments), options, std::move(done));
}

void TaskPool::Cancel(uint64_t task) { core_->Cancel(task); }

void TaskPool::SetRoomWanted(bool wanted) { core_->SetRoomWanted(wanted); }

void TaskPool::End(const absl::Status& why) { core_->End(why); }

void TaskPool::Stop(const absl::Status& why) { core_->Stop(why); }

std::vector<v1::TaskCounts> TaskPool::Counts() const { return core_->Counts(); }

}  // namespace cohort::actor
