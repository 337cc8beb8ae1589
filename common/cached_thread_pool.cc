#include "common/cached_thread_pool.h"

#include <utility>

namespace cohort {

CachedThreadPool::~CachedThreadPool() {
  std::vector<std::thread> threads;
  std::deque<Task> dropped;
  {
    MutexLock lock(mutex_);
    is_stopped_ = true;
    threads.swap(threads_);
    dropped.swap(ready_);
    changed_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

void CachedThreadPool::Post(Task task) {
  MutexLock lock(mutex_);
  ready_.push_back(std::move(task));
  if (ready_.size() > idle_ &&
      threads_.size() < static_cast<size_t>(threads_max_)) {
    threads_.emplace_back([this] { RunThread(); });
  } else {
    changed_.Signal();
  }
}

void CachedThreadPool::PostAfter(absl::Duration delay, Task task) {
  timers_.PostAfter(delay, [this, task = std::move(task)]() mutable {
    Post(std::move(task));
  });
}

void CachedThreadPool::RunThread() {
  Task task;
  while (Next(task)) {
    std::move(task)();
    task = nullptr;
  }
}

bool CachedThreadPool::Next(Task& task) {
  MutexLock lock(mutex_);
  ++idle_;
  while (ready_.empty() && !is_stopped_) changed_.Wait(mutex_);
  --idle_;
  if (is_stopped_) return false;
  task = std::move(ready_.front());
  ready_.pop_front();
  return true;
}

}  // namespace cohort
