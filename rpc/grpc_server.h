#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "rpc/certificate.h"
#include "rpc/grpc_address.h"
#include "rpc/router.h"

namespace grpc {
class Server;
}  // namespace grpc

namespace cohort::rpc {

struct GrpcServerOptions {
  // "HOST:PORT" (port 0: a free one), or "unix:/path".
  std::string address;
  // What the server shows over TCP, with TLS; none: plaintext, on loopback
  // only.  A unix socket is private by its mode and needs neither.
  std::optional<Identity> identity;
  // A silent connection is asked after this, and closed when nothing comes back
  // within the other.
  absl::Duration keepalive_time = absl::Seconds(20);
  absl::Duration keepalive_timeout = absl::Seconds(10);
  // A connection that has not begun to speak HTTP/2 by then is closed.
  absl::Duration handshake_timeout = absl::Seconds(20);
};

class GrpcListener;
class GrpcService;

// Serves a Router over gRPC.
//
// Lives in a daemon's composition root; shut down before the router's strands
// go.  Thread-safe.  Never shares its port: a second server on it is an error
// that names the holder.  GrpcListener accepts for it (GL-1, GL-2).
class GrpcServer {
 public:
  // `router` outlives the server.  InvalidArgument for an address that cannot
  // be parsed; FailedPrecondition (reason "insecure") for a host that is not
  // loopback without an identity; AlreadyExists (reason "busy_port") when
  // the address is taken, naming the process that holds it where /proc tells.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      Router& router, GrpcServerOptions options);
  // Shuts down without grace.
  ~GrpcServer();

  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // The bound port; 0 for a unix socket.
  int port() const { return where_.port; }
  // What a client connects to: "127.0.0.1:41234" or "unix:/path".
  const std::string& address() const { return address_; }

  // Connects to itself.  Unavailable, with what to do.  Blocks for a second at
  // most.
  absl::Status CheckTakesConnections() const;

  // Takes no more calls, lets those in flight end for `grace`, cancels the rest
  // and waits until none is left.  A second call does nothing.
  void Shutdown(absl::Duration grace);

 private:
  GrpcServer(std::unique_ptr<GrpcService> service,
             std::unique_ptr<grpc::Server> server,
             std::unique_ptr<GrpcListener> listener, GrpcAddress address);

  const std::unique_ptr<GrpcService> service_;
  const std::unique_ptr<grpc::Server> server_;
  const std::unique_ptr<GrpcListener> listener_;
  const GrpcAddress where_;
  const std::string address_;
};

}  // namespace cohort::rpc
