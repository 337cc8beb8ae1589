#include "rpc/connection_shares.h"

#include <utility>

namespace cohort::rpc {
namespace {

constexpr absl::Duration kLookEvery = absl::Seconds(1);

}  // namespace

bool ConnectionShares::Admit(int fd, ino_t inode, const std::string& host,
                             size_t free, absl::Duration now) {
  // Its number is free again, so the former one has ended.
  const auto former = connections_.find(fd);
  if (former != connections_.end()) Forget(former);
  const auto has_room = [&] {
    const auto own = by_host_.find(host);
    return own == by_host_.end() || own->second < free;
  };
  if (!has_room() && now >= look_at_) {
    look_at_ = now + kLookEvery;
    LookAgain(host);
  }
  if (free == 0 || !has_room()) return false;
  connections_[fd] = {.inode = inode, .host = host};
  ++by_host_[host];
  return true;
}

void ConnectionShares::Forget(std::map<int, Connection>::iterator connection) {
  const auto own = by_host_.find(connection->second.host);
  if (--own->second == 0) by_host_.erase(own);
  connections_.erase(connection);
}

void ConnectionShares::LookAgain(const std::string& host) {
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto each = next++;
    if (each->second.host != host) continue;
    if (!is_open_(each->first, each->second.inode)) Forget(each);
  }
}

}  // namespace cohort::rpc
