#include "rpc/testing/transport.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/check.h"
#include "common/random.h"
#include "common/real_clock.h"
#include "common/strand.h"
#include "common/testing/temp_dir.h"
#include "rpc/grpc_channel.h"
#include "rpc/grpc_server.h"
#include "rpc/testing/loopback.h"

namespace cohort::rpc {
namespace {

class GrpcTransport final : public TestTransport {
 public:
  explicit GrpcTransport(bool over_unix)
      : address_(over_unix ? absl::StrCat("unix:", directory_.path(), "/s")
                           : "127.0.0.1:0") {}

  void Serve(Router& router) override {
    auto server = GrpcServer::Start(router, {.address = address_});
    COHORT_CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    address_ = server_->address();
  }

  void Stop() override { server_.reset(); }

  std::unique_ptr<Channel> Connect(const Credential& credential,
                                   ChannelOptions options) override {
    GrpcChannelOptions all;
    all.channel = options;
    auto channel = NewGrpcChannel(address_, credential, all);
    COHORT_CHECK(channel.ok()) << channel.status();
    return *std::move(channel);
  }

 private:
  TempDir directory_;
  std::string address_;
  std::unique_ptr<GrpcServer> server_;
};

class LoopbackTransport final : public TestTransport {
 public:
  explicit LoopbackTransport(Executor& executor)
      : strand_(executor),
        random_(1),
        network_({.delay_min = absl::ZeroDuration(),
                  .delay_max = absl::Microseconds(200)},
                 strand_, clock_, random_) {}

  ~LoopbackTransport() override { strand_.Stop(); }

  void Serve(Router& router) override { network_.Listen("server", &router); }
  void Stop() override { network_.Unlisten("server"); }

  std::unique_ptr<Channel> Connect(const Credential& credential,
                                   ChannelOptions options) override {
    return network_.Connect("client", "server", credential, options);
  }

 private:
  MachineClock clock_;
  Strand strand_;
  SeededRandom random_;
  LoopbackNetwork network_;
};

}  // namespace

std::unique_ptr<TestTransport> NewTestTransport(const std::string& name,
                                                Executor& executor) {
  if (name == "loopback") return std::make_unique<LoopbackTransport>(executor);
  return std::make_unique<GrpcTransport>(name == "unix");
}

}  // namespace cohort::rpc
