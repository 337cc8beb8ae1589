#include "rpc/testing/loopback_call.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"

namespace cohort::rpc {
namespace {

// What of a status travels, as over gRPC.
absl::Status Carried(const absl::Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string reason = GetReason(status);
  absl::Status carried(status.code(), status.message());
  return reason.empty() ? carried : SetReason(std::move(carried), reason);
}

Answer Ended(absl::Status status) {
  return {.status = std::move(status),
          .message = std::nullopt,
          .stamp = std::nullopt};
}

}  // namespace

LoopbackCall::LoopbackCall(std::shared_ptr<LoopbackWires> wires,
                           std::shared_ptr<LoopbackConnection> connection,
                           Options options)
    : wires_(std::move(wires)),
      connection_(std::move(connection)),
      number_(wires_->NextNumber()),
      path_(std::move(options.path)),
      authorization_(std::move(options.authorization)),
      deadline_(wires_->clock().Monotonic() + options.deadline),
      response_bytes_max_(options.response_bytes_max),
      where_(*options.where),
      stream_(std::move(options.stream)),
      up_lane_(std::make_shared<LoopbackLane>(connection_, /*down=*/false)),
      down_lane_(std::make_shared<LoopbackLane>(connection_, /*down=*/true)),
      server_end_(*this),
      client_end_(*this),
      done_(std::move(options.done)) {}

void LoopbackCall::Begin(std::optional<std::string> request) {
  if (stream_ != nullptr) stream_->Start(client_end_);
  if (deadline_ != absl::InfiniteDuration()) {
    wires_->executor().PostAfter(deadline_ - wires_->clock().Monotonic(),
                                 [weak = weak_from_this()] {
                                   if (const auto self = weak.lock())
                                     self->DeadlinePassed();
                                 });
  }
  if (connection_ == nullptr ||
      !wires_->Register(*connection_, number_, shared_from_this())) {
    {
      MutexLock lock(mutex_);
      server_over_ = true;
    }
    wires_->executor().PostAfter(wires_->Refuse(), [self = shared_from_this()] {
      self->EndClient(
          Ended(absl::UnavailableError("nobody listens: connection refused")));
    });
    return;
  }
  Send(up_lane_, [](LoopbackCall& call) { call.OpenAtServer(); });
  if (!request.has_value()) return;
  Send(up_lane_, [message = *std::move(request)](LoopbackCall& call) mutable {
    call.MessageAtServer(std::move(message));
  });
}

void LoopbackCall::Cancel() {
  {
    MutexLock lock(mutex_);
    if (end_.has_value()) return;
  }
  if (connection_ != nullptr) {
    Send(up_lane_, [](LoopbackCall& call) { call.CancelAtServer(); });
  }
  EndClient(Ended(absl::CancelledError("the caller cancelled")));
}

void LoopbackCall::Broken(BreakKind kind) {
  std::shared_ptr<ServerCall> server;
  Channel::Done dropped;
  {
    MutexLock lock(mutex_);
    server = std::move(server_);
    server_over_ = true;
    if (kind == BreakKind::kClientKilled) {
      client_over_ = true;
      end_ = Ended(absl::CancelledError("the client was killed"));
      std::swap(dropped, done_);
    } else if (!end_.has_value()) {
      wires_->CountBroken(stream_ != nullptr, server_had_it_);
    }
    // One that has much to read hears of it later, and may write until then.
    if (stream_ != nullptr && !client_over_) unreleased_ = shared_from_this();
  }
  if (server != nullptr && kind == BreakKind::kServerKilled) server->Abandon();
  if (server != nullptr && kind != BreakKind::kServerKilled) {
    CancelServer(*server);
  }
  if (kind == BreakKind::kClientKilled) {
    if (stream_ != nullptr) stream_->Abandon();
    return;
  }
  EndClient(Ended(absl::UnavailableError("the connection broke")));
}

void LoopbackCall::ServerStartRead() {
  MutexLock lock(mutex_);
  up_.read_open = true;
  if (!up_.arrived.empty()) Post(&LoopbackCall::ReadAtServer);
}

void LoopbackCall::ServerStartWrite(std::string message) {
  MutexLock lock(mutex_);
  down_.write_open = true;
  down_.unread_bytes += message.size();
  if (down_.unread_bytes <= wires_->window_bytes()) {
    wires_->executor().Post(
        [self = shared_from_this()] { self->WriteDoneAtServer(true); });
  }
  Send(down_lane_, [message = std::move(message)](LoopbackCall& call) mutable {
    call.MessageAtClient(std::move(message));
  });
}

void LoopbackCall::ServerFinish(Answer answer) {
  {
    MutexLock lock(mutex_);
    server_over_ = true;
  }
  answer.status = Carried(answer.status);
  Send(down_lane_, [answer = std::move(answer)](LoopbackCall& call) mutable {
    call.EndClient(std::move(answer));
  });
  // The ServerCall may be in this call; it goes in a task.
  wires_->executor().Post([self = shared_from_this()] {
    std::shared_ptr<ServerCall> last;
    {
      MutexLock lock(self->mutex_);
      last = std::move(self->server_);
    }
    self->ForgetIfOver();
  });
}

void LoopbackCall::ClientStartRead() {
  MutexLock lock(mutex_);
  down_.read_open = true;
  if (!down_.arrived.empty() || end_.has_value()) {
    Post(&LoopbackCall::ReadAtClient);
  }
}

void LoopbackCall::ClientStartWrite(std::string message) {
  MutexLock lock(mutex_);
  up_.write_open = true;
  up_.unread_bytes += message.size();
  if (up_.unread_bytes <= wires_->window_bytes()) {
    wires_->executor().Post(
        [self = shared_from_this()] { self->WriteDoneAtClient(true); });
  }
  if (connection_ == nullptr) return;
  Send(up_lane_, [message = std::move(message)](LoopbackCall& call) mutable {
    call.MessageAtServer(std::move(message));
  });
}

void LoopbackCall::ClientStartHalfClose() {
  if (connection_ == nullptr) return;
  Send(up_lane_,
       [](LoopbackCall& call) { call.MessageAtServer(std::nullopt); });
}

void LoopbackCall::ClientStartCancel() {
  {
    MutexLock lock(mutex_);
    down_.arrived.clear();
    if (!end_.has_value()) {
      end_ = Ended(absl::CancelledError("the caller cancelled"));
    }
    if (down_.read_open) Post(&LoopbackCall::ReadAtClient);
  }
  if (connection_ == nullptr) return;
  Send(up_lane_, [](LoopbackCall& call) { call.CancelAtServer(); });
}

void LoopbackCall::ClientRelease() {
  std::shared_ptr<LoopbackCall> released;
  {
    MutexLock lock(mutex_);
    released = std::move(unreleased_);
  }
  Post(&LoopbackCall::EndStream);
}

template <typename Act>
void LoopbackCall::WithServer(Act act) {
  std::shared_ptr<ServerCall> server;
  {
    MutexLock lock(mutex_);
    if (server_over_) return;
    server = server_;
  }
  if (server == nullptr || wires_->BeginDelivery(*connection_) == nullptr) {
    return;
  }
  act(*server);
  wires_->EndDelivery(*connection_);
}

void LoopbackCall::OpenAtServer() {
  Router* const router = wires_->BeginDelivery(*connection_);
  if (router == nullptr) return;
  {
    MutexLock lock(mutex_);
    server_had_it_ = true;
  }
  std::shared_ptr<ServerCall> server =
      router->Accept({.path = path_,
                      .authorization = authorization_,
                      .peer = absl::StrCat("loopback:", connection_->client),
                      .time_left = deadline_ - wires_->clock().Monotonic()},
                     server_end_);
  {
    MutexLock lock(mutex_);
    if (!server_over_) std::swap(server_, server);
  }
  // Broke meanwhile, or finished at once and then this changes nothing.
  if (server != nullptr) CancelServer(*server);
  wires_->EndDelivery(*connection_);
}

void LoopbackCall::CancelServer(ServerCall& server) {
  server.OnCancelled();
  // Only now: it starts no write any more.
  bool write_open = false;
  {
    MutexLock lock(mutex_);
    write_open = std::exchange(down_.write_open, false);
  }
  if (write_open) server.OnWriteDone(false);
}

void LoopbackCall::MessageAtServer(std::optional<std::string> message) {
  {
    MutexLock lock(mutex_);
    if (server_over_) return;
    up_.arrived.push_back(std::move(message));
  }
  ReadAtServer();
}

void LoopbackCall::CancelAtServer() {
  WithServer([this](ServerCall& server) { CancelServer(server); });
}

void LoopbackCall::MessageAtClient(std::string message) {
  {
    MutexLock lock(mutex_);
    if (end_.has_value()) return;
    down_.arrived.push_back(std::move(message));
  }
  ReadAtClient();
}

void LoopbackCall::ReadAtServer() {
  std::optional<std::string> message;
  bool resume_writer = false;
  {
    MutexLock lock(mutex_);
    if (server_over_ || !up_.read_open || up_.arrived.empty()) return;
    up_.read_open = false;
    message = std::move(up_.arrived.front());
    up_.arrived.pop_front();
    if (message.has_value()) {
      const bool was_full = up_.unread_bytes > wires_->window_bytes();
      up_.unread_bytes -= message->size();
      resume_writer = was_full && up_.write_open &&
                      up_.unread_bytes <= wires_->window_bytes();
    }
  }
  WithServer([&message](ServerCall& server) {
    server.OnRead(message.has_value()
                      ? std::optional<absl::string_view>(*message)
                      : std::nullopt);
  });
  if (resume_writer) WriteDoneAtClient(true);
}

void LoopbackCall::ReadAtClient() {
  std::optional<std::string> message;
  bool resume_writer = false;
  {
    MutexLock lock(mutex_);
    if (!down_.read_open) return;
    if (!down_.arrived.empty()) {
      message = std::move(down_.arrived.front());
      down_.arrived.pop_front();
      const bool was_full = down_.unread_bytes > wires_->window_bytes();
      down_.unread_bytes -= message->size();
      resume_writer = was_full && down_.write_open &&
                      down_.unread_bytes <= wires_->window_bytes();
    } else if (!end_.has_value()) {
      return;
    }
    down_.read_open = false;
  }
  stream_->OnRead(std::move(message));
  if (resume_writer) WriteDoneAtServer(true);
}

void LoopbackCall::WriteDoneAtServer(bool ok) {
  {
    MutexLock lock(mutex_);
    if (!std::exchange(down_.write_open, false)) return;
  }
  WithServer([ok](ServerCall& server) { server.OnWriteDone(ok); });
}

void LoopbackCall::WriteDoneAtClient(bool ok) {
  {
    MutexLock lock(mutex_);
    if (!std::exchange(up_.write_open, false)) return;
  }
  stream_->OnWriteDone(ok);
}

void LoopbackCall::EndStream() {
  Answer end;
  {
    MutexLock lock(mutex_);
    unreleased_.reset();
    if (client_over_) return;
    client_over_ = true;
    end = end_.value_or(Ended(absl::CancelledError("the caller cancelled")));
  }
  stream_->OnEnded(std::move(end.status), std::move(end.stamp));
  ForgetIfOver();
}

void LoopbackCall::DeadlinePassed() {
  EndClient(Ended(absl::DeadlineExceededError("the call's deadline passed")));
  CancelAtServer();
}

void LoopbackCall::EndClient(Answer answer) {
  {
    MutexLock lock(mutex_);
    if (end_.has_value()) return;
    end_ = answer;
  }
  if (stream_ != nullptr) {
    ReadAtClient();
  } else {
    EndUnary(std::move(answer));
  }
}

void LoopbackCall::EndUnary(Answer answer) {
  Channel::Done done;
  {
    MutexLock lock(mutex_);
    if (client_over_) return;
    client_over_ = true;
    std::swap(done, done_);
  }
  CallResult result{absl::UnknownError("no answer"), std::move(answer.stamp)};
  if (!answer.status.ok()) {
    result.response = std::move(answer.status);
  } else if (answer.message->size() > response_bytes_max_) {
    result.response = absl::ResourceExhaustedError(
        absl::StrCat("the response of ", answer.message->size(),
                     " bytes is over the limit of ", response_bytes_max_));
  } else {
    result.response = *std::move(answer.message);
  }
  where_.Post([done = std::move(done), result = std::move(result)]() mutable {
    std::move(done)(std::move(result));
  });
  ForgetIfOver();
}

void LoopbackCall::ForgetIfOver() {
  {
    MutexLock lock(mutex_);
    if (!client_over_ || !server_over_ || server_ != nullptr) return;
  }
  if (connection_ != nullptr) wires_->Forget(*connection_, number_);
}

void LoopbackCall::Post(void (LoopbackCall::*task)()) {
  wires_->executor().Post(
      [self = shared_from_this(), task] { ((*self).*task)(); });
}

void LoopbackCall::Send(const std::shared_ptr<LoopbackLane>& lane,
                        Frame frame) {
  // Weak: the connection keeps the call while an end waits for a frame.
  wires_->Send(lane,
               [weak = weak_from_this(), frame = std::move(frame)]() mutable {
                 if (const auto self = weak.lock()) frame(*self);
               });
}

}  // namespace cohort::rpc
