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
  bool runs ABSL_GUARDED_BY(mutex) = false;  // the thread
};

DeviceThread::DeviceThread(Executor& answers)
    : state_(std::make_shared<State>(answers)) {}

DeviceThread::~DeviceThread() { Stop(); }

void DeviceThread::Run(const std::shared_ptr<State>& state) {
  while (true) {
    Question question;
    {
      MutexLock lock(state->mutex);
      if (state->questions.empty()) {
        state->runs = false;
        return state->changed.SignalAll();
      }
      question = std::move(state->questions.front());
      state->questions.pop_front();
    }
    Task answer = std::move(question)();
    MutexLock lock(state->mutex);
    if (!state->stopped) state->answers.Post(std::move(answer));
  }
}

void DeviceThread::Ask(Question question) {
  MutexLock lock(state_->mutex);
  if (state_->stopped) return;
  state_->questions.push_back(std::move(question));
  if (state_->runs) return;
  state_->runs = true;
  std::thread([state = state_] { Run(state); }).detach();
}

bool DeviceThread::Stop(absl::Duration timeout) {
  std::deque<Question> dropped;  // outside of the lock
  const absl::Duration until = MonotonicNow() + timeout;
  MutexLock lock(state_->mutex);
  state_->stopped = true;
  dropped.swap(state_->questions);
  while (state_->runs) {
    if (!state_->changed.WaitUntil(state_->mutex, until)) break;
  }
  return !state_->runs;
}

}  // namespace cohort::worker
