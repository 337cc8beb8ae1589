#include "rpc/local_call.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"

#include "common/check.h"
#include "common/mutex.h"
#include "rpc/transport.h"

namespace cohort::rpc {
namespace {

// Both ends of the call: its transport, and what cancels it.  Kept by itself
// until the Router has finished it.  Thread-safe.
class LocalCall final : public ServerTransport, public CallHandle::Target {
 public:
  LocalCall(Executor& where, Channel::Done done)
      : where_(where), done_(std::move(done)) {}

  void Start(const std::shared_ptr<LocalCall>& self, Router& router,
             CallInfo info, absl::string_view request) {
    self_ = self;
    std::shared_ptr<ServerCall> call = router.Accept(std::move(info), *this);
    if (!read_wanted_) return;  // refused
    {
      MutexLock lock(mutex_);
      call_ = call;
    }
    call->OnRead(request);
  }

  // ServerTransport.
  void StartRead() override { read_wanted_ = true; }
  void StartWrite(std::string /*message*/, bool /*more_follow*/) override {
    COHORT_CHECK(false) << "a unary call writes once, with Finish";
  }
  void Finish(Answer answer) override {
    // Last: nobody else may hold it.
    const std::shared_ptr<LocalCall> self = std::move(self_);
    CallResult result{.response = std::string(), .stamp = answer.stamp};
    if (answer.status.ok()) {
      result.response = std::move(answer.message).value_or("");
    } else {
      result.response = answer.status;
    }
    where_.Post(
        [done = std::move(done_), result = std::move(result)]() mutable {
          std::move(done)(std::move(result));
        });
  }

  // CallHandle::Target.
  void Cancel() override {
    std::shared_ptr<ServerCall> call;
    {
      MutexLock lock(mutex_);
      call = call_.lock();
    }
    if (call != nullptr) call->OnCancelled();
  }

 private:
  Executor& where_;
  Channel::Done done_;
  bool read_wanted_ = false;
  // Until Finish.
  std::shared_ptr<LocalCall> self_;
  Mutex mutex_;
  // The Router's; it ends with its last handler.
  std::weak_ptr<ServerCall> call_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

CallHandle CallLocally(Router& router, absl::string_view path,
                       const LocalCaller& caller, absl::string_view request,
                       CallOptions options, Executor& where,
                       Channel::Done done) {
  auto call = std::make_shared<LocalCall>(where, std::move(done));
  call->Start(call, router,
              {.path = path,
               .authorization = caller.authorization,
               .peer = caller.peer,
               .time_left = options.deadline},
              request);
  return CallHandle(call);
}

}  // namespace cohort::rpc
