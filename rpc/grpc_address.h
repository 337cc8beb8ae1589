#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/unique_fd.h"

namespace cohort::rpc {

// Where a server listens, as people write it.  A value.
struct GrpcAddress {
  // "HOST:PORT", "[v6]:PORT" or "unix:/path".  "localhost" becomes 127.0.0.1:
  // it names two addresses, and a second server would start on the other one.
  // InvalidArgument for anything else, and for a path that no socket can have.
  static absl::StatusOr<GrpcAddress> Parse(const std::string& text);

  bool IsUnix() const { return !path.empty(); }
  // Whether only this machine reaches it.
  bool IsLoopback() const;
  std::string ToString() const;

  std::string host;
  uint16_t port = 0;
  // Of a unix socket; then there is no host and port.
  std::string path;
};

// A socket that listens there; of port 0 `address` gets the one that it has.
// AlreadyExists (reason "busy_port") when the address is taken, naming the
// process that holds it where /proc tells, or what the system says otherwise.
absl::StatusOr<UniqueFd> ListenAt(GrpcAddress& address);

// A socket that is being connected there and does not block.
absl::StatusOr<UniqueFd> ConnectTo(const GrpcAddress& address);

}  // namespace cohort::rpc
