#include "actor/task_executor.h"

#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"

#include "actor/call_error.h"
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/method.h"
#include "actor/task_runner.h"
#include "actor/wait_observer.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

// Tasks of one process that have no result; more wait at Run.
constexpr size_t kOpenAsksMax = 10'000;
// Beside the arguments, in a message of one ask.
constexpr size_t kOverheadBytesMax = 64 << 10;
constexpr size_t kOptionsBytesMax = 32 << 10;
// Of one answer to Asked.
constexpr size_t kBatchBytesMax = 1 << 20;

}  // namespace

class TaskExecutor::Asking final : public TaskRunner {
 public:
  uint64_t Run(const char* function, std::string arguments,
               const TaskOptions& options, CallTarget::Done done) override {
    absl::Status refusal = CheckSize(arguments, options);
    if (refusal.ok()) refusal = AwaitRoom(options.when_full);
    if (!refusal.ok()) {
      std::move(done)(std::move(refusal));
      return 0;
    }
    MutexLock lock(mutex_);
    done_.emplace(++last_, std::move(done));
    asks_.push_back({.id = last_,
                     .function = function,
                     .arguments = std::move(arguments),
                     .options = options});
    asked_.SignalAll();
    return last_;
  }

  void Cancel(uint64_t id) override {
    CallTarget::Done done = Take(id);
    if (done == nullptr) return;
    std::move(done)(CallCancelled());
    MutexLock lock(mutex_);
    const size_t untold =
        std::erase_if(asks_, [id](const TaskAsk& ask) { return ask.id == id; });
    if (untold == 0) cancels_.push_back(id);
    asked_.SignalAll();
  }
  void ForceCancel(uint64_t id) override {
    Cancel(id);
    // One that was never told is unknown to the driver, too.
    MutexLock lock(mutex_);
    force_cancels_.push_back(id);
    asked_.SignalAll();
  }

  void AddWaiting(int change) {
    MutexLock lock(mutex_);
    waiting_ += change;
    asked_.SignalAll();
  }

  TaskAsks Asked(bool is_first) {
    if (is_first) ForgetTold();
    TaskAsks asks;
    MutexLock lock(mutex_);
    const uint64_t call = ++asked_call_;
    asked_.SignalAll();
    while (!HasToTell() && asked_call_ == call) asked_.Wait(mutex_);
    if (asked_call_ != call) return asks;
    told_waiting_ = waiting_;
    asks.waiting = waiting_;
    size_t bytes = 0;
    while (!asks_.empty()) {
      bytes += asks_.front().arguments.size() + asks_.front().function.size();
      if (!asks.run.empty() && bytes > kBatchBytesMax) break;
      asks.run.push_back(std::move(asks_.front()));
      asks_.pop_front();
    }
    // Those of tasks that go later would come too early.
    if (asks_.empty()) {
      asks.cancel.swap(cancels_);
      asks.force_cancel.swap(force_cancels_);
    }
    return asks;
  }

  void Answer(uint64_t id, const absl::StatusOr<std::string>& result) {
    CallTarget::Done done = Take(id);
    if (done != nullptr) std::move(done)(result);
  }

 private:
  bool HasToTell() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !asks_.empty() || !cancels_.empty() || !force_cancels_.empty() ||
           waiting_ != told_waiting_;
  }

  // Ends the asks that the former driver was told of: it will not answer.
  void ForgetTold() {
    std::vector<CallTarget::Done> lost;
    {
      MutexLock lock(mutex_);
      std::map<uint64_t, CallTarget::Done> untold;
      for (const TaskAsk& ask : asks_) {
        auto node = done_.extract(ask.id);
        if (!node.empty()) untold.insert(std::move(node));
      }
      done_.swap(untold);
      for (auto& [id, done] : untold) lost.push_back(std::move(done));
      told_waiting_ = 0;
      answered_.SignalAll();
    }
    for (CallTarget::Done& done : lost) std::move(done)(DriverLost());
  }

  static absl::Status DriverLost() {
    return SetReason(
        absl::UnavailableError(
            "the task may have run: the stream to the driver broke"),
        kReasonMayHaveRun);
  }

  static absl::Status CheckSize(const std::string& arguments,
                                const TaskOptions& options) {
    constexpr size_t kBytesMax = kArgumentsBytesMax - kOverheadBytesMax;
    if (arguments.size() > kBytesMax) {
      return TooLarge("arguments are", arguments.size(), kBytesMax);
    }
    COHORT_ASSIGN_OR_RETURN(const std::string needs, EncodeValue(options));
    if (needs.size() <= kOptionsBytesMax) return absl::OkStatus();
    return TooLarge("options are", needs.size(), kOptionsBytesMax);
  }

  // Several threads may find room at once: then a few more wait.
  absl::Status AwaitRoom(WhenFull when_full) {
    if (HasRoom()) return absl::OkStatus();
    if (when_full == WhenFull::kDontWait) return QueueFull(kOpenAsksMax);
    // Who waits here holds no place of a task that could run.
    WaitObserver* const observer = WaitObserver::OfThisThread();
    if (observer != nullptr) COHORT_RETURN_IF_ERROR(observer->OnWait());
    {
      MutexLock lock(mutex_);
      while (done_.size() >= kOpenAsksMax) answered_.Wait(mutex_);
    }
    if (observer != nullptr) observer->OnWaited();
    return absl::OkStatus();
  }

  bool HasRoom() {
    MutexLock lock(mutex_);
    return done_.size() < kOpenAsksMax;
  }

  // Null when it has an end.
  CallTarget::Done Take(uint64_t id) {
    MutexLock lock(mutex_);
    const auto at = done_.find(id);
    if (at == done_.end()) return nullptr;
    CallTarget::Done done = std::move(at->second);
    done_.erase(at);
    answered_.Signal();
    return done;
  }

  Mutex mutex_;
  CondVar asked_;
  CondVar answered_;
  // From anywhere: answers to a former process of this actor are unknown here.
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = SystemRandom().Uint64();
  std::map<uint64_t, CallTarget::Done> done_ ABSL_GUARDED_BY(mutex_);
  std::deque<TaskAsk> asks_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> cancels_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> force_cancels_ ABSL_GUARDED_BY(mutex_);
  uint64_t asked_call_ ABSL_GUARDED_BY(mutex_) = 0;  // the last one
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;          // tasks, for futures
  int told_waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

TaskExecutor::Task::Task(TaskExecutor& executor)
    : asking_(*executor.asking_),
      outer_(WaitObserver::OfThisThread()),
      here_(*this) {}

TaskExecutor::Task::~Task() = default;

absl::Status TaskExecutor::Task::OnWait() {
  if (outer_ != nullptr) COHORT_RETURN_IF_ERROR(outer_->OnWait());
  asking_.AddWaiting(1);
  return absl::OkStatus();
}

void TaskExecutor::Task::OnWaited() {
  asking_.AddWaiting(-1);
  if (outer_ != nullptr) outer_->OnWaited();
}

bool TaskExecutor::IsAsk(const std::string& method) {
  return method == AutoMethod<TaskExecutor, &TaskExecutor::Asked>::Name() ||
         method == AutoMethod<TaskExecutor, &TaskExecutor::Answer>::Name();
}

TaskExecutor::TaskExecutor() : asking_(std::make_shared<Asking>()) {
  SetProcessTaskRunner(asking_);
}

TaskExecutor::~TaskExecutor() { SetProcessTaskRunner(nullptr); }

TaskAsks TaskExecutor::Asked(bool is_first) { return asking_->Asked(is_first); }

void TaskExecutor::Answer(uint64_t id,
                          const absl::StatusOr<std::string>& result) {
  asking_->Answer(id, result);
}

}  // namespace cohort::actor
