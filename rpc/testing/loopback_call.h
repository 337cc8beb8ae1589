#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/executor.h"
#include "common/mutex.h"
#include "rpc/channel.h"
#include "rpc/client_stream.h"
#include "rpc/testing/loopback_wires.h"
#include "rpc/transport.h"

namespace cohort::rpc {

// One call over the wires: the client's end, the server's end, and what is
// between them.  A unary call is a stream with one message up.  Thread-safe.
//
// Shared: its connection until both ends are over, frames on their way, tasks.
class LoopbackCall final : public CallHandle::Target,
                           public std::enable_shared_from_this<LoopbackCall> {
 public:
  struct Options {
    std::string path;
    std::string authorization;
    absl::Duration deadline;
    size_t response_bytes_max = 0;
    Executor* where = nullptr;
    // One of the two.
    Channel::Done done;
    std::shared_ptr<OutgoingStream> stream;
  };

  // `connection` is null when nobody listens.
  LoopbackCall(std::shared_ptr<LoopbackWires> wires,
               std::shared_ptr<LoopbackConnection> connection, Options options);

  // Sends the call off, a unary one with its request.
  void Begin(std::optional<std::string> request);
  // CallHandle::Target: the client lets go.
  void Cancel() override;
  // The connection broke.
  void Broken(BreakKind kind);

 private:
  class ServerEnd final : public ServerTransport {
   public:
    explicit ServerEnd(LoopbackCall& call) : call_(call) {}
    void StartRead() override { call_.ServerStartRead(); }
    void StartWrite(std::string message, bool /*more_follow*/) override {
      call_.ServerStartWrite(std::move(message));
    }
    void Finish(Answer answer) override {
      call_.ServerFinish(std::move(answer));
    }

   private:
    LoopbackCall& call_;
  };

  class ClientEnd final : public ClientTransport {
   public:
    explicit ClientEnd(LoopbackCall& call) : call_(call) {}
    void StartRead() override { call_.ClientStartRead(); }
    void StartWrite(std::string message, bool /*more_follow*/) override {
      call_.ClientStartWrite(std::move(message));
    }
    void StartHalfClose() override { call_.ClientStartHalfClose(); }
    void StartCancel() override { call_.ClientStartCancel(); }
    void Release() override { call_.ClientRelease(); }

   private:
    LoopbackCall& call_;
  };

  // One direction's buffers, after the wire.
  struct Buffer {
    // nullopt: no more follow.
    std::deque<std::optional<std::string>> arrived;
    bool read_open = false;
    // Written and not read.
    size_t unread_bytes = 0;
    bool write_open = false;
  };

  void ServerStartRead();
  void ServerStartWrite(std::string message);
  void ServerFinish(Answer answer);
  void ClientStartRead();
  void ClientStartWrite(std::string message);
  void ClientStartHalfClose();
  void ClientStartCancel();
  void ClientRelease();

  // What frames do when they arrive.
  void OpenAtServer();
  void MessageAtServer(std::optional<std::string> message);
  void CancelAtServer();
  void MessageAtClient(std::string message);

  // Tasks on the wires' executor.
  void ReadAtServer();
  void ReadAtClient();
  void WriteDoneAtServer(bool ok);
  void WriteDoneAtClient(bool ok);
  void EndStream();
  void DeadlinePassed();

  // The client has its answer, unless it had one before.
  void EndClient(Answer answer);
  void EndUnary(Answer answer);
  void ForgetIfOver();
  void Post(void (LoopbackCall::*task)());
  using Frame = absl::AnyInvocable<void(LoopbackCall& call)>;
  void Send(const std::shared_ptr<LoopbackLane>& lane, Frame frame);
  void CancelServer(ServerCall& server);
  // Calls `act` with the server's end while it exists and listens.
  template <typename Act>
  void WithServer(Act act);

  const std::shared_ptr<LoopbackWires> wires_;
  const std::shared_ptr<LoopbackConnection> connection_;
  const uint64_t number_;
  const std::string path_;
  const std::string authorization_;
  // On the monotonic clock.
  const absl::Duration deadline_;
  const size_t response_bytes_max_;
  Executor& where_;
  // Null for a unary call.
  const std::shared_ptr<OutgoingStream> stream_;
  const std::shared_ptr<LoopbackLane> up_lane_;
  const std::shared_ptr<LoopbackLane> down_lane_;
  ServerEnd server_end_;
  ClientEnd client_end_;

  Mutex mutex_;
  Buffer up_ ABSL_GUARDED_BY(mutex_);
  Buffer down_ ABSL_GUARDED_BY(mutex_);
  // Null before the open frame arrived and once the server is over.
  std::shared_ptr<ServerCall> server_ ABSL_GUARDED_BY(mutex_);
  bool server_had_it_ ABSL_GUARDED_BY(mutex_) = false;
  bool server_over_ ABSL_GUARDED_BY(mutex_) = false;
  // This, from when its connection broke until the client lets go.
  std::shared_ptr<LoopbackCall> unreleased_ ABSL_GUARDED_BY(mutex_);
  Channel::Done done_ ABSL_GUARDED_BY(mutex_);
  // How the call ended, once the client's end knows; a stream tells it after
  // the messages before it.
  std::optional<Answer> end_ ABSL_GUARDED_BY(mutex_);
  bool client_over_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::rpc
