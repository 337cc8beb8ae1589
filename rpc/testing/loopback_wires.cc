#include "rpc/testing/loopback_wires.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "rpc/testing/loopback_call.h"

namespace cohort::rpc {

void LoopbackWires::Listen(const std::string& name, Router* router) {
  MutexLock lock(mutex_);
  const bool added = routers_.emplace(name, router).second;
  COHORT_CHECK(added) << name << " listens already";
}

void LoopbackWires::Unlisten(const std::string& name, BreakKind kind) {
  Connections connections;
  {
    MutexLock lock(mutex_);
    routers_.erase(name);
    silenced_.erase(name);
    while (deliveries_[name] > 0) delivered_.Wait(mutex_);
    connections = ConnectionsOf(name);
  }
  for (const auto& connection : connections) {
    if (connection->server == name) {
      Break(connection, kind);
    } else if (kind == BreakKind::kServerKilled) {
      Break(connection, BreakKind::kClientKilled);
    }
  }
}

void LoopbackWires::Close() {
  Connections connections;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, connection] : connections_) {
      connections.push_back(connection);
    }
  }
  for (const auto& connection : connections) {
    Break(connection, BreakKind::kServerKilled);
  }
}

void LoopbackWires::Partition(const std::string& a, const std::string& b) {
  MutexLock lock(mutex_);
  if (!partitions_.emplace(Ordered(a, b), clock_.Monotonic()).second) return;
  for (const auto& [number, connection] : connections_) {
    if (IsCut(*connection)) ArmPartitionTimer(connection);
  }
}

void LoopbackWires::Heal(const std::string& a, const std::string& b) {
  MutexLock lock(mutex_);
  partitions_.erase(Ordered(a, b));
  std::vector<std::shared_ptr<LoopbackLane>> held = std::move(held_);
  held_.clear();
  for (const auto& lane : held) {
    if (IsCut(*lane->connection)) {
      held_.push_back(lane);
      continue;
    }
    for (; lane->held > 0; --lane->held) ScheduleArrival(lane);
  }
}

void LoopbackWires::HealAll() {
  std::vector<Pair> pairs;
  {
    MutexLock lock(mutex_);
    for (const auto& [pair, since] : partitions_) pairs.push_back(pair);
  }
  for (const Pair& pair : pairs) Heal(pair.first, pair.second);
}

void LoopbackWires::BreakAll(const std::string& name) {
  Connections connections;
  {
    MutexLock lock(mutex_);
    connections = ConnectionsOf(name);
  }
  for (const auto& connection : connections) {
    Break(connection, BreakKind::kNetwork);
  }
}

void LoopbackWires::SilenceAfter(const std::string& name, int frames) {
  MutexLock lock(mutex_);
  silenced_[name] = frames;
}

bool LoopbackWires::IsSilenced(const LoopbackLane& lane) {
  if (!lane.from_server || silenced_.empty()) return false;
  const auto left = silenced_.find(lane.connection->server);
  if (left == silenced_.end() || left->second-- > 0) return false;
  left->second = 0;
  ++faults_.silenced;
  return true;
}

void LoopbackWires::SetBreakProbability(double probability) {
  MutexLock lock(mutex_);
  options_.break_probability = probability;
}

LoopbackFaults LoopbackWires::faults() const {
  MutexLock lock(mutex_);
  return faults_;
}

size_t LoopbackWires::window_bytes() const {
  MutexLock lock(mutex_);
  return options_.window_bytes;
}

std::shared_ptr<LoopbackConnection> LoopbackWires::Connect(
    const std::shared_ptr<LoopbackConnection>& current,
    const std::string& client, const std::string& server) {
  MutexLock lock(mutex_);
  if (current != nullptr && current->alive) return current;
  if (routers_.count(server) == 0) return nullptr;
  auto connection = std::make_shared<LoopbackConnection>();
  connection->number = next_number_++;
  connection->client = client;
  connection->server = server;
  connections_.emplace(connection->number, connection);
  if (IsCut(*connection)) ArmPartitionTimer(connection);
  return connection;
}

absl::Duration LoopbackWires::Refuse() {
  MutexLock lock(mutex_);
  ++faults_.refused;
  return DrawDelay();
}

bool LoopbackWires::Register(LoopbackConnection& connection, uint64_t number,
                             std::shared_ptr<LoopbackCall> call) {
  MutexLock lock(mutex_);
  if (!connection.alive) return false;
  connection.calls.emplace(number, std::move(call));
  return true;
}

void LoopbackWires::Forget(LoopbackConnection& connection, uint64_t number) {
  std::shared_ptr<LoopbackCall> last;  // Destroyed unlocked.
  MutexLock lock(mutex_);
  const auto call = connection.calls.find(number);
  if (call == connection.calls.end()) return;
  last = std::move(call->second);
  connection.calls.erase(call);
}

uint64_t LoopbackWires::NextNumber() {
  MutexLock lock(mutex_);
  return next_number_++;
}

std::vector<std::shared_ptr<LoopbackCall>> LoopbackWires::CallsOf(
    const LoopbackConnection& connection) const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<LoopbackCall>> calls;
  for (const auto& [number, call] : connection.calls) calls.push_back(call);
  return calls;
}

void LoopbackWires::Send(const std::shared_ptr<LoopbackLane>& lane,
                         Task frame) {
  MutexLock lock(mutex_);
  if (!lane->connection->alive || IsSilenced(*lane)) return;
  lane->frames.push_back(std::move(frame));
  ScheduleArrival(lane);
}

void LoopbackWires::ScheduleArrival(const std::shared_ptr<LoopbackLane>& lane) {
  executor_.PostAfter(
      DrawDelay(), [self = shared_from_this(), lane] { self->Arrive(lane); });
}

void LoopbackWires::Arrive(const std::shared_ptr<LoopbackLane>& lane) {
  Task frame;
  bool breaks = false;
  {
    MutexLock lock(mutex_);
    if (!lane->connection->alive) return;
    if (IsCut(*lane->connection)) {
      ++faults_.held;
      if (lane->held++ == 0) held_.push_back(lane);
      ArmPartitionTimer(lane->connection);
      return;
    }
    breaks = options_.break_probability > 0 &&
             random_.Double() < options_.break_probability;
    if (!breaks) {
      frame = std::move(lane->frames.front());
      lane->frames.pop_front();
    }
  }
  if (breaks) {
    Break(lane->connection, BreakKind::kNetwork);
  } else {
    std::move(frame)();
  }
}

Router* LoopbackWires::BeginDelivery(const LoopbackConnection& connection) {
  MutexLock lock(mutex_);
  const auto router = routers_.find(connection.server);
  if (!connection.alive || router == routers_.end()) return nullptr;
  ++deliveries_[connection.server];
  return router->second;
}

void LoopbackWires::EndDelivery(const LoopbackConnection& connection) {
  MutexLock lock(mutex_);
  --deliveries_[connection.server];
  delivered_.SignalAll();
}

void LoopbackWires::CountBroken(bool is_stream, bool server_had_it) {
  MutexLock lock(mutex_);
  if (is_stream) {
    ++faults_.streams_broken;
  } else if (server_had_it) {
    ++faults_.replies_lost;
  } else {
    ++faults_.requests_lost;
  }
}

void LoopbackWires::Break(const std::shared_ptr<LoopbackConnection>& connection,
                          BreakKind kind) {
  std::map<uint64_t, std::shared_ptr<LoopbackCall>> calls;
  {
    MutexLock lock(mutex_);
    if (!connection->alive) return;
    connection->alive = false;
    connections_.erase(connection->number);
    calls.swap(connection->calls);
    ++faults_.broken;
  }
  for (const auto& [number, call] : calls) call->Broken(kind);
}

bool LoopbackWires::IsCut(const LoopbackConnection& connection) const {
  return partitions_.count(Ordered(connection.client, connection.server)) != 0;
}

void LoopbackWires::ArmPartitionTimer(
    const std::shared_ptr<LoopbackConnection>& connection) {
  if (connection->partition_timer) return;
  connection->partition_timer = true;
  executor_.PostAfter(options_.partition_timeout,
                      [self = shared_from_this(), connection] {
                        self->PartitionTimedOut(connection);
                      });
}

void LoopbackWires::PartitionTimedOut(
    const std::shared_ptr<LoopbackConnection>& connection) {
  {
    MutexLock lock(mutex_);
    connection->partition_timer = false;
    const auto partition =
        partitions_.find(Ordered(connection->client, connection->server));
    if (!connection->alive || partition == partitions_.end()) return;
    // Healed and cut again meanwhile: this one has its own time.
    if (clock_.Monotonic() - partition->second < options_.partition_timeout) {
      ArmPartitionTimer(connection);
      return;
    }
    ++faults_.partition_timeouts;
  }
  Break(connection, BreakKind::kNetwork);
}

LoopbackWires::Connections LoopbackWires::ConnectionsOf(
    const std::string& name) const {
  Connections connections;
  for (const auto& [number, connection] : connections_) {
    if (connection->client == name || connection->server == name) {
      connections.push_back(connection);
    }
  }
  return connections;
}

absl::Duration LoopbackWires::DrawDelay() {
  const absl::Duration range = options_.delay_max - options_.delay_min;
  return options_.delay_min + range * random_.Double();
}

}  // namespace cohort::rpc
