#pragma once

#include <memory>
#include <string>

#include "common/executor.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/router.h"

namespace cohort::rpc {

// A way to serve a Router and to connect to it, so that one suite of tests runs
// over all of them.
class TestTransport {
 public:
  virtual ~TestTransport() = default;

  // Serves `router`, after a Stop at the same address.
  virtual void Serve(Router& router) = 0;
  virtual void Stop() = 0;
  virtual std::unique_ptr<Channel> Connect(const Credential& credential,
                                           ChannelOptions options) = 0;
};

// "tcp", "unix" or "loopback" over the threads of `executor`.
std::unique_ptr<TestTransport> NewTestTransport(const std::string& name,
                                                Executor& executor);

}  // namespace cohort::rpc
