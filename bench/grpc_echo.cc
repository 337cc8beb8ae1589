#include "bench/grpc_echo.h"

#include <utility>

#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/rpc_method.h"
#include "grpcpp/impl/rpc_service_method.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

#include "common/check.h"

namespace cohort::bench {
namespace {

constexpr char kEcho[] = "/Floor/Echo";

class EchoCall final : public grpc::ServerUnaryReactor {
 public:
  EchoCall() { Finish(grpc::Status::OK); }
  void OnDone() override { delete this; }
};

}  // namespace

class EchoServer::Service final : public grpc::Service {
 public:
  Service() {
    AddMethod(new grpc::internal::RpcServiceMethod(
        kEcho, grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodRawCallback(
        0, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer,
                                                    grpc::ByteBuffer>(
               [](grpc::CallbackServerContext* /*context*/,
                  const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
                 *response = *request;
                 return new EchoCall();
               }));
  }
};

struct EchoServer::Running {
  std::unique_ptr<grpc::Server> server;
};

EchoServer::EchoServer(const std::string& address)
    : service_(std::make_unique<Service>()),
      running_(std::make_unique<Running>()) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(service_.get());
  running_->server = builder.BuildAndStart();
  COHORT_CHECK(running_->server != nullptr);
}

EchoServer::~EchoServer() = default;

struct EchoClient::Way {
  explicit Way(std::shared_ptr<grpc::Channel> to)
      : channel(std::move(to)),
        method(kEcho, grpc::internal::RpcMethod::NORMAL_RPC, channel) {}

  std::shared_ptr<grpc::Channel> channel;
  grpc::internal::RpcMethod method;
};

EchoClient::EchoClient(const std::string& address)
    : way_(std::make_unique<Way>(
          grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {}

EchoClient::~EchoClient() = default;

void EchoClient::Call() {
  grpc::ClientContext context;
  const grpc::Slice slice(std::string(8, 'x'));
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>(
          way_->channel.get(), way_->method, &context, request, &response);
  COHORT_CHECK(status.ok()) << status.error_message();
}

}  // namespace cohort::bench
