#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "common/random.h"
#include "rpc/channel.h"
#include "worker/node_state.h"

namespace cohort::worker {

// The protocol versions that this build speaks on NodeService.
inline constexpr uint32_t kProtocolMin = 1;
inline constexpr uint32_t kProtocolMax = 1;

// Where the worker keeps which cluster it belongs to and which life of its
// head, of the highest term, it followed last (HD-1).  On disk in the daemon
// (`cluster` in its state directory), in memory in simulations.  Strand-bound.
class ClusterBinding {
 public:
  virtual ~ClusterBinding() = default;

  // Nothing before the first Save.
  virtual std::optional<v1::Stamp> Current() const = 0;
  // Replaces it; `done` on the strand, never inside the call.
  virtual void Save(const v1::Stamp& stamp,
                    absl::AnyInvocable<void(absl::Status) &&> done) = 0;
};

// The worker's stream to the head: joins, brings the desired set to NodeState
// and its observed set up, renews the lease, and joins again whenever the
// stream ends.
//
//   IDLE --Start--> JOINING --Registered--> JOINED
//                      ^  \__timeout, refusal, end__|
//                      +------ back-off <-----------+
//
// Strand-bound: everything happens on `strand`.  Lives as long as Worker.
//
// HL-1: a message of another cluster, of a lower term, or of another life of
// one
//       term changes nothing here: the stream is dropped, the ranks go on.
//       Terms order generations: a store that is restored takes a higher one,
//       and is followed.  Whether a head of a higher term knows the life that
//       was followed last, that head says: it refuses the registration (HD-1).
// HL-2: the binding is on disk before the first desired set of a cluster or
//       term is applied; a node where it cannot be written is not ready.
// HL-3: observed changes are never lost: what could not be written goes up
//       whole with the next registration.
// HL-4: what waits to be written is bounded, however large the sets are: more
//       is taken from NodeState when the head has taken what there is.
class HeadLink {
 public:
  struct Events {
    // The head has accepted this node; also after each reconnect.
    absl::AnyInvocable<void()> on_joined;
    // A head of that stamp asks for a log, on a call of its own.
    absl::AnyInvocable<void(const v1::Stamp& head, const v1::SendLog& order)>
        on_send_log;
    // The head announced the authority, a certificate in PEM, that this node is
    // to know it by; null: not listened to.
    absl::AnyInvocable<void(const std::string& authority)> on_authority =
        nullptr;
    // This node cannot join: another cluster, another version, a credential
    // that is refused, a second daemon with its id.  It is tried again all the
    // same.
    absl::AnyInvocable<void(const absl::Status&)> on_refused;
    // How the node's devices are now, for a sign of life; null: it has none.
    absl::AnyInvocable<std::vector<v1::DeviceStatus>()> devices = nullptr;
  };

  // `registration` is sent as it is, with observed set and stamp added.  All
  // references outlive the link.
  HeadLink(v1::Register registration, rpc::Channel& channel, NodeState& node,
           ClusterBinding& binding, Executor& strand, Random& random,
           Events events);
  ~HeadLink();

  HeadLink(const HeadLink&) = delete;
  HeadLink& operator=(const HeadLink&) = delete;

  // REQUIRES: NodeState::Restore is done.
  void Start();
  // Tells the head, now and with each registration, that this node is about to
  // go: nothing new is placed here.  The stream and the lease go on.
  void AnnounceLeaving();
  // Tells the head, now and with each sign of life, why no attempt could begin
  // here; empty: one could.
  void SetNotReady(std::string why);
  // A device has another state: tells the head at once, before whatever is said
  // later (DV-4).
  void NoteDevices();
  // Tells the head, now and with each sign of life, the fingerprint of the
  // authority that this node's credential has.
  void SetAuthority(std::string fingerprint);
  // Leaves the head for good.
  void Stop();

  // NodeState has something for TakeDelta.
  void NoteChange();

  bool joined() const { return state_ == State::kJoined; }

 private:
  enum class State { kIdle, kJoining, kJoined, kStopped };

  void Join();
  // A head that has not answered once all is written is left; `unsent` chunks
  // of the set were not written when this was called.
  void AwaitRegistered(uint64_t stream, size_t unsent);
  void OnDrained(uint64_t stream);
  void SendChunks();
  bool HasRoom() const;
  void OnMessage(uint64_t stream, const v1::HeadMessage& message);
  void OnClosed(uint64_t stream, absl::Status status);
  void OnRegistered(uint64_t stream, const v1::HeadMessage& message);
  void KeepEarly(const v1::HeadMessage& message);
  // HL-2; tried again for as long as the stream lives.
  void Bind(uint64_t stream, const v1::Stamp& stamp);
  void SetUnbound(std::string why);
  // What the head hears; empty: an attempt could begin here.
  const std::string& NotReady() const {
    return not_ready_.empty() ? unbound_ : not_ready_;
  }
  // Why a message with this stamp is not for us; OK when it is.
  absl::Status CheckStamp(const v1::Stamp& stamp) const;
  void Leave(absl::Status why);
  void ScheduleJoin();
  void Beat(uint64_t stream);
  void SendHeartbeat();
  void AddDevices(google::protobuf::RepeatedPtrField<v1::DeviceStatus>* out);
  void Flush();
  void Send(v1::WorkerMessage message);

  // Runs `task` after `delay` unless this is gone by then.
  void After(absl::Duration delay, absl::AnyInvocable<void() &&> task);

  const v1::Register registration_;
  rpc::Channel& channel_;
  NodeState& node_;
  ClusterBinding& binding_;
  Executor& strand_;
  Random& random_;
  Events events_;

  State state_ = State::kIdle;
  // Counts streams: what an older one still says is not listened to.
  uint64_t stream_number_ = 0;
  std::unique_ptr<rpc::TypedStream<v1::WorkerMessage>> stream_;
  uint64_t incarnation_ = 0;
  absl::Duration heartbeat_interval_;
  absl::Duration backoff_;
  bool flushing_ = false;
  bool leaving_ = false;
  std::string not_ready_;  // as SetNotReady was told
  std::string authority_;  // as SetAuthority was told
  std::string unbound_;    // why the binding is not written; empty: it is
  // Desired sets that wait for the binding to be on disk (HL-2).
  bool bound_ = false;
  // Of the registration's observed set, those that wait to be written.
  std::deque<v1::Observed> chunks_;
  std::vector<v1::HeadMessage> early_;
  size_t early_bytes_ = 0;  // beyond the bound none is kept
  // Shared: this and its timers, which find it empty once this is gone.
  std::shared_ptr<HeadLink*> self_;
};

}  // namespace cohort::worker
