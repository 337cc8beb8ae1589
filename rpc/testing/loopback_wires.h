#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "common/random.h"
#include "rpc/router.h"
#include "rpc/testing/loopback.h"

namespace cohort::rpc {

class LoopbackCall;
class LoopbackWires;

// How a connection ended, for its two ends.
enum class BreakKind {
  kNetwork,       // Both hear of it.
  kServerKilled,  // The server's process is dead and hears nothing.
  kClientKilled,  // The client's process is dead and hears nothing.
};

// What the calls of one channel share until it breaks.  Guarded by the wires'
// mutex.
struct LoopbackConnection {
  uint64_t number = 0;
  std::string client;
  std::string server;
  bool alive = true;
  // A timer ends the connection if the partition lasts.
  bool partition_timer = false;
  // By number, for one order.
  std::map<uint64_t, std::shared_ptr<LoopbackCall>> calls;
};

// One direction of one call: frames on their way, in order.  Guarded by the
// wires' mutex.
struct LoopbackLane {
  LoopbackLane(std::shared_ptr<LoopbackConnection> c, bool down)
      : connection(std::move(c)), from_server(down) {}

  // Shared: the wires, its lanes and calls.
  const std::shared_ptr<LoopbackConnection> connection;
  const bool from_server;
  // What each frame does where it arrives.
  std::deque<Task> frames;
  // Arrivals that a partition holds back.
  int held = 0;
};

// The network behind LoopbackNetwork: who listens, who is connected, and how
// frames travel.  Knows nothing of what a frame says.  Thread-safe.
//
// Lock order: a ServerCall or OutgoingStream, a LoopbackCall, the wires.
class LoopbackWires : public std::enable_shared_from_this<LoopbackWires> {
 public:
  LoopbackWires(LoopbackOptions options, Executor& executor, const Clock& clock,
                Random& random)
      : executor_(executor),
        clock_(clock),
        options_(options),
        random_(random) {}

  // See LoopbackNetwork.
  void Listen(const std::string& name, Router* router);
  void Unlisten(const std::string& name, BreakKind kind);
  void Partition(const std::string& a, const std::string& b);
  void Heal(const std::string& a, const std::string& b);
  void HealAll();
  void BreakAll(const std::string& name);
  void SilenceAfter(const std::string& name, int frames);
  void SetBreakProbability(double probability);
  LoopbackFaults faults() const;
  // The end: drops every call that is left.
  void Close();

  Executor& executor() { return executor_; }
  const Clock& clock() const { return clock_; }
  size_t window_bytes() const;

  // `current` while it stands, else a new connection if `server` listens, else
  // null.
  std::shared_ptr<LoopbackConnection> Connect(
      const std::shared_ptr<LoopbackConnection>& current,
      const std::string& client, const std::string& server);
  // How long the refusal of a connection takes; counts it.
  absl::Duration Refuse();

  // A call that breaks with its connection, until Forget.  False when the
  // connection is broken already.
  bool Register(LoopbackConnection& connection, uint64_t number,
                std::shared_ptr<LoopbackCall> call);
  void Forget(LoopbackConnection& connection, uint64_t number);
  uint64_t NextNumber();
  std::vector<std::shared_ptr<LoopbackCall>> CallsOf(
      const LoopbackConnection& connection) const;

  // Runs `frame` at the other end after a delay, unless the connection breaks;
  // after those sent on the lane before.
  void Send(const std::shared_ptr<LoopbackLane>& lane, Task frame);

  // Brackets whatever touches the server of `connection`.  Null when it does
  // not listen any more, and then there is no EndDelivery.
  Router* BeginDelivery(const LoopbackConnection& connection);
  void EndDelivery(const LoopbackConnection& connection);

  // For calls that broke.
  void CountBroken(bool is_stream, bool server_had_it);

 private:
  using Pair = std::pair<std::string, std::string>;
  using Connections = std::vector<std::shared_ptr<LoopbackConnection>>;

  static Pair Ordered(const std::string& a, const std::string& b) {
    return a < b ? Pair(a, b) : Pair(b, a);
  }

  void Arrive(const std::shared_ptr<LoopbackLane>& lane)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ScheduleArrival(const std::shared_ptr<LoopbackLane>& lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Break(const std::shared_ptr<LoopbackConnection>& connection,
             BreakKind kind) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsCut(const LoopbackConnection& connection) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArmPartitionTimer(const std::shared_ptr<LoopbackConnection>& connection)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PartitionTimedOut(const std::shared_ptr<LoopbackConnection>& connection)
      ABSL_LOCKS_EXCLUDED(mutex_);
  Connections ConnectionsOf(const std::string& name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a frame of the lane's sender goes nowhere.
  bool IsSilenced(const LoopbackLane& lane)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration DrawDelay() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Executor& executor_;
  const Clock& clock_;

  mutable Mutex mutex_;
  // Signalled when a delivery has ended.
  CondVar delivered_;
  LoopbackOptions options_ ABSL_GUARDED_BY(mutex_);
  Random& random_ ABSL_GUARDED_BY(mutex_);
  LoopbackFaults faults_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Router*> routers_ ABSL_GUARDED_BY(mutex_);
  // Deliveries that run now, by server.
  std::map<std::string, int> deliveries_ ABSL_GUARDED_BY(mutex_);
  // When each began, so that a timer knows its own partition.
  std::map<Pair, absl::Duration> partitions_ ABSL_GUARDED_BY(mutex_);
  // Frames that each silenced server still sends.
  std::map<std::string, int> silenced_ ABSL_GUARDED_BY(mutex_);
  // Those alive, by number.
  std::map<uint64_t, std::shared_ptr<LoopbackConnection>> connections_
      ABSL_GUARDED_BY(mutex_);
  // Lanes with held frames, in the order in which they were held.
  std::vector<std::shared_ptr<LoopbackLane>> held_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_number_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace cohort::rpc
