#include "actor/task_runner.h"

#include <utility>

#include "common/mutex.h"

namespace cohort::actor {
namespace {

struct Holder {
  Mutex mutex;
  std::shared_ptr<TaskRunner> runner ABSL_GUARDED_BY(mutex);
};

// Never ended: threads may ask until the program is gone.
Holder& ThisProcess() {
  static auto* const holder = new Holder;
  return *holder;
}

}  // namespace

std::shared_ptr<TaskRunner> ProcessTaskRunner() {
  Holder& holder = ThisProcess();
  MutexLock lock(holder.mutex);
  return holder.runner;
}

void SetProcessTaskRunner(std::shared_ptr<TaskRunner> runner) {
  Holder& holder = ThisProcess();
  MutexLock lock(holder.mutex);
  holder.runner.swap(runner);
}

}  // namespace cohort::actor
