#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"

#include "common/mutex.h"

namespace cohort::trainer {

// An operation of a communicator that was started (trainer/comm/comm.h).
// Thread-compatible.
class CommWork {
 public:
  CommWork(CommWork&&) = default;
  // Waits for the one that it had.
  CommWork& operator=(CommWork&& other) noexcept;
  ~CommWork();

  // Returns when it is over, with what calling the operation would have
  // returned; again that when it is called again.
  absl::Status Wait();
  // Whether Wait would return at once.
  bool IsOver() const;

 private:
  friend class CommWorkThread;
  struct State;
  explicit CommWork(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;  // shared with the thread that does it
};

// Does works one after another on a thread.  Thread-compatible.
class CommWorkThread {
 public:
  CommWorkThread();
  // REQUIRES: none is under way.
  ~CommWorkThread();

  CommWork Start(std::function<absl::Status()> work);
  // Until all are over.
  void Settle();
  bool IsIdle();

 private:
  struct Item {
    std::function<absl::Status()> work;
    std::shared_ptr<CommWork::State> state;
  };

  void Loop();

  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);  // the first one runs
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cohort::trainer
