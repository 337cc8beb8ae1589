#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"

#include "actor/call_target.h"
#include "actor/task_options.h"
#include "actor/task_pool.h"
#include "common/job_id.h"

// What TaskPool keeps of tasks and of executors, by the shape of their
// resources.  Plain data; guarded by the pool.
namespace cohort::actor {

struct TaskShape;

struct WaitingTask {
  uint64_t id = 0;
  const char* function = nullptr;
  std::string arguments;
  size_t bytes = 0;  // of the arguments, which may be gone
  int retries_left = 0;
  bool retries_exceptions = false;
  TaskShape* shape = nullptr;
  CallTarget::Done done;  // null: it has an end
  // Whose task asked for it, and how that calls it; 0: the program.
  uint64_t asker = 0;
  uint64_t ask = 0;
  bool is_sent = false;
  // Where it was sent, how often it was, and the call that the last time became
  // (0: not yet).  Then that is told the notice.
  uint64_t lease = 0;
  uint64_t sendings = 0;
  uint64_t call = 0;
  CallNotice notice = CallNotice::kNone;
};
using TaskRef = std::shared_ptr<WaitingTask>;

enum class ExecutorState { kAsked, kStarting, kServing, kClosing };

// An executor.
struct ExecutorLease {
  uint64_t number = 0;
  TaskShape* shape = nullptr;
  ExecutorState state = ExecutorState::kAsked;
  JobId id;
  std::shared_ptr<CallTarget> target;
  int sent = 0;            // tasks that it has
  size_t sent_bytes = 0;   // their arguments
  int sent_max = 1;        // by how long its tasks take
  int waiting = 0;         // of them, that wait for futures, as it told last
  bool is_killed = false;  // it ends, whatever it does
  size_t asked_for = 0;    // tasks that its tasks run and have no end
  // On the monotonic clock.
  absl::Duration since;  // it has served
  absl::Duration idle_since;
  absl::Duration busy_since;  // its last result, or its first task
  double task_seconds = 0;    // moving mean; 0: not known
};

// What tasks need of an executor.
struct TaskShape {
  TaskOptions options;
  std::deque<TaskRef> waiting;  // those that ended are skipped
  size_t waiting_live = 0;
  std::list<ExecutorLease> leases;
  size_t asked = 0;  // of these, that do not serve yet
  // Its tasks run others: they are sent one at a time, as each may wait.
  bool nests = false;
  int start_failures = 0;
  absl::Duration ask_at;  // not before
  // Since when tasks wait and no executor serves; none: it is otherwise.
  std::optional<absl::Duration> unserved_since;
  uint64_t finished = 0;
  uint64_t failed = 0;
};

// Whether both ask for the same resources.
bool SameShape(const TaskOptions& a, const TaskOptions& b);
// "CPU: 1, GPU: 0.5": for people.
std::string ShapeText(const TaskOptions& options);

// Takes those that have ended out of what waits, once they are more than half
// of it and 64: each costs little then (TP-3).
void DropEnded(TaskShape& shape);

// Whether the executor may be sent one more: as much ahead as its tasks are
// short, and always one while all that it has wait (TP-4).
bool HasRoom(const ExecutorLease& lease);
// A result of it has come: how long its tasks take follows.
void NoteResult(absl::Duration now, const TaskPoolOptions& options,
                ExecutorLease& lease);

}  // namespace cohort::actor
