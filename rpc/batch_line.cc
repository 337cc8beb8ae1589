#include "rpc/batch_line.h"

#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"

#include "common/mutex.h"
#include "rpc/fifo.h"

namespace cohort::rpc {

class BatchLine::Waiting {
 public:
  explicit Waiting(Executor& strand) : strand_(strand) {}

  Executor& strand() { return strand_; }

  // True when a burst is to be posted for it: none is.
  bool Add(Task task) {
    MutexLock lock(mutex_);
    tasks_.Push(std::move(task));
    return !std::exchange(posted_, true);
  }

  // The first ones; a burst is to be posted for the rest, if there is one.
  std::vector<Task> Take(bool& more) {
    std::vector<Task> first;
    MutexLock lock(mutex_);
    while (first.size() < kBurst && !tasks_.empty()) {
      first.push_back(tasks_.Pop());
    }
    more = posted_ = !tasks_.empty();
    return first;
  }

  // Everything that waits, to be destroyed by the caller.
  Fifo<Task> TakeAll() {
    MutexLock lock(mutex_);
    posted_ = false;
    return std::exchange(tasks_, {});
  }

 private:
  Executor& strand_;
  Mutex mutex_;
  bool posted_ ABSL_GUARDED_BY(mutex_) = false;
  Fifo<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

// Some tasks in a row, as one task of the strand.  Destroyed unrun, as by a
// strand that has stopped, it takes all that waits along.
class BatchLine::Burst {
 public:
  explicit Burst(std::shared_ptr<Waiting> waiting)
      : waiting_(std::move(waiting)) {}
  Burst(Burst&&) = default;
  Burst& operator=(Burst&&) = delete;
  ~Burst() {
    if (waiting_ != nullptr) waiting_->TakeAll();
  }

  void operator()() && {
    const std::shared_ptr<Waiting> waiting = std::move(waiting_);
    bool more = false;
    std::vector<Task> tasks = waiting->Take(more);
    for (Task& task : tasks) {
      std::move(task)();
      task = nullptr;  // now: what it holds may matter to the next one
    }
    if (more) waiting->strand().Post(Burst(waiting));
  }

 private:
  std::shared_ptr<Waiting> waiting_;  // null once it ran
};

BatchLine::BatchLine(Executor& strand, absl::Duration delay)
    : delay_(delay), waiting_(std::make_shared<Waiting>(strand)) {}

void BatchLine::Post(Task task) {
  if (waiting_->Add(std::move(task))) {
    waiting_->strand().PostAfter(delay_, Burst(waiting_));
  }
}

}  // namespace cohort::rpc
