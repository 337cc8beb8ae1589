#include "rpc/grpc_channel.h"

#include <atomic>
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
#include "common/log.h"
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

// By which authority a channel knows its server.  Thread-safe.
class Trust {
 public:
  explicit Trust(const Credential& credential) : credential_(credential) {}

  Credential credential() const {
    MutexLock lock(mutex_);
    return credential_;
  }

  // A server that was verified announced it.
  absl::Status Learn(const std::string& authority) {
    MutexLock lock(mutex_);
    if (authority == learned_ || authority == credential_.authority() ||
        credential_.authority().empty()) {
      return absl::OkStatus();
    }
    learned_ = authority;  // once, whatever comes of it
    absl::Status renewed = RenewAuthority(credential_, authority);
    if (!renewed.ok() && !credential_.file().empty()) {
      COHORT_LOG(kWarning, "authority_not_kept", {"why", renewed},
                 {"meaning",
                  "once the cluster's rotation is finished this program cannot "
                  "connect again"},
                 {"fix", "cohort authority trust"});
    }
    return renewed;
  }

  // Counts the authorities.
  int version() const { return version_.load(std::memory_order_acquire); }

  // Whether there is a later one, perhaps by the credential's file.
  bool HasLater(int version) {
    MutexLock lock(mutex_);
    if (version_ != version) return true;
    if (credential_.file().empty()) return false;
    const absl::StatusOr<Credential> there =
        Credential::Load(credential_.file());
    if (!there.ok() || there->authority() == credential_.authority()) {
      return false;
    }
    credential_ = credential_.For(there->authority());
    ++version_;
    return true;
  }

 private:
  std::atomic<int> version_ = 0;
  mutable Mutex mutex_;
  Credential credential_ ABSL_GUARDED_BY(mutex_);
  std::string learned_ ABSL_GUARDED_BY(mutex_);
};

// What calls have of their channel.
struct CallEnvironment {
  const std::string authorization;
  const std::string address;
  CallsInFlight calls;
  Trust trust;
};

// What both kinds of call have: gRPC's context and how it ended.
class CallBase : public CallHandle::Target {
 public:
  CallBase(CallEnvironment& channel, absl::Duration deadline)
      : channel_(channel), trust_version_(channel.trust.version()) {
    context_.set_deadline(DeadlineIn(deadline));
    context_.AddMetadata(kAuthorizationKey, channel.authorization);
  }

  void Cancel() override { context_.TryCancel(); }

 protected:
  // REQUIRES: gRPC is done with the call.
  absl::Status StatusOf(const grpc::Status& status) const {
    absl::Status result = FromGrpcStatus(status, context_);
    if (StampOf(context_).has_value()) return result;
    const std::string& address = channel_.address;
    if (absl::StrContains(result.message(), kHttpError)) {
      return absl::Status(
          result.code(),
          absl::StrCat("what answers at ", address, " is not a cohort daemon (",
                       result.message(), "): check the address"));
    }
    if (absl::Status why = TlsFailure(result, address); !why.ok()) {
      if (GetReason(why) != kOtherAuthority ||
          !channel_.trust.HasLater(trust_version_)) {
        return why;
      }
      return SetReason(absl::UnavailableError(absl::StrCat(
                           address,
                           " is known by another authority now, and "
                           "so it is here: try again")),
                       "authority_changed");
    }
    // Words that are not ours do not always say whose they are.
    if (absl::IsUnavailable(result) || absl::IsUnimplemented(result)) {
      return Annotate(result, address);
    }
    return result;
  }

  // REQUIRES as StatusOf.
  void LearnFromTrailers() {
    const std::string next = NextAuthorityOf(context_);
    if (!next.empty()) (void)channel_.trust.Learn(next);
  }

  // The last thing that OnDone does; this is gone afterwards.
  void Leave() {
    CallsInFlight& calls = channel_.calls;
    calls.Remove(this).reset();
    calls.Gone();
  }

  grpc::ClientContext context_;
  CallEnvironment& channel_;
  const int trust_version_;
};

class ClientUnary final : public CallBase, public grpc::ClientUnaryReactor {
 public:
  ClientUnary(CallEnvironment& channel, absl::Duration deadline,
              std::string request, Executor& where, Channel::Done done)
      : CallBase(channel, deadline),
        request_(ToByteBuffer(std::move(request))),
        where_(where),
        done_(std::move(done)) {}

  void Begin(grpc::GenericStub& stub, const std::string& path) {
    stub.PrepareUnaryCall(&context_, path, {}, &request_, &response_, this);
    StartCall();
  }

  void OnDone(const grpc::Status& status) override {
    LearnFromTrailers();
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
  ClientBidi(CallEnvironment& channel, absl::Duration deadline,
             std::shared_ptr<OutgoingStream> stream)
      : CallBase(channel, deadline), stream_(std::move(stream)) {}

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
    LearnFromTrailers();
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
  GrpcChannel(GrpcAddress address, const Credential& credential,
              GrpcChannelOptions options)
      : address_(std::move(address)),
        options_(options),
        calls_{.authorization = credential.AuthorizationHeader(),
               .address = address_.ToString(),
               .calls = {},
               .trust = Trust(credential)} {}

  // Waits, so that the last hold on grpc::Channel is never dropped by one of
  // gRPC's threads: that can deadlock (grpc#37858).
  ~GrpcChannel() override { calls_.calls.CancelAndWait(); }

  // The way from now on.  Before the first call, and when the trust changed.
  absl::Status Connect();

  CallHandle StartUnary(absl::string_view path, std::string request,
                        CallOptions options, Executor& where,
                        Done done) override {
    auto call = std::make_shared<ClientUnary>(
        calls_, options.deadline, std::move(request), where, std::move(done));
    calls_.calls.Add(call.get(), call);
    CallHandle handle(call);
    call->Begin(Stub(), std::string(path));
    return handle;
  }

  std::unique_ptr<ClientStream> OpenStream(absl::string_view path,
                                           CallOptions options, Executor& where,
                                           StreamEvents events) override {
    auto stream = std::make_shared<OutgoingStream>(options_.channel, where,
                                                   std::move(events));
    auto call = std::make_shared<ClientBidi>(calls_, options.deadline, stream);
    calls_.calls.Add(call.get(), call);
    call->Begin(Stub(), std::string(path));
    return HoldStream(std::move(stream));
  }

  const std::string& address() const override { return calls_.address; }

  absl::Status LearnAuthority(const std::string& authority) override {
    return calls_.trust.Learn(authority);
  }

 private:
  grpc::GenericStub& Stub() {
    // It went well once, with the same address.
    if (connected_by_ != calls_.trust.version()) (void)Connect();
    return *stub_.load(std::memory_order_acquire);
  }

  const GrpcAddress address_;
  const GrpcChannelOptions options_;
  CallEnvironment calls_;
  std::atomic<int> connected_by_ = 0;  // a version of the trust
  std::atomic<grpc::GenericStub*> stub_ = nullptr;
  Mutex mutex_;
  // Not dropped before this is: see the destructor.
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_
      ABSL_GUARDED_BY(mutex_);
};

absl::Status GrpcChannel::Connect() {
  MutexLock lock(mutex_);
  const int version = calls_.trust.version();
  if (!stubs_.empty() && connected_by_ == version) return absl::OkStatus();
  const Credential credential = calls_.trust.credential();
  grpc::ChannelArguments arguments;
  COHORT_ASSIGN_OR_RETURN(auto credentials,
                          ChannelCredentials(address_, credential, arguments));
  arguments.SetMaxReceiveMessageSize(
      static_cast<int>(options_.channel.message_bytes_max));
  arguments.SetMaxSendMessageSize(-1);  // The server's limit counts.
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS,
                   Milliseconds(options_.reconnect_min));
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS,
                   Milliseconds(options_.connect_timeout));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                   Milliseconds(options_.reconnect_max));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   Milliseconds(options_.keepalive_time));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   Milliseconds(options_.keepalive_timeout));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A connection of its own: another channel's failures are not ours.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A cluster's own traffic never goes through http_proxy.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Retries are the caller's (CH-3).
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  stubs_.push_back(std::make_unique<grpc::GenericStub>(
      grpc::CreateCustomChannel(address_.ToString(), credentials, arguments)));
  stub_.store(stubs_.back().get(), std::memory_order_release);
  connected_by_ = version;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Channel>> NewGrpcChannel(
    const std::string& address, const Credential& credential,
    GrpcChannelOptions options) {
  StartGrpc();
  COHORT_ASSIGN_OR_RETURN(GrpcAddress parsed, GrpcAddress::Parse(address));
  auto channel =
      std::make_unique<GrpcChannel>(std::move(parsed), credential, options);
  COHORT_RETURN_IF_ERROR(channel->Connect());
  return channel;
}

}  // namespace cohort::rpc
