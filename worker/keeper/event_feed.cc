#include "worker/keeper/event_feed.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

namespace cohort::keeper {
namespace {

// One daemon, one that is just taking over, and someone curious.
constexpr size_t kConnectionsMax = 16;

}  // namespace

EventFeed::EventFeed(Poller& poller, UniqueFd listener)
    : poller_(poller), listener_(std::move(listener)) {
  poller_.Watch(listener_.get(), Source::kListener, 0);
}

void EventFeed::Publish(std::string packet) {
  events_.push_back(std::move(packet));
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto current = it++;
    if (!Send(current->first, current->second)) Close(current->first);
  }
}

void EventFeed::OnListenerReady() {
  while (true) {
    UniqueFd socket(accept4(listener_.get(), nullptr, nullptr,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (connections_.size() >= kConnectionsMax || !MayConnect(socket.get())) {
      continue;
    }
    const uint32_t index = next_index_++;
    Connection& connection = connections_[index];
    connection.socket = std::move(socket);
    poller_.Watch(connection.socket.get(), Source::kConnection, index);
    if (!Send(index, connection)) Close(index);
  }
}

std::vector<StopCommand> EventFeed::OnConnectionReady(uint32_t index) {
  std::vector<StopCommand> commands;
  const auto it = connections_.find(index);
  if (it == connections_.end()) return commands;
  if (!ReadCommands(it->second, &commands) || !Send(index, it->second)) {
    Close(index);
  }
  return commands;
}

bool EventFeed::AllSent() const {
  for (const auto& [index, connection] : connections_) {
    if (connection.next < events_.size()) return false;
  }
  return true;
}

bool EventFeed::MayConnect(int socket) const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return false;
  }
  return peer.uid == getuid() || peer.uid == 0;
}

bool EventFeed::ReadCommands(Connection& connection,
                             std::vector<StopCommand>* commands) {
  while (true) {
    char buffer[kPacketBytesMax];
    const ssize_t n = recv(connection.socket.get(), buffer, sizeof(buffer), 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    std::string error;
    const std::optional<StopCommand> command =
        ParseStop(std::string(buffer, static_cast<size_t>(n)), &error);
    if (!command) {
      std::fprintf(stderr, "hang up on a peer: its command: %s\n",
                   error.c_str());
      return false;
    }
    commands->push_back(*command);
  }
}

bool EventFeed::Send(uint32_t index, Connection& connection) {
  while (connection.next < events_.size()) {
    const std::string& packet = events_[connection.next];
    const ssize_t n = send(connection.socket.get(), packet.data(),
                           packet.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return false;
    if (n < 0) {
      poller_.Watch(connection.socket.get(), Source::kConnection, index,
                    /*writable=*/true);
      return true;
    }
    if (++connection.next == events_.size()) {
      poller_.Watch(connection.socket.get(), Source::kConnection, index);
    }
  }
  return true;
}

void EventFeed::Close(uint32_t index) {
  poller_.Forget(connections_.at(index).socket.get());
  connections_.erase(index);
}

}  // namespace cohort::keeper
