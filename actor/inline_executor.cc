#include "actor/inline_executor.h"

#include <utility>

#include "rpc/fifo.h"

namespace cohort::actor {
namespace {

// What the tasks of this thread have posted; null while none runs.
thread_local rpc::Fifo<Task>* posted_here = nullptr;

}  // namespace

void InlineExecutor::Post(Task task) {
  if (posted_here != nullptr) return posted_here->Push(std::move(task));
  rpc::Fifo<Task> posted;
  posted_here = &posted;
  std::move(task)();
  task = nullptr;
  while (!posted.empty()) {
    Task next = posted.Pop();
    std::move(next)();
  }
  posted_here = nullptr;
}

void InlineExecutor::PostAfter(absl::Duration delay, Task task) {
  timers_.PostAfter(delay, std::move(task));
}

}  // namespace cohort::actor
