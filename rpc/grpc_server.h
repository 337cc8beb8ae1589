#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/mutex.h"
#include "rpc/certificate.h"
#include "rpc/grpc_address.h"
#include "rpc/router.h"

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
class NextAuthority;

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

  // From now on new connections are shown `identity`, or `next` if they ask for
  // that one's authority, whose certificate `next_authority` every answer
  // announces; connections that are there go on as they are.  REQUIRES: it
  // serves TLS.  Unavailable.
  absl::Status Show(const Identity& identity,
                    const std::optional<Identity>& next,
                    const std::string& next_authority);

  // Connects to itself.  Unavailable, with what to do.  Blocks for a second at
  // most.
  absl::Status CheckTakesConnections() const;

  // Takes no more calls, lets those in flight end for `grace`, cancels the rest
  // and waits until none is left.  A second call does nothing.
  void Shutdown(absl::Duration grace);

 private:
  struct Serving;

  GrpcServer(Router& router, GrpcServerOptions options,
             std::unique_ptr<GrpcListener> listener, GrpcAddress address);

  // What takes connections from then on.
  absl::Status Begin(const std::vector<Identity>& identities);
  void Take(int fd);

  Router& router_;
  const GrpcServerOptions options_;
  const std::unique_ptr<GrpcListener> listener_;
  const GrpcAddress where_;
  const std::string address_;
  const std::unique_ptr<NextAuthority> next_authority_;  // outlives calls
  Mutex mutex_;
  // The last takes connections; gRPC's servers keep what they show, so there is
  // another one for each Show.
  std::vector<std::unique_ptr<Serving>> serving_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::rpc
