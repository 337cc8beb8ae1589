#include "trainer/comm/comm_work.h"

#include <optional>
#include <utility>

#include "common/check.h"

namespace cohort::trainer {

struct CommWork::State {
  Mutex mutex;
  CondVar changed;
  std::optional<absl::Status> end ABSL_GUARDED_BY(mutex);
};

CommWork& CommWork::operator=(CommWork&& other) noexcept {
  if (state_ != nullptr) Wait().IgnoreError();
  state_ = std::move(other.state_);
  return *this;
}

CommWork::~CommWork() {
  if (state_ != nullptr) Wait().IgnoreError();
}

absl::Status CommWork::Wait() {
  MutexLock lock(state_->mutex);
  while (!state_->end.has_value()) state_->changed.Wait(state_->mutex);
  return *state_->end;
}

bool CommWork::IsOver() const {
  MutexLock lock(state_->mutex);
  return state_->end.has_value();
}

CommWorkThread::CommWorkThread() : thread_([this] { Loop(); }) {}

CommWorkThread::~CommWorkThread() {
  {
    MutexLock lock(mutex_);
    COHORT_CHECK(queue_.empty())
        << "a communicator went before its works were waited for";
    is_over_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

CommWork CommWorkThread::Start(std::function<absl::Status()> work) {
  auto state = std::make_shared<CommWork::State>();
  MutexLock lock(mutex_);
  queue_.push_back({std::move(work), state});
  changed_.SignalAll();
  return CommWork(std::move(state));
}

void CommWorkThread::Settle() {
  MutexLock lock(mutex_);
  while (!queue_.empty()) changed_.Wait(mutex_);
}

bool CommWorkThread::IsIdle() {
  MutexLock lock(mutex_);
  return queue_.empty();
}

void CommWorkThread::Loop() {
  for (;;) {
    Item item;
    {
      MutexLock lock(mutex_);
      while (queue_.empty() && !is_over_) changed_.Wait(mutex_);
      if (queue_.empty()) return;
      item = queue_.front();
    }
    absl::Status end = item.work();
    {
      // First, so that who has waited for the last one finds none.
      MutexLock lock(mutex_);
      queue_.pop_front();
      changed_.SignalAll();
    }
    MutexLock lock(item.state->mutex);
    item.state->end = std::move(end);
    item.state->changed.SignalAll();
  }
}

}  // namespace cohort::trainer
