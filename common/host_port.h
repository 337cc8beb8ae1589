#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// Where a server listens or is reached.  A value.
struct HostPort {
  // A name or an IP address, IPv6 without its brackets.
  std::string host;
  // 0: any free one, for a server to choose.
  uint16_t port = 0;

  // "host:port", "[::1]:port": reads back.
  std::string ToString() const;

  // The address never leaves this machine: localhost, 127.x.y.z, ::1.
  bool IsLoopback() const;

  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// Reads "127.0.0.1:7710", "node-7.rack:0", "[::1]:7710".  InvalidArgument,
// naming the text and what is accepted, otherwise; nothing is resolved.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);

// Whether `text` can be a host: a name, an IPv4 address, or an IPv6 address
// without brackets; nothing is resolved.
bool IsHost(absl::string_view text);

}  // namespace cohort
