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

void EventFeed::Publish(const ProcessKey& process, std::string packet) {
  events_[next_event_++] = {process, std::move(packet)};
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto current = it++;
    if (!Send(current->first, current->second)) Close(current->first);
  }
}

void EventFeed::Forget(const ProcessKey& process) {
  std::erase_if(events_, [&process](const auto& event) {
    return event.second.process == process;
  });
}

void EventFeed::Reply(uint32_t index, const Answer& answer) {
  const auto it = connections_.find(index);
  if (it == connections_.end()) return;
  it->second.replies.push_back(Encode(answer));
  if (!Send(index, it->second)) Close(index);
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

std::vector<Command> EventFeed::OnConnectionReady(uint32_t index) {
  std::vector<Command> commands;
  const auto it = connections_.find(index);
  if (it == connections_.end()) return commands;
  if (!ReadCommands(it->second, &commands) || !Send(index, it->second)) {
    Close(index);
  }
  return commands;
}

bool EventFeed::AllSent() const {
  for (const auto& [index, connection] : connections_) {
    if (NextOf(connection) != nullptr) return false;
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
                             std::vector<Command>* commands) {
  while (true) {
    static char buffer[kCommandBytesMax];  // one thread
    const ssize_t n = recv(connection.socket.get(), buffer, sizeof(buffer), 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    std::string error;
    const std::optional<Command> command =
        Parse<Command>(std::string(buffer, static_cast<size_t>(n)), &error);
    if (!command) {
      std::fprintf(stderr, "hang up on a peer: its command: %s\n",
                   error.c_str());
      return false;
    }
    commands->push_back(*command);
  }
}

const std::string* EventFeed::NextOf(const Connection& connection) const {
  if (!connection.replies.empty()) return &connection.replies.front();
  const auto event = events_.lower_bound(connection.next);
  return event == events_.end() ? nullptr : &event->second.packet;
}

bool EventFeed::Send(uint32_t index, Connection& connection) {
  bool waits = false;
  while (const std::string* const packet =
             waits ? nullptr : NextOf(connection)) {
    const ssize_t n = send(connection.socket.get(), packet->data(),
                           packet->size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return false;
    waits = n < 0;
    if (waits) continue;
    if (connection.replies.empty()) {
      connection.next = events_.lower_bound(connection.next)->first + 1;
    } else {
      connection.replies.erase(connection.replies.begin());
    }
  }
  poller_.Watch(connection.socket.get(), Source::kConnection, index,
                /*writable=*/waits);
  return true;
}

void EventFeed::Close(uint32_t index) {
  poller_.Forget(connections_.at(index).socket.get());
  connections_.erase(index);
}

}  // namespace cohort::keeper
