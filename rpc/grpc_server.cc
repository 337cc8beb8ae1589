#include "rpc/grpc_server.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/server_callback.h"

#include "common/check.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "grpc/support/time.h"
#include "rpc/grpc_address.h"
#include "rpc/grpc_bytes.h"
#include "rpc/grpc_credentials.h"
#include "rpc/grpc_listener.h"
#include "rpc/status_conversion.h"
#include "rpc/transport.h"

namespace cohort::rpc {

// What answers announce.  Thread-safe.
class NextAuthority {
 public:
  void Set(std::string certificate) {
    MutexLock lock(mutex_);
    certificate_ = std::move(certificate);
  }
  std::string Get() const {
    MutexLock lock(mutex_);
    return certificate_;
  }

 private:
  mutable Mutex mutex_;
  std::string certificate_ ABSL_GUARDED_BY(mutex_);
};

namespace {

absl::Duration TimeLeft(const gpr_timespec& deadline) {
  const gpr_timespec infinite = gpr_inf_future(deadline.clock_type);
  if (gpr_time_cmp(deadline, infinite) == 0) return absl::InfiniteDuration();
  const gpr_timespec left =
      gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

// What the Router needs to know of a call.  Lives as long as `context`.
CallInfo InfoOf(absl::string_view path, grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto authorization = metadata.find(kAuthorizationKey);
  CallInfo info{.path = path,
                .authorization = {},
                .peer = context.peer(),
                .time_left = TimeLeft(context.raw_deadline()),
                .lends_thread = true};
  if (authorization != metadata.end()) {
    info.authorization = absl::string_view(authorization->second.data(),
                                           authorization->second.size());
  }
  return info;
}

// One call or stream, of any path.  gRPC's threads and the handler's strand
// call it; lives until OnDone, which follows Finish.
class CallReactor final : public grpc::ServerGenericBidiReactor,
                          public ServerTransport {
 public:
  CallReactor(Router& router, const NextAuthority& next,
              grpc::GenericCallbackServerContext& context)
      : next_(next),
        context_(context),
        call_(router.Accept(InfoOf(context.method(), context), *this)) {}

  // ServerTransport.
  void StartRead() override { grpc::ServerGenericBidiReactor::StartRead(&in_); }

  void StartWrite(std::string message, bool more_follow) override {
    out_ = ToByteBuffer(std::move(message));
    grpc::WriteOptions options;
    if (more_follow) options.set_buffer_hint();
    grpc::ServerGenericBidiReactor::StartWrite(&out_, options);
  }

  void Finish(Answer answer) override {
    AddTrailers(answer.status, answer.stamp, next_.Get(), context_);
    if (answer.message.has_value()) {
      out_ = ToByteBuffer(*std::move(answer.message));
      StartWriteAndFinish(&out_, {}, ToGrpcStatus(answer.status));
    } else {
      grpc::ServerGenericBidiReactor::Finish(ToGrpcStatus(answer.status));
    }
  }

  // Reactions.
  void OnReadDone(bool ok) override {
    if (!ok) {
      call_->OnRead(std::nullopt);
      return;
    }
    // Taken out: OnRead may start the next read into in_.
    const ReceivedBytes message(in_);
    call_->OnRead(message.view());
  }
  void OnWriteDone(bool ok) override {
    out_.Clear();  // Not kept until the next write, which may be hours off.
    call_->OnWriteDone(ok);
  }
  void OnCancel() override { call_->OnCancelled(); }
  void OnDone() override { delete this; }

 private:
  const NextAuthority& next_;
  grpc::GenericCallbackServerContext& context_;
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
  // Shared: handlers keep it longer.  After what Accept uses.
  const std::shared_ptr<ServerCall> call_;
};

// Hands every call to the Router.  Thread-safe.
//
// Methods that are registered with gRPC would have their requests read, of up
// to message_bytes_max for each of any number of calls, before anybody asks who
// calls.
class GrpcService final : public grpc::CallbackGenericService {
 public:
  GrpcService(Router& router, const NextAuthority& next)
      : router_(router), next_(next) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new CallReactor(router_, next_, *context);
  }

 private:
  Router& router_;
  const NextAuthority& next_;
};

}  // namespace

// A server of gRPC's, and how it is given connections.
struct GrpcServer::Serving {
  Serving(Router& router, const NextAuthority& next) : service(router, next) {}

  GrpcService service;
  // Shared: gRPC says so.
  std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    Router& router, GrpcServerOptions options) {
  StartGrpc();
  COHORT_ASSIGN_OR_RETURN(GrpcAddress address,
                          GrpcAddress::Parse(options.address));
  std::vector<Identity> identities;
  if (options.identity.has_value()) identities.push_back(*options.identity);
  COHORT_RETURN_IF_ERROR(ServerCredentials(address, identities).status());
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<GrpcListener> listener,
                          GrpcListener::Listen(address));
  std::unique_ptr<GrpcServer> server(new GrpcServer(
      router, std::move(options), std::move(listener), std::move(address)));
  COHORT_RETURN_IF_ERROR(server->Begin(identities));
  server->listener_->Start(
      [server = server.get()](int fd) { server->Take(fd); });
  return server;
}

GrpcServer::GrpcServer(Router& router, GrpcServerOptions options,
                       std::unique_ptr<GrpcListener> listener,
                       GrpcAddress address)
    : router_(router),
      options_(std::move(options)),
      listener_(std::move(listener)),
      where_(std::move(address)),
      address_(where_.ToString()),
      next_authority_(std::make_unique<NextAuthority>()) {}

absl::Status GrpcServer::Begin(const std::vector<Identity>& identities) {
  COHORT_ASSIGN_OR_RETURN(auto credentials,
                          ServerCredentials(where_, identities));
  auto serving = std::make_unique<Serving>(router_, *next_authority_);
  grpc::ServerBuilder builder;
  serving->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      credentials);
  builder.RegisterCallbackGenericService(&serving->service);
  const auto milliseconds = [](absl::Duration duration) {
    return static_cast<int>(absl::ToInt64Milliseconds(duration));
  };
  builder.SetMaxReceiveMessageSize(
      static_cast<int>(router_.options().message_bytes_max));
  // Nobody of ours compresses, and a few bytes that unpack to gigabytes are
  // unpacked before anybody asks who sent them.
  for (const auto algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder.SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             milliseconds(options_.handshake_timeout));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS,
                             milliseconds(options_.keepalive_time));
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                             milliseconds(options_.keepalive_timeout));
  // Clients' pings are welcome as often as ours are.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      milliseconds(options_.keepalive_time / 4));
  serving->server = builder.BuildAndStart();
  if (serving->server == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot serve at ", address_));
  }
  MutexLock lock(mutex_);
  serving_.push_back(std::move(serving));
  return absl::OkStatus();
}

void GrpcServer::Take(int fd) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
      connection;
  connection.fd = fd;
  MutexLock lock(mutex_);
  serving_.back()->acceptor->HandleNewConnection(&connection);
}

absl::Status GrpcServer::Show(const Identity& identity,
                              const std::optional<Identity>& next,
                              const std::string& next_authority) {
  std::vector<Identity> identities = {identity};
  if (next.has_value()) identities.push_back(*next);
  COHORT_RETURN_IF_ERROR(Begin(identities));
  next_authority_->Set(next_authority);
  return absl::OkStatus();
}

absl::Status GrpcServer::CheckTakesConnections() const {
  return rpc::CheckTakesConnections(where_);
}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

void GrpcServer::Shutdown(absl::Duration grace) {
  listener_->Stop();
  const auto deadline =
      std::chrono::system_clock::now() + absl::ToChronoMicroseconds(grace);
  std::vector<grpc::Server*> servers;
  {
    MutexLock lock(mutex_);
    for (const auto& each : serving_) servers.push_back(each->server.get());
  }
  for (grpc::Server* const each : servers) each->Shutdown(deadline);
}

}  // namespace cohort::rpc
