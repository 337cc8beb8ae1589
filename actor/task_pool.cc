#include "actor/task_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "actor/actor_end.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/group_tree.h"
#include "actor/option_check.h"
#include "actor/task_pool_core.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
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
constexpr absl::Duration kStartRetry = absl::Milliseconds(200);
constexpr absl::Duration kSweepEvery = absl::Milliseconds(50);

}  // namespace

void TaskPool::Core::Do(Work work) {
  for (Send& send : work.sends) SendTask(std::move(send));
  for (const Tell& tell : work.tells) tell.target->Tell(tell.call, tell.notice);
  for (const Kill& kill : work.kills) {
    const auto end = [weak = weak_from_this(), lease = kill.lease] {
      if (const auto self = weak.lock()) self->EndKilled(lease);
    };
    kill.target->Call(kFlushMethod, std::string(),
                      [end](const auto& /*heard*/) { end(); });
    timers_.PostAfter(options_.kill_after, end);
  }
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
  const uint64_t call =
      send.target->Call(send.task->function, std::move(send.arguments),
                        [self = shared_from_this(), lease = send.lease,
                         task = send.task](absl::StatusOr<std::string> result) {
                          self->OnResult(lease, task, std::move(result));
                        });
  CallNotice notice = CallNotice::kNone;
  {
    MutexLock lock(mutex_);
    // It may have ended, and been sent again.
    if (send.task->sendings != send.sending) return;
    send.task->call = call;
    notice = send.task->notice;
  }
  if (notice != CallNotice::kNone) send.target->Tell(call, notice);
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
  COHORT_RETURN_IF_ERROR(CheckOptions(options));
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

void TaskPool::Core::Cancel(uint64_t id, bool by_force) {
  After([&](Work& work) {
    AssertLocked();
    const auto at = tasks_.find(id);
    if (at != tasks_.end()) CancelTask(TaskRef(at->second), by_force, work);
  });
}

void TaskPool::Core::CancelTask(const TaskRef& task, bool by_force,
                                Work& work) {
  if (task->done != nullptr) EndTask(*task, CallCancelled(), work);
  if (!task->is_sent) return;
  ExecutorLease* const lease = Find(task->lease);
  if (lease == nullptr) return;
  if (by_force) {
    KillExecutor(*lease, work);
  } else {
    Notice(*task, CallNotice::kCancelled, work);
  }
}

std::pair<std::shared_ptr<CallTarget>, uint64_t> TaskPool::Core::PlaceOf(
    uint64_t task) {
  MutexLock lock(mutex_);
  const auto at = tasks_.find(task);
  if (at == tasks_.end() || !at->second->is_sent) return {};
  ExecutorLease* const lease = Find(at->second->lease);
  if (lease == nullptr) return {};
  return {lease->target, at->second->call};
}

std::string TaskPool::Core::WaitReason(uint64_t task) const {
  std::shared_ptr<CallTarget> starting;
  {
    MutexLock lock(mutex_);
    const auto at = tasks_.find(task);
    if (at == tasks_.end() || at->second->is_sent) return "";
    for (const ExecutorLease& lease : at->second->shape->leases) {
      if (lease.state == ExecutorState::kServing) return "";
      if (lease.state == ExecutorState::kStarting) starting = lease.target;
    }
  }
  return starting == nullptr ? "" : starting->WaitReason(0);
}

void TaskPool::Core::Notice(WaitingTask& task, CallNotice notice, Work& work) {
  task.notice = notice;
  if (task.call == 0) return;
  work.tells.push_back({Find(task.lease)->target, task.call, notice});
}

// What it has not begun goes elsewhere; then it is ended.
void TaskPool::Core::KillExecutor(ExecutorLease& lease, Work& work) {
  if (std::exchange(lease.is_killed, true)) return;
  lease.state = ExecutorState::kClosing;
  for (const auto& [id, task] : tasks_) {
    if (!task->is_sent || task->lease != lease.number) continue;
    if (task->done != nullptr) Notice(*task, CallNotice::kWithdrawn, work);
  }
  work.kills.push_back({lease.number, lease.target});
  AskForMore(*lease.shape, work);
}

void TaskPool::Core::EndKilled(uint64_t lease) {
  After([&](Work& work) {
    AssertLocked();
    ExecutorLease* const found = Find(lease);
    if (found != nullptr && !ended_.has_value()) work.ends.push_back(found->id);
  });
}

void TaskPool::Core::Serve(std::shared_ptr<CallTarget> actor) {
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    if (ended_.has_value()) return;
    number = ++last_lease_;
    actors_.emplace(number, actor);
  }
  Ask(number, actor, /*is_first=*/true);
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
    for (const auto& [id, task] : std::exchange(tasks_, {})) {
      if (task->done != nullptr) EndTask(*task, why, work);
    }
    actors_.clear();
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

// ---- Where tasks go. ----

ExecutorLease* TaskPool::Core::Find(uint64_t lease) {
  const auto at = leases_.find(lease);
  return at == leases_.end() ? nullptr : &*at->second;
}

void TaskPool::Core::PutWaiting(TaskRef task, bool first) {
  TaskShape& shape = *task->shape;
  task->is_sent = false;
  task->notice = CallNotice::kNone;
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
  task->lease = lease.number;
  task->call = 0;
  const uint64_t sending = ++task->sendings;
  // They are kept: one that is withdrawn goes elsewhere.
  std::string arguments = task->arguments;
  work.sends.push_back({lease.number, lease.target, std::move(task),
                        std::move(arguments), sending});
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
  // What was sent may be there yet.
  if (!task.is_sent) Forget(task);
  DropEnded(shape);
}

void TaskPool::Core::Forget(const WaitingTask& task) {
  tasks_.erase(task.id);
  asked_.erase({task.asker, task.ask});
}

void TaskPool::Core::EndWaiting(TaskShape& shape, const absl::Status& why,
                                Work& work) {
  const std::deque<TaskRef> waiting = std::exchange(shape.waiting, {});
  for (const TaskRef& task : waiting) {
    if (task->done == nullptr) continue;
    EndTask(*task, OfCall(why, task->function), work);
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
  DropAsked(number, work);
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

// A shape without an executor for so long: idle ones of others may have its
// room.
bool TaskPool::Core::NeedsRoom() {
  const absl::Duration now = clock_.Monotonic();
  bool needs = false;
  for (TaskShape& shape : shapes_) {
    const bool is_served =
        shape.waiting_live == 0 || shape.leases.size() > shape.asked;
    if (is_served) shape.unserved_since.reset();
    if (is_served) continue;
    if (!shape.unserved_since.has_value()) shape.unserved_since = now;
    needs = needs || now - *shape.unserved_since >= options_.wanted_idle;
  }
  return needs;
}

void TaskPool::Core::DropIdle(Work& work) {
  const bool is_wanted = NeedsRoom() || room_wanted_;
  const absl::Duration keep = is_wanted ? options_.wanted_idle : options_.idle;
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

void TaskPool::Cancel(uint64_t task) {
  core_->Cancel(task, /*by_force=*/false);
}

void TaskPool::ForceCancel(uint64_t task) {
  core_->Cancel(task, /*by_force=*/true);
}

void TaskPool::Look(uint64_t task, absl::FunctionRef<bool()> finished) {
  const auto [target, call] = core_->PlaceOf(task);
  if (target != nullptr) target->Look(call, finished);
}

std::string TaskPool::WaitReason(uint64_t task) const {
  return core_->WaitReason(task);
}

void TaskPool::Serve(std::shared_ptr<CallTarget> actor) {
  core_->Serve(std::move(actor));
}

void TaskPool::SetRoomWanted(bool wanted) { core_->SetRoomWanted(wanted); }

void TaskPool::End(const absl::Status& why) { core_->End(why); }

void TaskPool::Stop(const absl::Status& why) { core_->Stop(why); }

std::vector<v1::TaskCounts> TaskPool::Counts() const { return core_->Counts(); }

}  // namespace cohort::actor
