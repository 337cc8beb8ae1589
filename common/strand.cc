#include "common/strand.h"

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "common/check.h"
#include "common/mutex.h"

namespace cohort {
namespace {

// The strand whose task this thread is running.
thread_local const void* current_strand = nullptr;

// What was posted during a batch is the next one.  So many are run without a
// word to the executor, which wakes a thread for each.
constexpr int kBatchesATurn = 4;

}  // namespace

class Strand::State : public std::enable_shared_from_this<State> {
 public:
  explicit State(Executor& executor) : executor_(executor) {}

  void Post(Task task);
  void Dispatch(Task task);
  void PostAfter(absl::Duration delay, Task task);
  bool Held() const { return current_strand == this; }
  void Drain();
  void Stop();

 private:
  // One visit to a thread of the executor.  Destroyed without having run when
  // the executor stopped: then nothing will ever run the queue again.
  class Turn {
   public:
    explicit Turn(std::shared_ptr<State> state) : state_(std::move(state)) {}
    Turn(Turn&&) = default;
    ~Turn() {
      if (state_ != nullptr) state_->Stop();
    }

    void operator()() { std::exchange(state_, nullptr)->RunTurn(); }

   private:
    std::shared_ptr<State> state_;
  };

  void RunTurn();
  void RunBatch(std::vector<Task>& batch);
  // Whether another batch waits; when none does the turn is over.
  bool EndBatch();
  void FireTimer(uint64_t timer);

  Executor& executor_;

  mutable Mutex mutex_;
  CondVar idle_;
  std::vector<Task> queue_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Task> timers_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_timer_ ABSL_GUARDED_BY(mutex_) = 0;
  // A turn is posted or running; running.
  bool has_turn_ ABSL_GUARDED_BY(mutex_) = false;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  // Written under the mutex, read without it between two tasks of a batch.
  std::atomic<bool> stopped_{false};
};

void Strand::State::Post(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    queue_.push_back(std::move(task));
    if (has_turn_) return;
    has_turn_ = true;
  }
  executor_.Post(Turn(shared_from_this()));
}

void Strand::State::Dispatch(Task task) {
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    if (has_turn_) {
      queue_.push_back(std::move(task));
      return;
    }
    has_turn_ = true;
    running_ = true;
  }
  std::vector<Task> batch;
  batch.push_back(std::move(task));
  RunBatch(batch);
  // The caller's thread is lent for its own task only.
  if (EndBatch()) executor_.Post(Turn(shared_from_this()));
}

void Strand::State::PostAfter(absl::Duration delay, Task task) {
  if (delay <= absl::ZeroDuration()) return Post(std::move(task));
  uint64_t timer = 0;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    timer = next_timer_++;
    timers_.emplace(timer, std::move(task));
  }
  // Weak: a far timer must not keep the state of a strand that is gone.
  executor_.PostAfter(delay, [weak = weak_from_this(), timer] {
    if (const std::shared_ptr<State> state = weak.lock()) {
      state->FireTimer(timer);
    }
  });
}

void Strand::State::FireTimer(uint64_t timer) {
  Task task;
  {
    MutexLock lock(mutex_);
    const auto found = timers_.find(timer);
    if (found == timers_.end()) return;
    task = std::move(found->second);
    timers_.erase(found);
  }
  Post(std::move(task));
}

void Strand::State::RunTurn() {
  for (int i = 0; i < kBatchesATurn; ++i) {
    std::vector<Task> batch;
    {
      MutexLock lock(mutex_);
      batch.swap(queue_);
      running_ = true;
    }
    RunBatch(batch);
    if (!EndBatch()) return;
  }
  // Behind whatever else waits for the executor: a busy strand must not starve
  // the others.
  executor_.Post(Turn(shared_from_this()));
}

bool Strand::State::EndBatch() {
  MutexLock lock(mutex_);
  running_ = false;
  has_turn_ = !stopped_ && !queue_.empty();
  if (!has_turn_) idle_.SignalAll();
  return has_turn_;
}

void Strand::State::RunBatch(std::vector<Task>& batch) {
  // Saved, since a task may step a ManualExecutor that runs another strand.
  const void* const outer = std::exchange(current_strand, this);
  for (Task& task : batch) {
    if (stopped_) break;
    std::move(task)();
    // Now, not with the batch: what it holds may matter to the next one.
    task = nullptr;
  }
  batch.clear();
  current_strand = outer;
}

void Strand::State::Drain() {
  COHORT_CHECK(!Held()) << "a strand cannot wait for itself";
  MutexLock lock(mutex_);
  while (has_turn_ && !stopped_) idle_.Wait(mutex_);
}

void Strand::State::Stop() {
  // Destroyed unlocked: what tasks hold may post here when it dies.
  std::vector<Task> queue;
  absl::flat_hash_map<uint64_t, Task> timers;
  MutexLock lock(mutex_);
  stopped_ = true;
  queue.swap(queue_);
  timers.swap(timers_);
  idle_.SignalAll();
  while (running_ && !Held()) idle_.Wait(mutex_);
}

Strand::Strand(Executor& executor)
    : state_(std::make_shared<State>(executor)) {}

Strand::~Strand() { Stop(); }

void Strand::Post(Task task) { state_->Post(std::move(task)); }

void Strand::Dispatch(Task task) { state_->Dispatch(std::move(task)); }

void Strand::PostAfter(absl::Duration delay, Task task) {
  state_->PostAfter(delay, std::move(task));
}

void Strand::AssertHeld() const {
  COHORT_CHECK(state_->Held()) << "not on the strand that guards this";
}

void Strand::Drain() { state_->Drain(); }

void Strand::Stop() { state_->Stop(); }

}  // namespace cohort
