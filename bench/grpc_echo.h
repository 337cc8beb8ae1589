#pragma once

#include <memory>
#include <string>

namespace cohort::bench {

// gRPC and nothing else: a unary call that is answered at once, on the
// transport's threads.  Thread-safe.
class EchoServer {
 public:
  // "unix:/path".  REQUIRES: it can be listened to.
  explicit EchoServer(const std::string& address);
  ~EchoServer();

 private:
  class Service;

  const std::unique_ptr<Service> service_;
  struct Running;
  const std::unique_ptr<Running> running_;
};

class EchoClient {
 public:
  explicit EchoClient(const std::string& address);
  ~EchoClient();

  // Waits for the answer.  REQUIRES: a server is there.
  void Call();

 private:
  struct Way;
  const std::unique_ptr<Way> way_;
};

}  // namespace cohort::bench
