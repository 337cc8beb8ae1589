#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/executor.h"
#include "rpc/method.h"
#include "rpc/stamp.h"

namespace cohort::rpc {

struct CallOptions {
  // Required: how long the caller waits.  Infinite is for streams that live as
  // long as their peers.
  absl::Duration deadline;
};

// How a unary call ended.
struct CallResult {
  absl::StatusOr<std::string> response;
  // Who answered; nothing when no head did.
  std::optional<Stamp> stamp;
};

// Lets go of a call early.  A value: dropping it changes nothing.  Thread-safe.
class CallHandle {
 public:
  // What a transport cancels.
  class Target {
   public:
    virtual ~Target() = default;
    virtual void Cancel() = 0;
  };

  CallHandle() = default;
  explicit CallHandle(std::weak_ptr<Target> target)
      : target_(std::move(target)) {}

  // The call ends as CANCELLED unless it has ended.  `done` still comes.
  void Cancel() const {
    if (const std::shared_ptr<Target> target = target_.lock()) target->Cancel();
  }

 private:
  std::weak_ptr<Target> target_;
};

// What happens on a client's stream, each posted to the stream's executor.
struct StreamEvents {
  // The next message.  An error ends the stream with it.
  absl::AnyInvocable<absl::Status(absl::string_view message)> on_message;
  // The stream is over; the last event, exactly one.
  absl::AnyInvocable<void(absl::Status status, std::optional<Stamp> stamp) &&>
      on_closed;
  // Everything written has been taken by the transport.  May be null.
  absl::AnyInvocable<void()> on_drained;
};

// The client's end of a stream.  Thread-safe.  Destroying it cancels the stream
// and no event comes after that: it waits for one that runs on another thread
// (hold no lock that the event takes), and within an event it does not wait.
class ClientStream {
 public:
  virtual ~ClientStream() = default;

  // Never blocks.  ResourceExhausted when ChannelOptions' queue is full: the
  // message is not queued.  Unavailable when the stream is over;
  // FailedPrecondition after HalfClose.
  virtual absl::Status Write(std::string message) = 0;
  // No more messages from here; the server's still come.
  virtual void HalfClose() = 0;
  // Ends the stream: on_closed comes with CANCELLED.
  virtual void Cancel() = 0;
  // Written and not yet taken by the transport.
  virtual size_t QueuedBytes() const = 0;
};

struct ChannelOptions {
  // Largest message that is accepted from the server.
  size_t message_bytes_max = 8 << 20;
  // What a stream's server has not taken yet.
  size_t stream_queue_messages_max = 4096;
  size_t stream_queue_bytes_max = 16 << 20;
  // What a stream's executor has not handled yet; beyond it reading stops.
  size_t stream_window_messages = 64;
  size_t stream_window_bytes = 1 << 20;
};

// The way to one server: gRPC (grpc_channel) or the simulation (loopback).
//
// Connects on the first call and again after the connection broke, by itself.
// Thread-safe.  Outlives the streams opened on it.  Destroying it cancels its
// calls, whose `done` still comes, and may block for a moment.
//
// CH-1: `done` and `on_closed` come exactly once, always through `where`.
// CH-2: a unary call ends by its deadline, whatever the server does.
// CH-3: a call that was not answered is never sent again by the channel:
//       retries are the caller's, who knows what may run twice.
class Channel {
 public:
  using Done = absl::AnyInvocable<void(CallResult result) &&>;

  virtual ~Channel() = default;

  // Sends `request` to the handler at `path`.  `done` is posted to `where`:
  // UNAVAILABLE when the server cannot be reached (it was not sent, or the
  // answer is lost), DEADLINE_EXCEEDED, CANCELLED, or the handler's answer.
  // `where` outlives the call.
  virtual CallHandle StartUnary(absl::string_view path, std::string request,
                                CallOptions options, Executor& where,
                                Done done) = 0;

  // Opens a stream; what goes wrong comes through on_closed.  `where` outlives
  // the stream and runs one task at a time.
  virtual std::unique_ptr<ClientStream> OpenStream(absl::string_view path,
                                                   CallOptions options,
                                                   Executor& where,
                                                   StreamEvents events) = 0;

  // Names the server for messages: "127.0.0.1:7710", "unix:/run/...".
  virtual const std::string& address() const = 0;

  // The server, by a stream of this channel, announced the authority by which
  // its cluster is known from now on (docs/security.md): writes the file of the
  // channel's credential again.  May block.  Errors as RenewAuthority.
  virtual absl::Status LearnAuthority(const std::string& /*authority*/) {
    return absl::OkStatus();
  }
};

// As above with messages.
template <typename Down>
struct TypedEvents {
  absl::AnyInvocable<void(const Down& message)> on_message;
  absl::AnyInvocable<void(absl::Status status, std::optional<Stamp> stamp) &&>
      on_closed;
  absl::AnyInvocable<void()> on_drained;
};

// A ClientStream with messages; the same rules.
template <typename Up>
class TypedStream {
 public:
  explicit TypedStream(std::unique_ptr<ClientStream> stream)
      : stream_(std::move(stream)) {}

  absl::Status Write(const Up& message) {
    return stream_->Write(message.SerializeAsString());
  }
  void HalfClose() { stream_->HalfClose(); }
  void Cancel() { stream_->Cancel(); }
  size_t QueuedBytes() const { return stream_->QueuedBytes(); }

 private:
  const std::unique_ptr<ClientStream> stream_;
};

// The answer to a typed unary call.
template <typename Resp>
struct TypedResult {
  absl::StatusOr<Resp> response;
  std::optional<Stamp> stamp;
};

namespace internal {

// Runs StartUnary and waits for it on the calling thread.
CallResult StartAndWait(Channel& channel, absl::string_view path,
                        std::string request, CallOptions options);

absl::Status Undecodable(absl::string_view path);

template <typename Resp>
TypedResult<Resp> Decode(const char* path, CallResult result) {
  if (!result.response.ok()) {
    return {std::move(result.response).status(), std::move(result.stamp)};
  }
  Resp response;
  if (!response.ParseFromString(*result.response)) {
    return {Undecodable(path), std::move(result.stamp)};
  }
  return {std::move(response), std::move(result.stamp)};
}

}  // namespace internal

// Calls `method` and gives its answer and stamp to `done` on `where`; the rules
// of Channel::StartUnary.  INTERNAL when the answer cannot be decoded.
template <typename Req, typename Resp>
CallHandle CallWithStamp(
    Channel& channel, const UnaryMethod<Req, Resp>& method, const Req& request,
    CallOptions options, Executor& where,
    std::type_identity_t<absl::AnyInvocable<void(TypedResult<Resp> result) &&>>
        done) {
  return channel.StartUnary(
      method.path, request.SerializeAsString(), options, where,
      [path = method.path, done = std::move(done)](CallResult result) mutable {
        std::move(done)(internal::Decode<Resp>(path, std::move(result)));
      });
}

// As CallWithStamp, for callers that do not look at the stamp.
template <typename Req, typename Resp>
CallHandle Call(Channel& channel, const UnaryMethod<Req, Resp>& method,
                const Req& request, CallOptions options, Executor& where,
                std::type_identity_t<
                    absl::AnyInvocable<void(absl::StatusOr<Resp> response) &&>>
                    done) {
  return CallWithStamp<Req, Resp>(
      channel, method, request, options, where,
      [done = std::move(done)](TypedResult<Resp> result) mutable {
        std::move(done)(std::move(result.response));
      });
}

// Calls `method` and blocks until its answer.  For threads of the CLI and of
// the client library; never on a strand.
template <typename Req, typename Resp>
TypedResult<Resp> CallAndWait(Channel& channel,
                              const UnaryMethod<Req, Resp>& method,
                              const Req& request, CallOptions options) {
  return internal::Decode<Resp>(
      method.path,
      internal::StartAndWait(channel, method.path, request.SerializeAsString(),
                             options));
}

// Opens a stream of `method`; the rules of Channel::OpenStream.  INTERNAL when
// a message from the server cannot be decoded.
template <typename Up, typename Down>
std::unique_ptr<TypedStream<Up>> OpenStream(
    Channel& channel, const StreamMethod<Up, Down>& method, CallOptions options,
    Executor& where, std::type_identity_t<TypedEvents<Down>> events) {
  StreamEvents raw;
  raw.on_message = [path = method.path,
                    on_message = std::move(events.on_message)](
                       absl::string_view bytes) mutable -> absl::Status {
    Down message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return internal::Undecodable(path);
    }
    on_message(message);
    return absl::OkStatus();
  };
  raw.on_closed = std::move(events.on_closed);
  raw.on_drained = std::move(events.on_drained);
  return std::make_unique<TypedStream<Up>>(
      channel.OpenStream(method.path, options, where, std::move(raw)));
}

}  // namespace cohort::rpc
