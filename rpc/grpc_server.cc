#include "rpc/grpc_server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "grpc/support/time.h"
#include "rpc/grpc_address.h"
#include "rpc/grpc_bytes.h"
#include "rpc/status_conversion.h"
#include "rpc/transport.h"

namespace cohort::rpc {
namespace {

constexpr char kAuthorizationKey[] = "authorization";
// Names, reasons and messages of 4 KiB, percent-encoded.
constexpr int kMetadataBytesMax = 32 << 10;

absl::Duration TimeLeft(const gpr_timespec& deadline) {
  const gpr_timespec infinite = gpr_inf_future(deadline.clock_type);
  if (gpr_time_cmp(deadline, infinite) == 0) return absl::InfiniteDuration();
  const gpr_timespec left =
      gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

// One call: carries bytes between gRPC and the Router's end of it.  gRPC's
// threads and the handler's strand call it; lives until OnDone, which follows
// Finish.
class CallReactor final : public grpc::ServerGenericBidiReactor,
                          public ServerTransport {
 public:
  CallReactor(Router& router, grpc::GenericCallbackServerContext& context)
      : context_(context) {
    const auto& metadata = context.client_metadata();
    const auto authorization = metadata.find(kAuthorizationKey);
    CallInfo info{.path = context.method(),
                  .authorization = {},
                  .peer = context.peer(),
                  .time_left = TimeLeft(context.raw_deadline())};
    if (authorization != metadata.end()) {
      info.authorization = absl::string_view(authorization->second.data(),
                                             authorization->second.size());
    }
    call_ = router.Accept(std::move(info), *this);
  }

  // ServerTransport.
  void StartRead() override { grpc::ServerGenericBidiReactor::StartRead(&in_); }

  void StartWrite(std::string message, bool more_follow) override {
    out_ = ToByteBuffer(std::move(message));
    grpc::WriteOptions options;
    if (more_follow) options.set_buffer_hint();
    grpc::ServerGenericBidiReactor::StartWrite(&out_, options);
  }

  void Finish(Answer answer) override {
    AddTrailers(answer.status, answer.stamp, context_);
    if (answer.message.has_value()) {
      out_ = ToByteBuffer(*std::move(answer.message));
      StartWriteAndFinish(&out_, grpc::WriteOptions(),
                          ToGrpcStatus(answer.status));
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
  void OnWriteDone(bool ok) override { call_->OnWriteDone(ok); }
  void OnCancel() override { call_->OnCancelled(); }
  void OnDone() override { delete this; }

 private:
  grpc::GenericCallbackServerContext& context_;
  // Shared: handlers keep it longer.
  std::shared_ptr<ServerCall> call_;
  grpc::ByteBuffer in_;
  grpc::ByteBuffer out_;
};

}  // namespace

// Hands every path to the Router.  Thread-safe.
class GrpcService final : public grpc::CallbackGenericService {
 public:
  explicit GrpcService(Router& router) : router_(router) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    return new CallReactor(router_, *context);
  }

 private:
  Router& router_;
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    Router& router, GrpcServerOptions options) {
  StartGrpc();
  COHORT_ASSIGN_OR_RETURN(GrpcAddress address,
                          GrpcAddress::Parse(options.address));
  if (!address.IsLoopback() && !options.insecure_bind) {
    return SetReason(
        absl::FailedPreconditionError(absl::StrCat(
            options.address,
            " is reachable from other machines and there is no TLS yet: bind "
            "a loopback address, or accept that with --insecure-bind")),
        "insecure_bind");
  }
  COHORT_RETURN_IF_ERROR(CheckCanListen(address));

  auto service = std::make_unique<GrpcService>(router);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address.ToString(),
                           grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(service.get());
  const int message_bytes_max =
      static_cast<int>(router.options().message_bytes_max);
  builder.SetMaxReceiveMessageSize(message_bytes_max);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(
      GRPC_ARG_KEEPALIVE_TIME_MS,
      static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_time)));
  builder.AddChannelArgument(
      GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
      static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_timeout)));
  // Clients' pings are welcome as often as ours are.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
      static_cast<int>(absl::ToInt64Milliseconds(options.keepalive_time / 4)));
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    // Somebody was faster, or gRPC knows more than we.
    COHORT_RETURN_IF_ERROR(CheckCanListen(address));
    return absl::UnavailableError(
        absl::StrCat("cannot listen at ", address.ToString()));
  }
  if (address.IsUnix()) {
    chmod(address.path.c_str(), 0600);
    port = 0;
  } else {
    address.port = static_cast<uint16_t>(port);
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(
      std::move(service), std::move(server), address.ToString(), port));
}

GrpcServer::GrpcServer(std::unique_ptr<GrpcService> service,
                       std::unique_ptr<grpc::Server> server,
                       std::string address, int port)
    : service_(std::move(service)),
      server_(std::move(server)),
      address_(std::move(address)),
      port_(port) {}

GrpcServer::~GrpcServer() { Shutdown(absl::ZeroDuration()); }

void GrpcServer::Shutdown(absl::Duration grace) {
  server_->Shutdown(std::chrono::system_clock::now() +
                    absl::ToChronoMicroseconds(grace));
}

}  // namespace cohort::rpc
