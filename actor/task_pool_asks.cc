// What executors and actors say, and what they ask for: TaskPool's part about
// processes.

#include <utility>

#include "actor/actor_end.h"
#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/codec.h"
#include "actor/handle.h"
#include "actor/method.h"
#include "actor/task_pool_core.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

// Executors that ended before they served, one after the other, before their
// tasks end.
constexpr int kStartFailuresMax = 3;

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
  if (target != nullptr) Ask(lease, target, /*is_first=*/true);
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
      Forget(*task);  // cancelled meanwhile
    } else if (!result.ok() && (IsWithdrawn(result.status()) ||
                                MayRetry(*task, result.status()))) {
      PutWaiting(task, /*first=*/true);
      Spread(shape, work);
    } else {
      EndTask(*task, std::move(result), work);
      Forget(*task);
    }
    if (from != nullptr) Fill(*from, work);
    if (shape.waiting_live > 0) AskForMore(shape, work);
  });
}

void TaskPool::Core::Ask(uint64_t asker,
                         const std::shared_ptr<CallTarget>& target,
                         bool is_first) {
  // A truth value can be encoded.
  target->Call(AskedMethod(), WriteParameters(is_first).value_or(""),
               [self = shared_from_this(), asker,
                target](const absl::StatusOr<std::string>& bytes) {
                 self->OnAsked(asker, target, bytes);
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
    if (found == nullptr && !actors_.contains(lease)) return;
    if (!asks.ok()) {
      if (found != nullptr) return Close(*found, work);
      is_there = MaybeForget(lease, asks.status(), work);
      return;
    }
    is_there = true;
    if (found != nullptr) found->waiting = asks->waiting;
    for (TaskAsk& ask : asks->run) RunAsked(lease, std::move(ask), work);
    for (const uint64_t ask : asks->cancel) {
      CancelAsked(lease, ask, /*by_force=*/false, work);
    }
    for (const uint64_t ask : asks->force_cancel) {
      CancelAsked(lease, ask, /*by_force=*/true, work);
    }
    if (found != nullptr) Fill(*found, work);
  });
  if (is_there) Ask(lease, target, /*is_first=*/!asks.ok());
}

bool TaskPool::Core::MaybeForget(uint64_t actor, const absl::Status& why,
                                 Work& work) {
  DropAsked(actor, work);
  // The next process of the actor may ask, and so may this one by another
  // stream.
  if (GetReason(why) == kReasonMayHaveRun) return true;
  actors_.erase(actor);
  return false;
}

void TaskPool::Core::RunAsked(uint64_t lease, TaskAsk ask, Work& work) {
  if (ExecutorLease* const by = Find(lease)) {
    ++by->asked_for;
    by->shape->nests = true;
    // It may wait for what it asked for, and have no place to run it but its
    // own.
    if (by->state == ExecutorState::kClosing && !by->is_killed) {
      by->state = ExecutorState::kServing;
    }
  }
  WaitingTask task;
  task.asker = lease;
  task.ask = ask.id;
  task.function = KeptText(ask.function);
  task.arguments = std::move(ask.arguments);
  task.done = [weak = weak_from_this(), lease,
               id = ask.id](const absl::StatusOr<std::string>& result) {
    if (const auto self = weak.lock()) self->Answer(lease, id, result);
  };
  const uint64_t id = Add(std::move(task), ask.options, /*first=*/true, work);
  // 0: it has its end already.
  if (id != 0) asked_[{lease, ask.id}] = id;
}

void TaskPool::Core::CancelAsked(uint64_t asker, uint64_t ask, bool by_force,
                                 Work& work) {
  const auto asked = asked_.find({asker, ask});
  if (asked == asked_.end()) return;
  const auto at = tasks_.find(asked->second);
  if (at != tasks_.end()) CancelTask(TaskRef(at->second), by_force, work);
}

// Nobody waits for what it asked for.
void TaskPool::Core::DropAsked(uint64_t asker, Work& work) {
  std::vector<TaskRef> tasks;
  for (auto it = asked_.lower_bound({asker, 0});
       it != asked_.end() && it->first.first == asker; ++it) {
    const auto at = tasks_.find(it->second);
    if (at != tasks_.end()) tasks.push_back(at->second);
  }
  for (const TaskRef& task : tasks) CancelTask(task, /*by_force=*/false, work);
}

void TaskPool::Core::Answer(uint64_t lease, uint64_t ask,
                            const absl::StatusOr<std::string>& result) {
  std::shared_ptr<CallTarget> target;
  After([&](Work& work) {
    AssertLocked();
    if (const auto actor = actors_.find(lease); actor != actors_.end()) {
      target = actor->second;
    }
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
  // Its waiter is gone when it cannot be brought.
  if (answer.ok()) target->Call(AnswerMethod(), *answer, [](const auto&) {});
}

}  // namespace cohort::actor
