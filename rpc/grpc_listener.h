#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/unique_fd.h"
#include "rpc/grpc_address.h"

namespace cohort::rpc {

// Accepts connections for a gRPC server, on a thread of its own.
//
//   GL-1: a process without free descriptors takes connections again once it
//         has some.  gRPC 1.51 would close its listener for good.
//   GL-2: connections leave FilesKeptFree() descriptors to the process: one
//         beyond is closed at once.  So is one of a host that has its share of
//         them (GL-3, connection_shares.h).
//
// Thread-safe.
class GrpcListener {
 public:
  // Owns the connection `fd` from then on.  On the listener's thread.
  using Take = std::function<void(int fd)>;

  // Binds and listens; of port 0 `address` gets the one that it has.  Never
  // shares its port.  AlreadyExists (reason "busy_port") when the address is
  // taken, naming the process that holds it where /proc tells; else what the
  // system says of the address.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Listen(
      GrpcAddress& address);
  // Stops.
  ~GrpcListener();

  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  // Once.
  void Start(Take take);
  // Accepts nothing more.  A second call does nothing.
  void Stop();

 private:
  explicit GrpcListener(UniqueFd socket) : socket_(std::move(socket)) {}
  void Run(const Take& take);

  const UniqueFd socket_;
  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

// Of a server that takes no connections.
inline constexpr char kNoConnectionsReason[] = "no_connections";

// Whether somebody takes connections there now.  Unavailable, with the reason
// above and what to do.  Blocks for a second at most.
absl::Status CheckTakesConnections(const GrpcAddress& address);

}  // namespace cohort::rpc
