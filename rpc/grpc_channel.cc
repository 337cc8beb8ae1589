#include "rpc/grpc_channel.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_callback.h"

#include "common/executor.h"
#include "common/mutex.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "grpc/support/time.h"
#include "rpc/client_stream.h"
#include "rpc/grpc_address.h"
#include "rpc/grpc_bytes.h"
#include "rpc/grpc_credentials.h"
#include "rpc/status_conversion.h"

namespace cohort::rpc {
namespace {

// How gRPC begins the error of a server that speaks HTTP/2 but not gRPC.
constexpr char kHttpError[] = "Received http2 header with status";

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// On the monotonic clock, so that a step of the wall clock ends no call.
gpr_timespec DeadlineIn(absl::Duration left) {
  if (left > absl::Hours(24 * 365)) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
  return gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(absl::ToInt64Nanoseconds(left), GPR_TIMESPAN));
}

// The calls of one channel, so that it can end them and wait.  Thread-safe.
class CallsInFlight {
 public:
  void Add(CallHandle::Target* call, std::shared_ptr<CallHandle::Target> self) {
    MutexLock lock(mutex_);
    calls_.emplace(call, std::move(self));
  }

  // The registry's hold on the call; the caller drops it, then says Gone.
  std::shared_ptr<CallHandle::Target> Remove(CallHandle::Target* call) {
    MutexLock lock(mutex_);
    const auto found = calls_.find(call);
    std::shared_ptr<CallHandle::Target> self = std::move(found->second);
    calls_.erase(found);
    ++leaving_;
    return self;
  }

  void Gone() {
    MutexLock lock(mutex_);
    if (--leaving_ == 0) changed_.SignalAll();
  }

  void CancelAndWait() {
    std::vector<std::shared_ptr<CallHandle::Target>> calls;
    {
      MutexLock lock(mutex_);
      for (const auto& [call, self] : calls_) calls.push_back(self);
    }
    for (const auto& call : calls) call->Cancel();
    calls.clear();
    MutexLock lock(mutex_);
    while (!calls_.empty() || leaving_ > 0) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  // Shared: this until OnDone, and who cancels.
  absl::flat_hash_map<CallHandle::Target*, std::shared_ptr<CallHandle::Target>>
      calls_ ABSL_GUARDED_BY(mutex_);
  // Removed, not yet destroyed.
  int leaving_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What both kinds of call have: gRPC's context and how it ended.
class CallBase : public CallHandle::Target {
 public:
  CallBase(const std::string& authorization, const std::string& address,
           CallsInFlight& calls, absl::Duration deadline)
      : address_(address), calls_(calls) {
    context_.set_deadline(DeadlineIn(deadline));
    context_.AddMetadata(kAuthorizationKey, authorization);
  }

  void Cancel() override { context_.TryCancel(); }

 protected:
  // REQUIRES: gRPC is done with the call.
  absl::Status StatusOf(const grpc::Status& status) const {
    absl::Status result = FromGrpcStatus(status, context_);
    if (StampOf(context_).has_value()) return result;
    if (absl::StrContains(result.message(), kHttpError)) {
      return absl::Status(
          result.code(),
          absl::StrCat("what answers at ", address_,
                       " is not a cohort daemon (", result.message(),
                       "): check the address"));
    }
    if (const absl::Status why = TlsFailure(result, address_); !why.ok()) {
      return why;
    }
    // Words that are not ours do not always say whose they are.
    if (absl::IsUnavailable(result) || absl::IsUnimplemented(result)) {
      return Annotate(result, address_);
    }
    return result;
  }

  // The last thing that OnDone does; this is gone afterwards.
  void Leave() {
    CallsInFlight& calls = calls_;
    calls.Remove(this).reset();
    calls.Gone();
  }

  grpc::ClientContext context_;
  const std::string& address_;
  CallsInFlight& calls_;
};

class ClientUnary final : public CallBase, public grpc::ClientUnaryReactor {
 public:
  ClientUnary(const std::string& authorization, const std::string& address,
              CallsInFlight& calls, absl::Duration deadline,
              std::string request, Executor& where, Channel::Done done)
      : CallBase(authorization, address, calls, deadline),
        request_(ToByteBuffer(std::move(request))),
        where_(where),
        done_(std::move(done)) {}

  void Begin(grpc::GenericStub& stub, const std::string& path) {
    stub.PrepareUnaryCall(&context_, path, {}, &request_, &response_, this);
    StartCall();
  }

  void OnDone(const grpc::Status& status) override {
    CallResult result{absl::UnknownError("no answer"), StampOf(context_)};
    if (status.ok()) {
      result.response = std::string(ReceivedBytes(response_).view());
    } else {
      result.response = StatusOf(status);
    }
    where_.Post(
        [done = std::move(done_), result = std::move(result)]() mutable {
          std::move(done)(std::move(result));
        });
    Leave();
  }

 private:
  grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  Executor& where_;
  Channel::Done done_;
};

// gRPC holds the call open (AddHold) until the OutgoingStream releases it, so
// that reads and writes may start outside of reactions.
class ClientBidi final
    : public CallBase,
      public ClientTransport,
      public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ClientBidi(const std::string& authorization, const std::string& address,
             CallsInFlight& calls, absl::Duration deadline,
             std::shared_ptr<OutgoingStream> stream)
      : CallBase(authorization, address, calls, deadline),
        stream_(std::move(stream)) {}

  void Begin(grpc::GenericStub& stub, const std::string& path) {
    stub.PrepareBidiStreamingCall(&context_, path, {}, this);
    AddHold();
    stream_->Start(*this);
    StartCall();
  }

  // ClientTransport.
  void StartRead() override { Reactor::StartRead(&in_); }
  void StartWrite(std::string message, bool more_follow) override {
    out_ = ToByteBuffer(std::move(message));
    grpc::WriteOptions options;
    if (more_follow) options.set_buffer_hint();
    Reactor::StartWrite(&out_, options);
  }
  void StartHalfClose() override { StartWritesDone(); }
  void StartCancel() override { context_.TryCancel(); }
  void Release() override { RemoveHold(); }

  // Reactions.
  void OnReadDone(bool ok) override {
    if (!ok) {
      stream_->OnRead(std::nullopt);
      return;
    }
    stream_->OnRead(std::string(ReceivedBytes(in_).view()));
  }
  void OnWriteDone(bool ok) override {
    out_.Clear();  // Not kept until the next write, which may be hours off.
    stream_->OnWriteDone(ok);
  }
  void OnDone(const grpc::Status& status) override {
    stream_->OnEnded(StatusOf(status), StampOf(context_));
    Leave();
  }

 private:
  using Reactor = grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // Shared: the caller's hold and turns on its executor.
  const std::shared_ptr<OutgoingStream> stream_;
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
};

class GrpcChannel final : public Channel {
 public:
  GrpcChannel(std::string address, const Credential& credential,
              ChannelOptions options, std::shared_ptr<grpc::Channel> channel)
      : address_(std::move(address)),
        authorization_(credential.AuthorizationHeader()),
        options_(options),
        channel_(channel),
        stub_(std::move(channel)) {}

  // Waits, so that the last hold on grpc::Channel is never dropped by one of
  // gRPC's threads: that can deadlock (grpc#37858).
  ~GrpcChannel() override { calls_.CancelAndWait(); }

  CallHandle StartUnary(absl::string_view path, std::string request,
                        CallOptions options, Executor& where,
                        Done done) override {
    auto call = std::make_shared<ClientUnary>(
        authorization_, address_, calls_, options.deadline, std::move(request),
        where, std::move(done));
    calls_.Add(call.get(), call);
    CallHandle handle(call);
    call->Begin(stub_, std::string(path));
    return handle;
  }

  std::unique_ptr<ClientStream> OpenStream(absl::string_view path,
                                           CallOptions options, Executor& where,
                                           StreamEvents events) override {
    auto stream =
        std::make_shared<OutgoingStream>(options_, where, std::move(events));
    auto call = std::make_shared<ClientBidi>(authorization_, address_, calls_,
                                             options.deadline, stream);
    calls_.Add(call.get(), call);
    call->Begin(stub_, std::string(path));
    return HoldStream(std::move(stream));
  }

  const std::string& address() const override { return address_; }

 private:
  const std::string address_;
  const std::string authorization_;
  const ChannelOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  CallsInFlight calls_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Channel>> NewGrpcChannel(
    const std::string& address, const Credential& credential,
    GrpcChannelOptions options) {
  StartGrpc();
  COHORT_ASSIGN_OR_RETURN(const GrpcAddress parsed,
                          GrpcAddress::Parse(address));
  grpc::ChannelArguments arguments;
  COHORT_ASSIGN_OR_RETURN(auto credentials,
                          ChannelCredentials(parsed, credential, arguments));
  arguments.SetMaxReceiveMessageSize(
      static_cast<int>(options.channel.message_bytes_max));
  arguments.SetMaxSendMessageSize(-1);  // The server's limit counts.
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   Milliseconds(options.reconnect_min));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Milliseconds(options.connect_timeout));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   Milliseconds(options.reconnect_max));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   Milliseconds(options.keepalive_time));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   Milliseconds(options.keepalive_timeout));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A connection of its own: another channel's failures are not ours.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A cluster's own traffic never goes through http_proxy.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Retries are the caller's (CH-3).
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  return std::make_unique<GrpcChannel>(
      parsed.ToString(), credential, options.channel,
      grpc::CreateCustomChannel(parsed.ToString(), credentials, arguments));
}

}  // namespace cohort::rpc
