#include "head/services/node_service.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/build_info.h"
#include "common/log.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/services/cluster_wire.h"
#include "head/services/node_wire.h"
#include "head/state/head_lives.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Why a worker was sent away that follows a later store, or a head on one that
// this head's was copied from (HD-1).
constexpr char kStaleGeneration[] = "stale_generation";
constexpr char kUnknownLife[] = "unknown_life";

absl::Status Refuse(absl::Status status, absl::string_view reason) {
  return SetReason(std::move(status), reason);
}

std::string OwnBuild() {
  const BuildInfo build = GetBuildInfo();
  return absl::StrCat(build.version, " ", build.commit);
}

absl::Status CheckProtocol(const v1::Protocol& protocol) {
  if (protocol.min_version() <= kProtocolMax &&
      protocol.max_version() >= kProtocolMin) {
    return absl::OkStatus();
  }
  return Refuse(
      absl::FailedPreconditionError(absl::StrCat(
          "no common protocol version: the head (build ", OwnBuild(),
          ") speaks ", kProtocolMin, " to ", kProtocolMax,
          ", the worker (build ", Shown(protocol.build()), ") ",
          protocol.min_version(), " to ", protocol.max_version(),
          ": bring both to one release; the ranks there go on meanwhile")),
      "protocol_version");
}

bool AllHealthy(const v1::Heartbeat& heartbeat) {
  return std::all_of(heartbeat.devices().begin(), heartbeat.devices().end(),
                     [](const v1::DeviceStatus& device) {
                       return device.state() == v1::DEVICE_STATE_HEALTHY;
                     });
}

constexpr absl::Duration kRefusalLogPeriod = absl::Minutes(1);
constexpr size_t kRefusalsMax = 1'024;

// Of a chunk, however little is in it.
constexpr size_t kChunkBytesMin = 256;
// Of one message, and messages at once: they fit into the stream's queue.
constexpr size_t kAcknowledgeBytesMax = 1 << 20;
constexpr int kAcknowledgesMax = 8;

// Daemons that are remembered for a moment after their streams ended.
constexpr size_t kDepartedMax = 16'384;

std::string DaemonText(const std::string& name, const std::string& host,
                       int64_t pid, const std::string& peer) {
  return absl::StrCat(name, " on ", host, ", pid ", pid, ", ", peer);
}

absl::Status TwoDaemons(const NodeId& node, const std::string& other) {
  return Refuse(
      absl::AlreadyExistsError(absl::StrCat(
          "node ", node.ToHex(), " is joined already by another daemon (",
          other,
          "): two daemons have one node id, from one state directory or a copy "
          "of one, such as a machine image; if this one is the copy, stop it, "
          "remove node_id from its --state-dir, and start it again")),
      "duplicate_node");
}

// A place whose secrets cannot be opened is not launched: a worker runs nothing
// without a launch.
void OpenSecrets(const SecretBox& box, v1::HeadMessage& message) {
  for (v1::DesiredPlace& place : *message.mutable_desired()->mutable_places()) {
    if (!place.has_launch()) continue;
    for (auto& [name, value] : *place.mutable_launch()->mutable_secrets()) {
      std::optional<std::string> opened = box.Open(value);
      if (!opened.has_value()) {
        place.clear_launch();
        break;
      }
      value = *std::move(opened);
    }
  }
}

}  // namespace

// What the Router drives; it may live a task longer than the service.
class NodeService::Reader final : public rpc::StreamReader<v1::WorkerMessage> {
 public:
  Reader(std::shared_ptr<NodeService*> service, uint64_t number)
      : service_(std::move(service)), number_(number) {}

  void OnMessage(const v1::WorkerMessage& message) override {
    if (*service_ != nullptr) (*service_)->OnMessage(number_, message);
  }
  void OnHalfClosed() override {
    // A worker that only listens renews nothing.
    if (*service_ == nullptr) return;
    (*service_)->Close(number_, absl::UnavailableError(
                                    "the worker closed its end of the stream"));
  }
  void OnClosed(absl::Status) override {
    if (*service_ != nullptr) (*service_)->OnClosed(number_);
  }

 private:
  const std::shared_ptr<NodeService*> service_;
  const uint64_t number_;
};

NodeService::NodeService(NodeServiceOptions options, StateHost& host,
                         Executor& strand, const Clock& clock)
    : options_(options),
      host_(host),
      strand_(strand),
      clock_(clock),
      self_(std::make_shared<NodeService*>(this)) {}

NodeService::~NodeService() { *self_ = nullptr; }

void NodeService::RegisterOn(rpc::Router& router) {
  router.HandleStream(
      rpc::kConnect, strand_,
      [self = self_](const std::shared_ptr<rpc::CallContext>& context,
                     std::unique_ptr<Writer> writer)
          -> absl::StatusOr<
              std::unique_ptr<rpc::StreamReader<v1::WorkerMessage>>> {
        if (*self == nullptr) {
          return Gone();
        }
        NodeService& service = **self;
        const uint64_t number = service.next_session_++;
        service.Open(number, std::move(writer), *context);
        return std::make_unique<Reader>(self, number);
      },
      // A sign of life is as good a moment later.
      {.delay = std::min(options_.beat_delay_max, options_.node_timeout / 100),
       .may_wait = [](const v1::WorkerMessage& message) {
         return message.has_heartbeat() && !message.heartbeat().leaving() &&
                message.heartbeat().not_ready().empty() &&
                AllHealthy(message.heartbeat());
       }});
  ServeNodeLogs(router, strand_,
                [self = self_](const v1::LogRead& read)
                    -> absl::StatusOr<std::shared_ptr<NodeLog>> {
                  if (*self == nullptr) return Gone();
                  return (*self)->FindLog(read);
                });
}

void NodeService::Open(uint64_t number, std::unique_ptr<Writer> writer,
                       const rpc::CallContext& context) {
  std::unique_ptr<Session>& place = sessions_[number];
  place = std::make_unique<Session>();
  Session& session = *place;
  session.number = number;
  session.writer = std::move(writer);
  session.peer = context.peer();
  session.principal = context.principal();
  session.heard_at = clock_.Monotonic();
  session.writer->SetOnDrained([self = self_, number] {
    if (*self != nullptr) (*self)->Pump(number);
  });
}

void NodeService::OnMessage(uint64_t number, const v1::WorkerMessage& message) {
  Session* session = Find(number);
  if (session == nullptr) return;  // closed by us; the rest is not heard
  session->heard_at = clock_.Monotonic();
  if (session->registered && !host_.Readable().ok()) return;  // NS-4
  absl::Status status = CheckStamp(message.stamp());
  if (status.ok()) status = Take(*session, message);
  if (status.ok()) return;
  session = Find(number);
  if (session == nullptr) return;
  NoteLaterStore(message, status);
  LogRefusal(*session, status);
  Close(number, status);
}

absl::Status NodeService::Take(Session& session,
                               const v1::WorkerMessage& message) {
  if (session.arriving != nullptr) {
    if (message.has_observed() && message.observed().full()) {
      return OnChunk(session, message.observed());
    }
    return absl::InvalidArgumentError(
        "an unfinished observed set goes on with its next chunk");
  }
  const bool first = session.node.IsNil();
  if (first != message.has_register_()) {
    return absl::InvalidArgumentError(
        first ? "the first message of a worker's stream is Register"
              : "Register came twice on one stream");
  }
  if (first) {
    COHORT_RETURN_IF_ERROR(
        rpc::CheckSpeaksFor(session.principal, message.register_().node_id()));
  }
  switch (message.body_case()) {
    case v1::WorkerMessage::kRegister:
      if (!message.register_().observed().more()) {
        return OnRegister(session, message.register_());
      }
      COHORT_RETURN_IF_ERROR(CheckProtocol(message.register_().protocol()));
      COHORT_RETURN_IF_ERROR(TakeRoom(session, message.register_().observed()));
      session.arriving = std::make_unique<v1::Register>(message.register_());
      AwaitChunk(session);
      break;
    case v1::WorkerMessage::kHeartbeat:
      OnHeartbeat(session, message.heartbeat());
      break;
    case v1::WorkerMessage::kObserved:
      if (message.observed().more()) {
        return absl::InvalidArgumentError(
            "only the set that a worker registers with comes in chunks");
      }
      if (message.incarnation() == session.incarnation) {
        return OnObserved(session, message.observed());
      }
      break;
    case v1::WorkerMessage::BODY_NOT_SET:
      break;  // of a newer worker: it does not rely on us
  }
  return absl::OkStatus();
}

absl::Status NodeService::OnChunk(Session& session, const v1::Observed& chunk) {
  COHORT_RETURN_IF_ERROR(TakeRoom(session, chunk));
  session.arriving->mutable_observed()->mutable_places()->MergeFrom(
      chunk.places());
  if (chunk.more()) return absl::OkStatus();
  return OnRegister(session, TakeArrived(session));
}

absl::Status NodeService::TakeRoom(Session& session,
                                   const v1::Observed& chunk) {
  // What it takes here: an empty attempt is two bytes on the wire.
  const size_t bytes = std::max(chunk.SpaceUsedLong(), kChunkBytesMin);
  if (session.arriving_bytes + bytes > options_.set_bytes_max) {
    return Refuse(absl::ResourceExhaustedError(absl::StrCat(
                      "the node has more than ", options_.set_bytes_max,
                      " bytes to say of its attempts: end what runs on it, "
                      "then start its daemon with a new --state-dir")),
                  "observed_set_too_large");
  }
  if (arriving_bytes_ + bytes > options_.sets_bytes_max) {
    return absl::UnavailableError(absl::StrCat(
        "the head takes ", options_.sets_bytes_max,
        " bytes of large observed sets at once: this node is to try again"));
  }
  session.arriving_bytes += bytes;
  arriving_bytes_ += bytes;
  return absl::OkStatus();
}

v1::Register NodeService::TakeArrived(Session& session) {
  arriving_bytes_ -= std::exchange(session.arriving_bytes, 0);
  return std::move(*std::exchange(session.arriving, nullptr));
}

void NodeService::AwaitChunk(const Session& session) {
  strand_.PostAfter(
      options_.node_timeout,
      [self = self_, number = session.number, bytes = session.arriving_bytes] {
        if (*self == nullptr) return;
        const Session* const found = (*self)->Find(number);
        if (found == nullptr || found->arriving == nullptr) return;
        if (found->arriving_bytes > bytes) return (*self)->AwaitChunk(*found);
        (*self)->Close(number, absl::DeadlineExceededError(
                                   "the node's observed set did not go on"));
      });
}

void NodeService::LogRefusal(const Session& session, const absl::Status& why) {
  const absl::Duration now = clock_.Monotonic();
  if (refusals_.size() >= kRefusalsMax) refusals_.clear();
  const auto [said, first] = refusals_.emplace(why.message(), now);
  if (!first && now - said->second < kRefusalLogPeriod) return;
  said->second = now;
  COHORT_LOG(kWarning, "worker_refused", {"peer", session.peer},
             {"node", session.node}, {"why", why});
}

void NodeService::NoteLaterStore(const v1::WorkerMessage& message,
                                 const absl::Status& why) {
  const std::string reason = GetReason(why);
  const bool other = reason == kStaleGeneration || reason == kUnknownLife;
  if (!other || !message.has_register_()) return;
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  const absl::StatusOr<Registration> of = FromWire(message.register_());
  if (!state.ok() || !of.ok() || !ValidateRegistration(*of).ok()) return;
  (*state)->NoteLaterStore(of->id, of->node.name(), message.stamp().term());
}

void NodeService::OnClosed(uint64_t number) {
  Close(number, absl::UnavailableError("the worker's stream ended"));
}

absl::Status NodeService::CheckStamp(const v1::Stamp& stamp) {
  if (stamp.cluster_id().empty()) return absl::OkStatus();  // follows nobody
  COHORT_ASSIGN_OR_RETURN(const ClusterState* state, host_.Readable());
  const ClusterRecord& ours = state->cluster();
  if (stamp.cluster_id() != ours.cluster_id()) {
    return Refuse(
        absl::FailedPreconditionError(absl::StrCat(
            "the worker belongs to cluster ",
            absl::BytesToHexString(stamp.cluster_id().substr(0, 16)),
            ", this head to ", absl::BytesToHexString(ours.cluster_id()),
            ": nothing was changed; start the right head here, or the worker "
            "with another --state-dir")),
        "foreign_cluster");
  }
  if (stamp.generation() != ours.generation()) {
    // Terms order generations: a worker from before this store was restored
    // follows it from now on.
    if (stamp.term() < ours.term()) return absl::OkStatus();
    return Refuse(
        absl::FailedPreconditionError(absl::StrCat(
            "the worker follows a store of cluster ",
            absl::BytesToHexString(ours.cluster_id()),
            " that was restored later (term ", stamp.term(),
            ") than this head's (term ", ours.term(),
            "): nothing was changed; start the head on that one, or restore "
            "the other again")),
        kStaleGeneration);
  }
  if (stamp.term() > ours.term()) {
    host_.HigherTermSeen(stamp.term());
    return Refuse(absl::FailedPreconditionError(absl::StrCat(
                      "this head is of term ", ours.term(), ", one of term ",
                      stamp.term(), " was seen: it ends now")),
                  "stale_term");
  }
  if (!KnowsLife(ours, stamp.term(), stamp.nonce())) {
    return Refuse(
        absl::FailedPreconditionError(absl::StrCat(
            "the worker followed a head (term ", stamp.term(),
            ") that this head's store (term ", ours.term(),
            ") does not know, as it is an older copy: nothing was changed; "
            "start the head on the newest store, or restore this one again")),
        kUnknownLife);
  }
  return absl::OkStatus();
}

absl::Status NodeService::OnRegister(Session& session,
                                     const v1::Register& request) {
  COHORT_RETURN_IF_ERROR(CheckProtocol(request.protocol()));
  COHORT_ASSIGN_OR_RETURN(const Registration registration, FromWire(request));
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) {
    return RegisterToRead(session, request, registration, state.status());
  }
  COHORT_RETURN_IF_ERROR(MakeRoom(session, request));
  Transition transition;
  absl::StatusOr<RegisteredNode> registered =
      (*state)->RegisterNode(registration, transition);
  if (!registered.ok()) return registered.status();

  Name(session, request, registration, registered->incarnation);
  transition.Then(
      [self = self_, number = session.number,
       registered = *std::move(registered)](const absl::Status& status) {
        if (status.ok() && *self != nullptr) {
          (*self)->SendRegistered(number, registered);
        }
      });
  host_.Submit(std::move(transition));
  return absl::OkStatus();
}

absl::Status NodeService::RegisterToRead(Session& session,
                                         const v1::Register& request,
                                         const Registration& registration,
                                         const absl::Status& read_only) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  const NodeRecord* known =
      state.ok() ? (*state)->nodes().Find(registration.id) : nullptr;
  // One that has no row, or is dead there, cannot be taken in now.
  if (known == nullptr || known->state == v1::NODE_STATE_DEAD) return read_only;
  COHORT_RETURN_IF_ERROR(MakeRoom(session, request));
  Name(session, request, registration, known->node.incarnation());
  SendRegistered(session.number, {.incarnation = known->node.incarnation(),
                                  .desired = {},
                                  .acknowledged = {}});
  return absl::OkStatus();
}

void NodeService::Name(Session& session, const v1::Register& request,
                       const Registration& registration, uint64_t incarnation) {
  session.node = registration.id;
  session.node_name = registration.node.name();
  session.pid = registration.node.pid();
  session.host = registration.node.host();
  session.authority = request.authority();
  session.nonce = request.daemon_nonce();
  session.incarnation = incarnation;
  by_node_[session.node] = session.number;
}

absl::Status NodeService::MakeRoom(const Session& session,
                                   const v1::Register& request) {
  const absl::StatusOr<NodeId> node = NodeId::FromBytes(request.node_id());
  const auto known = by_node_.find(*node);
  if (known == by_node_.end()) {
    const auto departed = departed_.extract(*node);
    if (departed.empty() || departed.mapped().host == request.host() ||
        departed.mapped().nonce == request.daemon_nonce() ||
        !IsFresh(departed.mapped().heard_at)) {
      return absl::OkStatus();
    }
    departed_[*node] = departed.mapped();
    return TwoDaemons(*node, departed.mapped().what);
  }
  const Session& older = *sessions_.at(known->second);
  if (IsFresh(older.heard_at) && older.nonce != request.daemon_nonce()) {
    return TwoDaemons(
        *node, DaemonText(older.node_name, older.host, older.pid, older.peer));
  }
  COHORT_LOG(kInfo, "worker_superseded", {"node", *node}, {"older", older.peer},
             {"newer", session.peer});
  Close(older.number,
        Refuse(absl::FailedPreconditionError("the node is connected again"),
               "superseded"));
  return absl::OkStatus();
}

bool NodeService::IsFresh(absl::Duration heard_at) const {
  return clock_.Monotonic() - heard_at <= options_.node_timeout / 2;
}

void NodeService::NoteDeparture(const Session& session) {
  if (departed_.size() >= kDepartedMax) {
    std::erase_if(departed_, [this](const auto& departed) {
      return !IsFresh(departed.second.heard_at);
    });
  }
  if (departed_.size() >= kDepartedMax) return;
  departed_[session.node] = {.host = session.host,
                             .nonce = session.nonce,
                             .what = DaemonText(session.node_name, session.host,
                                                session.pid, session.peer),
                             .heard_at = session.heard_at};
}

void NodeService::RenewLease(const Session& session) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) return;
  Transition transition;
  (*state)->RenewLease(session.node, session.incarnation, transition);
  host_.Submit(std::move(transition));
}

void NodeService::OnHeartbeat(Session& session,
                              const v1::Heartbeat& heartbeat) {
  session.authority = heartbeat.authority();
  RenewLease(session);
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) return;
  if (heartbeat.leaving()) {
    (*state)->WithdrawNode(session.node, session.incarnation);
  }
  Transition transition;
  (*state)->NoteDevices(session.node, session.incarnation,
                        FromWire(heartbeat.devices()), transition);
  host_.Submit(std::move(transition));
  const std::string not_ready = Cut(heartbeat.not_ready(), kNotReadyBytesMax);
  if ((*state)->nodes().NotReadyBecause(session.node) == not_ready) return;
  Transition readiness;
  (*state)->NoteReadiness(session.node, session.incarnation, not_ready,
                          readiness);
  host_.Submit(std::move(readiness));
}

absl::Status NodeService::OnObserved(Session& session,
                                     const v1::Observed& observed) {
  const absl::StatusOr<ClusterState*> state = host_.Writable(Admission::kNode);
  if (!state.ok()) return absl::OkStatus();  // NS-4
  Transition transition;
  COHORT_RETURN_IF_ERROR((*state)->Observe(session.node, session.incarnation,
                                           observed, transition));
  host_.Submit(std::move(transition));
  return absl::OkStatus();
}

void NodeService::SendRegistered(uint64_t number,
                                 const RegisteredNode& registered) {
  Session* session = Find(number);
  if (session == nullptr) return;
  session->registered = true;
  RenewLease(*session);  // however long the commit took
  v1::HeadMessage message;
  v1::Registered* body = message.mutable_registered();
  body->mutable_protocol()->set_min_version(kProtocolMin);
  body->mutable_protocol()->set_max_version(kProtocolMax);
  body->set_version(kProtocolMax);
  body->set_incarnation(registered.incarnation);
  *body->mutable_node_timeout() = rpc::ToWire(options_.node_timeout);
  *body->mutable_heartbeat_interval() = rpc::ToWire(options_.node_timeout / 5);
  message.set_authority(next_authority_);
  Write(*session, std::move(message));
  session = Find(number);
  if (session == nullptr) return;
  COHORT_LOG(kInfo, "node_registered", {"node", session->node},
             {"name", session->node_name}, {"peer", session->peer},
             {"incarnation", registered.incarnation});
  SendAcknowledge(session->node, registered.incarnation,
                  registered.acknowledged);
  session = Find(number);
  if (session == nullptr) return;
  session->outbox.BeginFull();
  absl::Status added = session->outbox.Add(registered.desired);
  if (added.ok()) added = session->outbox.AddExchanges(registered.exchanges);
  Pump(*session, added);
}

void NodeService::SendDesired(const NodeId& node, uint64_t incarnation,
                              const std::vector<v1::DesiredPlace>& places) {
  Session* session = FindRegistered(node, incarnation);
  if (session != nullptr) Pump(*session, session->outbox.Add(places));
}

void NodeService::SendExchanges(const NodeId& node, uint64_t incarnation,
                                const std::vector<SharedExchange>& exchanges) {
  Session* session = FindRegistered(node, incarnation);
  if (session == nullptr) return;
  Pump(*session, session->outbox.AddExchanges(exchanges));
}

void NodeService::SendAcknowledge(
    const NodeId& node, uint64_t incarnation,
    const std::vector<Acknowledged>& acknowledged) {
  int written = 0;
  for (v1::Acknowledge& each : ToWire(acknowledged, kAcknowledgeBytesMax)) {
    // The node says the others again on its next stream.
    if (++written > kAcknowledgesMax) return;
    Session* session = FindRegistered(node, incarnation);
    if (session == nullptr) return;
    v1::HeadMessage message;
    *message.mutable_acknowledge() = std::move(each);
    Write(*session, std::move(message));
  }
}

void NodeService::Disconnect(const NodeId& node, uint64_t incarnation,
                             const absl::Status& reason) {
  const auto known = by_node_.find(node);
  if (known == by_node_.end()) return;
  if (sessions_.at(known->second)->incarnation != incarnation) return;
  Close(known->second, reason);
}

void NodeService::Pump(const Session& session, const absl::Status& added) {
  if (!added.ok()) return Close(session.number, added);
  Pump(session.number);
}

void NodeService::Pump(uint64_t number) {
  while (Session* const session = Find(number)) {
    if (session->outbox.empty() || !host_.Readable().ok() ||  // NS-4
        session->writer->QueuedBytes() >= options_.desired_bytes_max) {
      return;
    }
    v1::HeadMessage message;
    *message.mutable_desired() =
        session->outbox.Next(options_.desired_bytes_max);
    if (options_.box != nullptr) OpenSecrets(*options_.box, message);
    Write(*session, std::move(message));
  }
}

void NodeService::Write(Session& session, v1::HeadMessage message) {
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  if (!state.ok()) return Close(session.number, state.status());
  *message.mutable_stamp() = StampOf((*state)->cluster());
  const absl::Status status = session.writer->Write(message);
  // A worker that does not read starts over with its whole set.
  if (!status.ok()) Close(session.number, status);
}

std::shared_ptr<NodeLog> NodeService::OpenLog(const NodeId& node,
                                              v1::SendLog order,
                                              NodeLog::OnPiece on_piece) {
  const auto known = by_node_.find(node);
  Session* session = known == by_node_.end() ? nullptr : Find(known->second);
  const absl::StatusOr<const ClusterState*> state = host_.Readable();
  const NodeRecord* const record =
      state.ok() ? (*state)->nodes().Find(node) : nullptr;
  auto log = std::make_shared<NodeLog>(
      strand_, record == nullptr ? node.ToHex() : record->node.name(),
      std::move(on_piece),
      large_logs_.use_count() <= NodeLog::kLargeLogsMax ? large_logs_
                                                        : nullptr);
  if (!state.ok()) {
    log->Fail(state.status());
    return log;
  }
  if (session == nullptr || !session->registered) {
    log->FailAway();
    return log;
  }
  auto& logs = session->logs;
  if (logs.size() >= options_.logs_max) {
    std::erase_if(logs, [](const auto& each) {
      const std::shared_ptr<NodeLog> other = each.second.lock();
      return other == nullptr || other->failed() || other->Drop();
    });
  }
  if (logs.size() >= options_.logs_max) {
    log->Fail(Refuse(
        absl::ResourceExhaustedError(absl::StrCat(
            "node ", session->node_name, " sends ", logs.size(),
            " logs already, which is all that one may: try again when others "
            "have ended")),
        "overloaded"));
    return log;
  }
  const uint64_t id = next_log_++;
  logs.emplace(id, log);
  log->AwaitCall();
  order.set_read_id(id);
  order.set_max_bytes(log->piece_bytes_max());
  v1::HeadMessage message;
  *message.mutable_send_log() = std::move(order);
  Write(*session, std::move(message));
  return log;
}

absl::StatusOr<std::shared_ptr<NodeLog>> NodeService::FindLog(
    const v1::LogRead& read) {
  COHORT_ASSIGN_OR_RETURN(const ClusterState* state, host_.Readable());
  // Read ids begin again with each life.
  if (read.stamp().SerializeAsString() !=
      StampOf(state->cluster()).SerializeAsString()) {
    return absl::FailedPreconditionError(
        "another life of the head asked for this log");
  }
  COHORT_ASSIGN_OR_RETURN(const NodeId node, NodeId::FromBytes(read.node_id()));
  const auto known = by_node_.find(node);
  Session* session = known == by_node_.end() ? nullptr : Find(known->second);
  if (session != nullptr) {
    const auto log = session->logs.find(read.read_id());
    if (log != session->logs.end()) {
      if (auto found = log->second.lock(); found != nullptr) return found;
    }
  }
  return absl::NotFoundError("nobody reads this log any more");
}

void NodeService::Suspend(const absl::Status& why) {
  std::vector<uint64_t> unregistered;
  for (const auto& [number, session] : sessions_) {
    if (!session->registered) unregistered.push_back(number);
  }
  for (const uint64_t number : unregistered) Close(number, why);
}

void NodeService::CloseAll(const absl::Status& why) {
  while (!sessions_.empty()) Close(sessions_.begin()->first, why);
}

void NodeService::SetNextAuthority(std::string certificate) {
  next_authority_ = std::move(certificate);
  if (next_authority_.empty()) return;
  std::vector<uint64_t> registered;
  for (const auto& [number, session] : sessions_) {
    if (session->registered) registered.push_back(number);
  }
  for (const uint64_t number : registered) {
    v1::HeadMessage message;
    message.set_authority(next_authority_);
    if (Session* const session = Find(number); session != nullptr) {
      Write(*session, std::move(message));
    }
  }
}

std::string NodeService::AuthorityOf(const NodeId& node) const {
  const auto found = by_node_.find(node);
  return found == by_node_.end() ? "" : sessions_.at(found->second)->authority;
}

void NodeService::Close(uint64_t number, const absl::Status& why) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  const std::unique_ptr<Session> closed = std::move(found->second);
  sessions_.erase(found);
  Session& session = *closed;
  const auto current = by_node_.find(session.node);
  if (current != by_node_.end() && current->second == number) {
    by_node_.erase(current);
    NoteDeparture(session);
    if (const auto state = host_.Writable(Admission::kNode); state.ok()) {
      (*state)->WithdrawNode(session.node, session.incarnation);
    }
  }
  arriving_bytes_ -= session.arriving_bytes;
  session.writer->Close(why);
  for (const auto& [id, weak] : session.logs) {
    if (const auto log = weak.lock(); log != nullptr) log->FailAway();
  }
}

NodeService::Session* NodeService::Find(uint64_t number) {
  const auto found = sessions_.find(number);
  return found == sessions_.end() ? nullptr : found->second.get();
}

NodeService::Session* NodeService::FindRegistered(const NodeId& node,
                                                  uint64_t incarnation) {
  const auto known = by_node_.find(node);
  if (known == by_node_.end()) return nullptr;
  Session* session = Find(known->second);
  return session->registered && session->incarnation == incarnation ? session
                                                                    : nullptr;
}

}  // namespace cohort::head
