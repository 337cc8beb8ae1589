#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "worker/keeper/files.h"
#include "worker/keeper/poller.h"
#include "worker/keeper/reports.h"

namespace cohort::keeper {

// The keeper's side of the control socket.
//
// Keeps every event (at most 2 a rank and 2 more) and gives each connection all
// of them from the first: a connection is a place in that list, so a slow or
// stopped daemon costs nothing and a new one misses nothing. Thread-compatible.
class EventFeed {
 public:
  // `listener`: bound, listening, nonblocking, SOCK_SEQPACKET.
  EventFeed(Poller& poller, UniqueFd listener);

  void Publish(std::string packet);

  void OnListenerReady();
  // Returns the commands that came.
  std::vector<StopCommand> OnConnectionReady(uint32_t index);

  // Every connection has been given everything.
  bool AllSent() const;
  // And there is one.
  bool Heard() const { return !connections_.empty() && AllSent(); }

 private:
  struct Connection {
    UniqueFd socket;
    size_t next = 0;  // of events_
  };

  bool MayConnect(int socket) const;
  // False when the connection is to be closed.
  bool ReadCommands(Connection& connection, std::vector<StopCommand>* commands);
  bool Send(uint32_t index, Connection& connection);
  void Close(uint32_t index);

  Poller& poller_;
  const UniqueFd listener_;
  std::vector<std::string> events_;
  std::map<uint32_t, Connection> connections_;
  uint32_t next_index_ = 0;
};

}  // namespace cohort::keeper
