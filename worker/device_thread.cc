#include "worker/device_thread.h"

#include <deque>
#include <thread>
#include <utility>

#include "common/mutex.h"
#include "common/real_clock.h"

namespace cohort::worker {

struct DeviceThread::State {
  explicit State(Executor& answers_to) : answers(answers_to) {}

  Executor& answers;  // until it is stopped
  Mutex mutex;
  CondVar changed;
  std::deque<Question> questions ABSL_GUARDED_BY(mutex);
  bool stopped ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

DeviceThread::DeviceThread(Executor& answers)
    : state_(std::make_shared<State>(answers)) {
  std::thread([state = state_] { Run(state); }).detach();
}

DeviceThread::~DeviceThread() { Stop(); }

void DeviceThread::Run(const std::shared_ptr<State>& state) {
  while (true) {
    Question question;
    {
      MutexLock lock(state->mutex);
      while (!state->stopped && state->questions.empty()) {
        state->changed.Wait(state->mutex);
      }
      if (state->stopped) break;
      question = std::move(state->questions.front());
      state->questions.pop_front();
    }
    Task answer = std::move(question)();
    MutexLock lock(state->mutex);
    if (state->stopped) break;
    state->answers.Post(std::move(answer));
  }
  MutexLock lock(state->mutex);
  state->ended = true;
  state->changed.SignalAll();
}

void DeviceThread::Ask(Question question) {
  MutexLock lock(state_->mutex);
  if (state_->stopped) return;
  state_->questions.push_back(std::move(question));
  state_->changed.SignalAll();
}

bool DeviceThread::Stop(absl::Duration timeout) {
  std::deque<Question> dropped;  // outside of the lock
  const absl::Duration until = MonotonicNow() + timeout;
  MutexLock lock(state_->mutex);
  state_->stopped = true;
  dropped.swap(state_->questions);
  state_->changed.SignalAll();
  while (!state_->ended) {
    if (!state_->changed.WaitUntil(state_->mutex, until)) break;
  }
  return state_->ended;
}

}  // namespace cohort::worker
