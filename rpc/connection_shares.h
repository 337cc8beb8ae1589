#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace cohort::rpc {

// How many connections each host has of a process's descriptors.
//
//   GL-3: whatever one host opens, said to be somebody or not, others get in: a
//         host has at most as many connections as descriptors are still free.
//
// Nobody tells when a connection ends, so what is counted is looked at again
// where it matters.  Thread-compatible.
class ConnectionShares {
 public:
  // Whether `fd` is still the socket with that inode.
  using IsOpen = std::function<bool(int fd, ino_t inode)>;

  explicit ConnectionShares(IsOpen is_open) : is_open_(std::move(is_open)) {}

  // Whether `host` may have the connection `fd`, with that many descriptors
  // free beside it.  What was counted is looked at once a second at most.
  bool Admit(int fd, ino_t inode, const std::string& host, size_t free,
             absl::Duration now);

 private:
  struct Connection {
    ino_t inode = 0;
    std::string host;
  };

  void Forget(std::map<int, Connection>::iterator connection);
  void LookAgain(const std::string& host);

  const IsOpen is_open_;
  std::map<int, Connection> connections_;
  absl::flat_hash_map<std::string, size_t> by_host_;  // none is 0
  absl::Duration look_at_ = -absl::InfiniteDuration();
};

}  // namespace cohort::rpc
