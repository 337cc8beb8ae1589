#include "common/thread_pool.h"

#include <chrono>

#include "common/check.h"

namespace cohort {
namespace {

thread_local const ThreadPool* current_pool = nullptr;

absl::Duration Now() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  COHORT_CHECK(threads > 0);
  threads_.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { RunThread(); });
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Post(Task task) {
  MutexLock lock(mutex_);
  // The parameter outlives the lock, so a refused task dies unlocked.
  if (stopped_) return;
  ready_.push_back(std::move(task));
  changed_.Signal();
}

void ThreadPool::PostAfter(absl::Duration delay, Task task) {
  if (delay <= absl::ZeroDuration()) return Post(std::move(task));
  const absl::Duration due = Now() + delay;
  MutexLock lock(mutex_);
  if (stopped_) return;
  const auto timer =
      timers_.emplace(TimerKey(due, next_timer_++), std::move(task)).first;
  // Only a new first timer changes when somebody must wake; all of them, since
  // a single signal may reach a thread that does not watch the timers.
  if (timer == timers_.begin()) changed_.SignalAll();
}

void ThreadPool::Stop() {
  COHORT_CHECK(current_pool != this) << "a pool cannot stop itself from a task";
  std::deque<Task> ready;
  std::map<TimerKey, Task> timers;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    ready.swap(ready_);
    timers.swap(timers_);
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ThreadPool::RunThread() {
  current_pool = this;
  while (true) {
    Task task;
    if (!Next(task)) return;
    std::move(task)();
  }
}

bool ThreadPool::Next(Task& task) {
  MutexLock lock(mutex_);
  while (!stopped_) {
    if (!timers_.empty() && timers_.begin()->first.first <= Now()) {
      ready_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (!ready_.empty()) {
      task = std::move(ready_.front());
      ready_.pop_front();
      // A thread that takes the last place at the timers may leave it
      // unwatched.
      if (!timer_watched_ && !timers_.empty()) changed_.Signal();
      return true;
    }
    if (timers_.empty() || timer_watched_) {
      changed_.Wait(mutex_);
    } else {
      timer_watched_ = true;
      changed_.WaitUntil(mutex_, timers_.begin()->first.first);
      timer_watched_ = false;
    }
  }
  return false;
}

}  // namespace cohort
