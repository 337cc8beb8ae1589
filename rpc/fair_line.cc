#include "rpc/fair_line.h"

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"

#include "common/mutex.h"

namespace cohort::rpc {

// What waits, by caller.
class FairLine::Lines {
 public:
  explicit Lines(Executor& strand) : strand_(strand) {}

  Executor& strand() { return strand_; }

  // True when a burst is to be posted for it: none is.
  bool Add(const std::string& caller, Task task) {
    MutexLock lock(mutex_);
    std::deque<Task>& line = by_caller_[caller];
    if (line.empty()) turns_.push_back(caller);
    line.push_back(std::move(task));
    return !std::exchange(posted_, true);
  }

  // The next task; none, and no burst is posted any more, when nothing waits.
  std::optional<Task> Take() {
    MutexLock lock(mutex_);
    if (turns_.empty()) {
      posted_ = false;
      return std::nullopt;
    }
    std::string caller = std::move(turns_.front());
    turns_.pop_front();
    const auto line = by_caller_.find(caller);
    Task task = std::move(line->second.front());
    line->second.pop_front();
    if (line->second.empty()) {
      by_caller_.erase(line);
    } else {
      turns_.push_back(std::move(caller));
    }
    return task;
  }

  // Everything that waits, to be destroyed by the caller.
  std::vector<std::deque<Task>> TakeAll() {
    MutexLock lock(mutex_);
    std::vector<std::deque<Task>> all;
    for (auto& [caller, line] : by_caller_) all.push_back(std::move(line));
    by_caller_.clear();
    turns_.clear();
    posted_ = false;
    return all;
  }

 private:
  Executor& strand_;
  Mutex mutex_;
  bool posted_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::deque<Task>> by_caller_
      ABSL_GUARDED_BY(mutex_);  // none is empty
};

// Some tasks in a row, as one task of the strand.  Destroyed unrun, as by a
// strand that has stopped, it takes all that waits along.
class FairLine::Burst {
 public:
  explicit Burst(std::shared_ptr<Lines> lines) : lines_(std::move(lines)) {}
  Burst(Burst&&) = default;
  Burst& operator=(Burst&&) = delete;
  ~Burst() {
    if (lines_ != nullptr) lines_->TakeAll();
  }

  void operator()() && {
    const std::shared_ptr<Lines> lines = std::move(lines_);
    for (int i = 0; i < kBurst; ++i) {
      std::optional<Task> task = lines->Take();
      if (!task.has_value()) return;
      (*std::move(task))();
    }
    lines->strand().Post(Burst(lines));
  }

 private:
  std::shared_ptr<Lines> lines_;  // null once it ran
};

FairLine::FairLine(Executor& strand)
    : lines_(std::make_shared<Lines>(strand)) {}

void FairLine::Post(const std::string& caller, Task task) {
  if (lines_->Add(caller, std::move(task))) {
    lines_->strand().Post(Burst(lines_));
  }
}

void FairLine::Dispatch(const std::string& caller, Task task) {
  if (lines_->Add(caller, std::move(task))) {
    lines_->strand().Dispatch(Burst(lines_));
  }
}

}  // namespace cohort::rpc
