#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/clock.h"
#include "common/executor.h"
#include "common/secret_box.h"
#include "common/strong_id.h"
#include "head/services/desired_outbox.h"
#include "head/services/node_log.h"
#include "head/services/state_host.h"
#include "head/state/node_links.h"
#include "rpc/router.h"

namespace cohort::head {

// The protocol versions that this build speaks on NodeService.
inline constexpr uint32_t kProtocolMin = 1;
inline constexpr uint32_t kProtocolMax = 1;

struct NodeServiceOptions {
  // Told to workers, which beat five times as often.
  absl::Duration node_timeout = absl::Seconds(10);
  // Logs that one node sends at once; HeadCoreOptions has it.
  size_t logs_max = 0;
  // A heartbeat waits at most so long for others, so that those of thousands of
  // nodes do not wake the strand each.  Below ClusterLimits::tick_period
  // (LS-1).
  absl::Duration beat_delay_max = absl::Milliseconds(50);
  // Of one Desired message but for its last attempt, and of what is written to
  // a worker that has not taken it: far below the limits of a message and of a
  // stream's queue.
  size_t desired_bytes_max = 1 << 20;
  // Of observed sets that come in chunks, until the last has come: of one node,
  // and of all.
  size_t set_bytes_max = 64 << 20;
  size_t sets_bytes_max = 256 << 20;
  // Opens the secrets of what is launched; null: they are not sealed.
  std::shared_ptr<const SecretBox> box;
};

// NodeService: the streams of the workers.
//
//   NS-1: of one node at most one stream is listened to and spoken to; a newer
//         one supersedes it, unless it is another daemon's while the older one
//         is alive: then the newer one is told so.  A daemon of another host
//         waits for half of node_timeout also when the older stream has ended,
//         so that two copies of a node do not take turns at each broken stream.
//   NS-2: a stream that says what cannot be is closed; nobody else notices.
//   NS-3: nothing of another cluster or generation changes anything here, nor
//         of a worker that followed a life of a head which this store does not
//         know (HD-1); a higher term ends this head (TM-1).
//   NS-4: while the state cannot change, streams stay and logs are read through
//         them; what nodes say is not heard, and they register again, with
//         everything, once it can.
//
//   NS-5: a registration is applied when the last chunk of its observed set has
//         come.  Until then it costs a bounded number of bytes and changes
//         nothing; one that does not go on within node_timeout is closed.
//
// Strand-bound; HeadCore owns it.  Its streams may outlive it by a task, and
// then do nothing.
class NodeService final : public NodeLinks {
 public:
  // All outlive the service.
  NodeService(NodeServiceOptions options, StateHost& host, Executor& strand,
              const Clock& clock);
  ~NodeService() override;

  NodeService(const NodeService&) = delete;
  NodeService& operator=(const NodeService&) = delete;

  void RegisterOn(rpc::Router& router);

  // The state that the streams belong to is gone.  Those that are registered
  // stay, as their rows do (NS-4); the others are closed with `why`.
  void Suspend(const absl::Status& why);
  // All are closed with `why`, and nodes register again.
  void CloseAll(const absl::Status& why);

  // Tells all nodes of it, and those that register from now on; empty: there is
  // none.
  void SetNextAuthority(std::string certificate);
  // SHA-256 of the authority's certificate that the node has, as it says; empty
  // when it is not connected.
  std::string AuthorityOf(const NodeId& node) const;

  // Asks a node for a log and its first piece; read_id and max_bytes are filled
  // in.  Never null: ResourceExhausted when it sends too many already, and
  // Unavailable when it is away, come to `on_piece`.
  std::shared_ptr<NodeLog> OpenLog(const NodeId& node, v1::SendLog order,
                                   NodeLog::OnPiece on_piece);

  // Streams that have not ended.
  size_t stream_count() const { return sessions_.size(); }

  // NodeLinks.
  void SendDesired(const NodeId& node, uint64_t incarnation,
                   const std::vector<v1::DesiredPlace>& places) override;
  void SendExchanges(const NodeId& node, uint64_t incarnation,
                     const std::vector<SharedExchange>& exchanges) override;
  void SendAcknowledge(const NodeId& node, uint64_t incarnation,
                       const std::vector<Acknowledged>& acknowledged) override;
  void Disconnect(const NodeId& node, uint64_t incarnation,
                  const absl::Status& reason) override;

 private:
  using Writer = rpc::StreamWriter<v1::HeadMessage>;
  class Reader;

  // One stream.
  struct Session {
    uint64_t number = 0;
    std::unique_ptr<Writer> writer;
    std::string peer;
    rpc::Principal principal;
    NodeId node;  // nil until Register
    std::string node_name;
    std::string host;
    std::string authority;  // as AuthorityOf
    int64_t pid = 0;
    uint64_t nonce = 0;
    uint64_t incarnation = 0;
    bool registered = false;  // Registered has left
    absl::Duration heard_at;
    DesiredOutbox outbox;
    // A registration whose observed set goes on, and how large that is.
    std::unique_ptr<v1::Register> arriving;
    size_t arriving_bytes = 0;
    // By read id.  Their readers own them: once there is no room for another,
    // those whose readers are gone or do not read are dropped.
    std::map<uint64_t, std::weak_ptr<NodeLog>> logs;
  };

  void Open(uint64_t number, std::unique_ptr<Writer> writer,
            const rpc::CallContext& context);
  void OnMessage(uint64_t number, const v1::WorkerMessage& message);
  void OnClosed(uint64_t number);

  // What a message says, whose stamp is ours.
  absl::Status Take(Session& session, const v1::WorkerMessage& message);
  absl::Status OnChunk(Session& session, const v1::Observed& chunk);
  absl::Status TakeRoom(Session& session, const v1::Observed& chunk);
  // The registration that arrived, which leaves its room.
  v1::Register TakeArrived(Session& session);
  void AwaitChunk(const Session& session);
  void LogRefusal(const Session& session, const absl::Status& why);
  absl::Status CheckStamp(const v1::Stamp& stamp);
  // Remembers whom `why` sent away because it follows another store.
  void NoteLaterStore(const v1::WorkerMessage& message,
                      const absl::Status& why);
  absl::Status OnRegister(Session& session, const v1::Register& request);
  absl::Status RegisterToRead(Session& session, const v1::Register& request,
                              const Registration& registration,
                              const absl::Status& read_only);
  void Name(Session& session, const v1::Register& request,
            const Registration& registration, uint64_t incarnation);
  absl::Status MakeRoom(const Session& session, const v1::Register& request);
  bool IsFresh(absl::Duration heard_at) const;
  void NoteDeparture(const Session& session);
  absl::Status OnObserved(Session& session, const v1::Observed& observed);
  void OnHeartbeat(Session& session, const v1::Heartbeat& heartbeat);
  void RenewLease(const Session& session);

  void SendRegistered(uint64_t number, const RegisteredNode& registered);
  // Writes of the outbox what there is room for; drained, it is called again.
  void Pump(uint64_t number);
  // As Pump, or closes it with an error of its outbox.
  void Pump(const Session& session, const absl::Status& added);
  // Closes the session when its queue is full.
  void Write(Session& session, v1::HeadMessage message);
  // Ends the stream and forgets it.
  void Close(uint64_t number, const absl::Status& why);
  // The log that a node's call brings, or why nobody listens to it.
  absl::StatusOr<std::shared_ptr<NodeLog>> FindLog(const v1::LogRead& read);
  Session* Find(uint64_t number);
  // The node's registered stream under that incarnation.
  Session* FindRegistered(const NodeId& node, uint64_t incarnation);

  const NodeServiceOptions options_;
  StateHost& host_;
  Executor& strand_;
  const Clock& clock_;

  // By number, which is the order of opening.
  absl::btree_map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::map<NodeId, uint64_t> by_node_;
  // Of nodes whose streams ended a moment ago: whose they were.
  struct Departed {
    std::string host;
    uint64_t nonce = 0;
    std::string what;  // for people
    absl::Duration heard_at;
  };
  std::map<NodeId, Departed> departed_;
  // What was said of refused workers, which try again each second, and when.
  std::map<std::string, absl::Duration> refusals_;
  std::string next_authority_;
  size_t arriving_bytes_ = 0;  // of all sessions
  uint64_t next_session_ = 1;
  uint64_t next_log_ = 1;
  // Counts the logs with large pieces, each of which has a share of it.
  const std::shared_ptr<const int> large_logs_ = std::make_shared<const int>();

  // Shared: this and its streams' readers, which find it empty once this is
  // gone.
  const std::shared_ptr<NodeService*> self_;
};

}  // namespace cohort::head
