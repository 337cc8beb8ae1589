#include "rpc/channel.h"

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/check.h"
#include "common/executor.h"
#include "common/mutex.h"

namespace cohort::rpc::internal {
namespace {

// Tasks run on the thread that waits for them.
class WaitingThread final : public Executor {
 public:
  void Post(Task task) override {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    posted_.Signal();
  }

  void PostAfter(absl::Duration /*delay*/, Task /*task*/) override {
    COHORT_CHECK(false) << "a call's `where` gets no timers";
  }

  void RunOne() {
    Task task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty()) posted_.Wait(mutex_);
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    std::move(task)();
  }

 private:
  Mutex mutex_;
  CondVar posted_;
  std::deque<Task> tasks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

CallResult StartAndWait(Channel& channel, absl::string_view path,
                        std::string request, CallOptions options) {
  WaitingThread here;
  std::optional<CallResult> result;
  channel.StartUnary(path, std::move(request), options, here,
                     [&result](CallResult r) { result = std::move(r); });
  while (!result.has_value()) here.RunOne();
  return *std::move(result);
}

absl::Status Undecodable(absl::string_view path) {
  return absl::InternalError(absl::StrCat(
      "the server's message on ", path, " cannot be decoded: is it a cohort?"));
}

}  // namespace cohort::rpc::internal
