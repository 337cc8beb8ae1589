#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "actor/call_target.h"
#include "actor/task_options.h"

namespace cohort::actor {

// Who runs functions somewhere: a driver's TaskPool, or the process of a task,
// which asks its driver (TaskExecutor).  Thread-safe.
class TaskRunner : public CallCarrier {
 public:
  // Runs `function`, a name as in function.h that lives as long as the program.
  // `done` comes exactly once, on any thread, perhaps inside this call; it does
  // not block.  May block (TaskOptions::when_full).  Answers a number for
  // Cancel.
  virtual uint64_t Run(const char* function, std::string arguments,
                       const TaskOptions& options, CallTarget::Done done) = 0;
};

// That of this process; null: none.  Thread-safe.
std::shared_ptr<TaskRunner> ProcessTaskRunner();
void SetProcessTaskRunner(std::shared_ptr<TaskRunner> runner);

}  // namespace cohort::actor
