#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/arena.h"

#include "common/check.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "rpc/incoming_call.h"
#include "rpc/reply.h"

namespace cohort::rpc {
namespace {

// A request and where its parts lie: most take no memory but this.
class Request {
 public:
  explicit Request(const Router::Method& method)
      : arena_(block_, sizeof(block_)), message_(method.new_message(&arena_)) {}

  Router::Message& operator*() { return *message_; }
  Router::Message* operator->() { return message_; }

 private:
  alignas(8) char block_[2048];
  google::protobuf::Arena arena_;
  Router::Message* const message_;  // the arena's
};

class UnaryCall final : public IncomingCall,
                        public ReplySink,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  UnaryCall(std::shared_ptr<RouterCore> router_core, Admitted admitted,
            const CallInfo& info, ServerTransport& transport)
      : IncomingCall(std::move(router_core), std::move(admitted), info,
                     transport),
        lends_thread_(info.lends_thread) {}

  void Start() override {
    MutexLock lock(mutex_);
    transport_->StartRead();
  }

  // ServerCall.
  void OnRead(std::optional<absl::string_view> message) override;
  void OnWriteDone(bool /*ok*/) override {}  // Finish carries the response.
  void OnCancelled() override;
  void Abandon() override;

  // IncomingCall.
  void End(absl::Status status) override;

  // ReplySink.
  void Send(const google::protobuf::MessageLite& response) override;
  void SendError(const absl::Status& status) override;
  void Dropped() override;

 private:
  // The handler's turn.  Dropped unrun, as by a strand that has stopped, it
  // answers for the handler.
  class Turn {
   public:
    Turn(std::shared_ptr<UnaryCall> call, std::unique_ptr<Request> request)
        : call_(std::move(call)), request_(std::move(request)) {}
    Turn(Turn&&) = default;
    ~Turn() {
      if (call_ == nullptr) return;
      call_->Finish(absl::UnavailableError("the server is shutting down"),
                    std::nullopt);
    }

    void operator()() && {
      const std::shared_ptr<UnaryCall> call = std::move(call_);
      call->RunHandler(**request_);
    }

   private:
    std::shared_ptr<UnaryCall> call_;
    std::unique_ptr<Request> request_;
  };

  void RunHandler(const Router::Message& request);
  // Unless the call has ended.
  void Finish(absl::Status status, std::optional<std::string> message);

  const bool lends_thread_;
};

void UnaryCall::OnRead(std::optional<absl::string_view> message) {
  if (!message.has_value()) {
    Finish(absl::InvalidArgumentError(
               absl::StrCat(method().path, " got no request")),
           std::nullopt);
    return;
  }
  if (message->size() > core().options().message_bytes_max) {
    Finish(absl::ResourceExhaustedError(absl::StrCat(
               "a request of ", message->size(), " bytes to ", method().path,
               " is over the limit of ", core().options().message_bytes_max)),
           std::nullopt);
    return;
  }
  auto request = std::make_unique<Request>(method());
  if (!(*request)->ParseFromArray(message->data(),
                                  static_cast<int>(message->size()))) {
    Finish(absl::InvalidArgumentError(absl::StrCat(
               "the request to ", method().path, " cannot be decoded")),
           std::nullopt);
    return;
  }
  Turn turn(shared_from_this(), std::move(request));
  if (lends_thread_) {
    Dispatch(std::move(turn));
  } else {
    Post(std::move(turn));
  }
}

void UnaryCall::RunHandler(const Router::Message& request) {
  if (IsLate()) {
    Finish(absl::DeadlineExceededError(
               "the call's deadline passed while it was queued"),
           std::nullopt);
  }
  {
    MutexLock lock(mutex_);
    if (transport_ == nullptr) return;  // RT-2.
  }
  if (method().is_audited && core().around() != nullptr) {
    core().around()(method(), shared_from_this(), request, shared_from_this());
  } else {
    method().handler(shared_from_this(), request, shared_from_this());
  }
}

void UnaryCall::OnCancelled() {
  End(CancelStatus(absl::CancelledError("the caller cancelled or went away")));
}

void UnaryCall::End(absl::Status status) {
  absl::AnyInvocable<void() &&> callback;
  {
    MutexLock lock(mutex_);
    if (transport_ == nullptr) return;
    callback = CancelLocked();
    FinishLocked(std::move(status), std::nullopt);
  }
  PostUnlessNull(std::move(callback));
}

void UnaryCall::Abandon() {
  absl::AnyInvocable<void() &&> dropped;
  MutexLock lock(mutex_);
  dropped = CancelLocked();
  transport_ = nullptr;
}

void UnaryCall::Send(const google::protobuf::MessageLite& response) {
  std::string bytes;
  if (!response.SerializeToString(&bytes)) {
    COHORT_BUG(absl::StrCat("unserialisable response on ", method().path));
    Finish(absl::InternalError("the response cannot be encoded"), std::nullopt);
    return;
  }
  if (bytes.size() > core().options().message_bytes_max) {
    Finish(absl::ResourceExhaustedError(absl::StrCat(
               "the response of ", bytes.size(), " bytes on ", method().path,
               " is over the limit of ", core().options().message_bytes_max)),
           std::nullopt);
    return;
  }
  Finish(absl::OkStatus(), std::move(bytes));
}

void UnaryCall::SendError(const absl::Status& status) {
  Finish(status, std::nullopt);
}

void UnaryCall::Dropped() {
  {
    MutexLock lock(mutex_);
    if (transport_ == nullptr) return;
  }
  COHORT_BUG(absl::StrCat("a handler of ", method().path,
                          " dropped its reply unanswered"));
  Finish(absl::InternalError("the handler gave no answer"), std::nullopt);
}

void UnaryCall::Finish(absl::Status status,
                       std::optional<std::string> message) {
  absl::AnyInvocable<void() &&> dropped;
  MutexLock lock(mutex_);
  if (transport_ == nullptr) return;
  std::swap(dropped, on_cancel_);
  FinishLocked(std::move(status), std::move(message));
}

}  // namespace

std::shared_ptr<IncomingCall> NewUnaryCall(std::shared_ptr<RouterCore> core,
                                           Admitted admitted,
                                           const CallInfo& info,
                                           ServerTransport& transport) {
  return std::make_shared<UnaryCall>(std::move(core), std::move(admitted), info,
                                     transport);
}

}  // namespace cohort::rpc
