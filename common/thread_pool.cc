#include "common/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "common/check.h"

namespace cohort {
namespace {

thread_local const ThreadPool* current_pool = nullptr;

absl::Duration Now() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

ThreadPool::ThreadPool(int threads_max, absl::Duration spare_after)
    : threads_max_(static_cast<size_t>(threads_max)),
      spare_after_(spare_after),
      since_(Now()) {
  COHORT_CHECK(threads_max > 0);
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Post(Task task) {
  MutexLock lock(mutex_);
  // The parameter outlives the lock, so a refused task dies unlocked.
  if (stopped_) return;
  ready_.push_back(std::move(task));
  Wake(ready_.size());
}

void ThreadPool::PostAfter(absl::Duration delay, Task task) {
  if (delay <= absl::ZeroDuration()) return Post(std::move(task));
  const absl::Duration due = Now() + delay;
  MutexLock lock(mutex_);
  if (stopped_) return;
  const auto timer =
      timers_.emplace(TimerKey(due, next_timer_++), std::move(task)).first;
  if (timer != timers_.begin()) return;
  // Only a new first timer changes when somebody must wake; all of them, since
  // a single signal may reach a thread that does not watch the timers.
  Wake(ready_.size() + 1);
  changed_.SignalAll();
}

void ThreadPool::Wake(size_t idle) {
  if (idle_ >= idle || threads_.size() == threads_max_) {
    return changed_.Signal();
  }
  const auto self = threads_.emplace(threads_.end());
  try {
    *self = std::thread([this, self] { RunThread(self); });
    ++idle_;
  } catch (const std::system_error& error) {  // the others do it, later
    threads_.erase(self);
    COHORT_CHECK(!threads_.empty())
        << "no thread can be made: " << error.what();
    changed_.Signal();
  }
}

void ThreadPool::Stop() {
  COHORT_CHECK(current_pool != this) << "a pool cannot stop itself from a task";
  std::deque<Task> ready;
  std::map<TimerKey, Task> timers;
  Threads threads;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    ready.swap(ready_);
    timers.swap(timers_);
    threads.swap(threads_);
    if (ended_.joinable()) threads.push_back(std::move(ended_));
    changed_.SignalAll();
  }
  for (std::thread& thread : threads) thread.join();
}

size_t ThreadPool::threads() {
  MutexLock lock(mutex_);
  return threads_.size();
}

void ThreadPool::RunThread(Threads::iterator self) {
  current_pool = this;
  Task task;
  while (Next(self, task)) {
    std::move(task)();
    task = nullptr;  // what it holds goes before the wait
    MutexLock lock(mutex_);
    ++idle_;
  }
}

bool ThreadPool::Next(Threads::iterator self, Task& task) {
  MutexLock lock(mutex_);
  while (!stopped_) {
    const bool is_due =
        !timers_.empty() && timers_.begin()->first.first <= Now();
    if (is_due) {
      ready_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
    }
    if (!ready_.empty()) {
      task = std::move(ready_.front());
      ready_.pop_front();
      --idle_;
      fewest_idle_ = std::min(fewest_idle_, idle_);
      // Nobody was woken for the timer that is due, where an older task goes
      // before it; and a thread that takes the last place at the timers may
      // leave it unwatched.
      const bool is_unwatched = !timer_watched_ && !timers_.empty();
      if ((is_due && !ready_.empty()) || is_unwatched) {
        Wake(ready_.size() + (is_unwatched ? 1 : 0));
      }
      return true;
    }
    if (IsSpare(self)) return false;
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

bool ThreadPool::IsSpare(Threads::iterator self) {
  const absl::Duration now = Now();
  if (now - since_ < spare_after_) return false;
  // One more than was needed watches the timers.
  const bool is_spare = fewest_idle_ > 1;
  since_ = now;
  fewest_idle_ = is_spare ? idle_ - 1 : idle_;
  if (!is_spare) return false;
  --idle_;
  if (ended_.joinable()) ended_.join();
  ended_ = std::move(*self);
  threads_.erase(self);
  return true;
}

}  // namespace cohort
