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
// Keeps every event (at most 3 of each process that is not forgotten, and the
// keeper's own) and gives each connection all of them from the first: a
// connection is a place in that list, so a slow or stopped daemon costs nothing
// and a new one misses nothing.  Thread-compatible.
class EventFeed {
 public:
  // `listener`: bound, listening, nonblocking, SOCK_SEQPACKET.
  EventFeed(Poller& poller, UniqueFd listener);

  // `process`: whose event it is; none of the keeper's own.
  void Publish(const ProcessKey& process, std::string packet);
  // Drops the events of `process`.
  void Forget(const ProcessKey& process);
  // Tells connection `index` alone, before any later event.
  void Reply(uint32_t index, const Answer& answer);

  void OnListenerReady();
  // Returns the commands that came.
  std::vector<Command> OnConnectionReady(uint32_t index);

  bool connected() const { return !connections_.empty(); }
  // Every connection has been given everything.
  bool AllSent() const;

 private:
  struct Event {
    ProcessKey process;
    std::string packet;
  };
  struct Connection {
    UniqueFd socket;
    std::vector<std::string> replies;
    uint64_t next = 0;  // of events_
  };

  bool MayConnect(int socket) const;
  // False when the connection is to be closed.
  bool ReadCommands(Connection& connection, std::vector<Command>* commands);
  bool Send(uint32_t index, Connection& connection);
  // The packet that `connection` is to be given next; null when it has all.
  const std::string* NextOf(const Connection& connection) const;
  void Close(uint32_t index);

  Poller& poller_;
  const UniqueFd listener_;
  std::map<uint64_t, Event> events_;  // in their order
  uint64_t next_event_ = 0;
  std::map<uint32_t, Connection> connections_;
  uint32_t next_index_ = 0;
};

}  // namespace cohort::keeper
