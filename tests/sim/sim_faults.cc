// What goes wrong in a SimCluster, and how it is healed.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "rpc/methods.h"
#include "rpc/wire_values.h"
#include "tests/sim/sim_cluster.h"

namespace cohort::sim {
namespace {

// One write in so many is the head's last.
constexpr uint64_t kCrashAtWriteOneIn = 40;
const char* CrashName(Crash crash) {
  switch (crash) {
    case Crash::kBefore:
      return "head_killed_before_write";
    case Crash::kTorn:
      return "head_killed_write_torn";
    case Crash::kAfter:
      return "head_killed_before_sending";
    case Crash::kAmidEffects:
      return "head_killed_amid_effects";
  }
  return "";
}

}  // namespace

void SimCluster::Fired(const std::string& name) {
  counters_.Count(name);
  Say(name);
}

void SimCluster::KillHead() {
  if (head_ == nullptr) return;
  head_.reset();
  head_runs_seen_ = 0;
  next_event_seen_ = 0;
  head_back_at_ =
      executor_.Monotonic() + absl::Milliseconds(20 + random_.Below(3000));
}

void SimCluster::KillDaemon(Node& node, absl::Duration for_at_least,
                            uint64_t and_ms) {
  node.daemon.reset();
  node.back_at = executor_.Monotonic() + for_at_least +
                 absl::Milliseconds(random_.Below(and_ms));
  node.disturbed_at = node.back_at;
}

void SimCluster::Cut(Node& node, absl::Duration time) {
  const std::string name = node.machine->name();
  network_.Partition(name, "head");
  node.cut = true;
  executor_.PostAfter(time, [this, &node, name] {
    network_.Heal(name, "head");
    node.cut = false;
    node.disturbed_at = executor_.Monotonic();
  });
}

void SimCluster::Drain(Node& node) {
  if (node.drain_asked) return;
  node.drain_asked = true;
  Fired("node_drained");
  v1::DrainNodeRequest request;
  request.set_request_id(absl::StrCat("drain-", drains_++));
  request.set_node(node.id.ToHex());
  request.set_reason("to be mended");
  if (random_.Below(2) == 0) {
    *request.mutable_deadline() =
        rpc::ToWire(absl::Milliseconds(random_.Below(4000)));
  }
  absl::Duration time = absl::Milliseconds(200 + random_.Below(9000));
  // So long that what is late is seen.
  if (options_.broken == Break::kHeadClockCrawls) time += absl::Seconds(20);
  const auto done = [this, &node, request, time](const absl::Status& status) {
    if (!status.ok()) {
      // It has not registered yet.
      counters_.Count("drain_refused");
      node.drain_asked = false;
      return;
    }
    executor_.PostAfter(time, [this, &node] { Undrain(node); });
    // A copy of the request that comes late drains nobody (RQ-1).
    executor_.PostAfter(time + absl::Seconds(3), [this, &node, request] {
      clients_[1]->Insist(rpc::kDrainNode, request,
                          [this, &node](const absl::Status&) {
                            // Unless the request is forgotten.
                            if (restores_.count() == 0) return;
                            node.drain_asked = true;
                            Undrain(node);
                          });
    });
  };
  clients_[0]->Insist(rpc::kDrainNode, request, done);
}

void SimCluster::Undrain(Node& node) {
  v1::UndrainNodeRequest request;
  request.set_request_id(absl::StrCat("undrain-", drains_++));
  request.set_node(node.id.ToHex());
  clients_[0]->Insist(rpc::kUndrainNode, request,
                      [this, &node](const absl::Status& status) {
                        if (absl::IsNotFound(status) && restores_.count() > 0) {
                          // It has not registered since with the older store.
                          executor_.PostAfter(absl::Seconds(1),
                                              [this, &node] { Undrain(node); });
                          return;
                        }
                        if (!status.ok())
                          Violate("DR-1: undrain: " + status.ToString());
                        node.drain_asked = false;
                      });
}

void SimCluster::Fault() {
  Node& node = nodes_[random_.Below(nodes_.size())];
  const uint64_t kind = random_.Below(26);
  if (kind < 9) return HeadFault(kind);
  if (kind < 17) return NodeFault(kind - 9, node);
  if (kind < 22) return NetworkFault(kind - 17, node);
  RareFault(kind - 22, node);
}

void SimCluster::RareFault(uint64_t kind, Node& node) {
  switch (kind) {
    case 0:
    case 1:
      return BootACopy(node);
    case 2:
      return SpeakAnotherVersion(node);
    default:
      Fired("follower_killed");
      return followers_[1]->StartAnew();
  }
}

// Another machine boots from an image of this one: the same id, twice.  Made
// before anything ran, the image has no attempts.
void SimCluster::BootACopy(Node& node) {
  if (node.copy != nullptr) return;
  Fired("node_copied");
  node.copy = std::make_unique<Machine>(
      PartsOf(node.machine->name() + "-copy", node.id), executor_, executor_,
      random_, counters_, written_);
  if (random_.Below(2) == 0) {
    Fired("state_directory_copied");
    node.copy->BootFromImageOf(*node.machine);
  }
  NodeKind kind = node.kind;
  kind.host += "-copy";
  node.copy_daemon =
      std::make_unique<WorkerDaemon>(world(), *node.copy, node.id, kind);
  executor_.PostAfter(absl::Milliseconds(500 + random_.Below(9000)),
                      [this, &node] { EndTheCopy(node); });
}

void SimCluster::EndTheCopy(Node& node) {
  node.copy_daemon.reset();
  node.copy->Reboot();
  switched_off_.push_back(std::move(node.copy));
  node.disturbed_at = executor_.Monotonic();
}

void SimCluster::SpeakAnotherVersion(Node& node) {
  if (node.daemon == nullptr || node.kind.protocol != 0) return;
  Fired("worker_of_another_version");
  node.kind.protocol = 1'000;
  KillDaemon(node, absl::Milliseconds(20), 500);
  executor_.PostAfter(absl::Milliseconds(600 + random_.Below(6000)),
                      [this, &node] {
                        node.kind.protocol = 0;
                        KillDaemon(node, absl::Milliseconds(20), 500);
                      });
}

void SimCluster::HeadFault(uint64_t kind) {
  switch (kind) {
    case 0:
      if (head_ == nullptr) break;
      Fired("head_killed");
      KillHead();
      break;
    case 1:
      Fired("power_failed");
      KillHead();
      disk_.PowerOff(random_);
      break;
    case 2:
      crash_at_next_write_ = static_cast<Crash>(random_.Below(4));
      break;
    case 3:
    case 4:
      Fired("append_fails_landed");
      disk_.FailAfter(static_cast<int>(random_.Below(4)),
                      head::AppendFault::kLanded);
      break;
    case 5:
      Fired("append_fails_not_landed");
      disk_.FailAfter(static_cast<int>(random_.Below(4)),
                      head::AppendFault::kNotLanded);
      break;
    case 6:
      Fired("append_fails_unsynced");
      disk_.FailAfter(static_cast<int>(random_.Below(4)),
                      head::AppendFault::kUnsynced);
      break;
    case 7:
      if (head_ == nullptr || head_->stopped()) break;
      // Longer than any lease: nobody may die of it (LS-1).
      Fired("head_paused");
      head_->Stop();
      executor_.PostAfter(absl::Milliseconds(500 + random_.Below(9000)),
                          [this] {
                            if (head_ != nullptr && head_->stopped()) {
                              head_->Continue();
                            }
                          });
      break;
    default:
      Fired("disk_full");
      disk_.Refuse();
      executor_.PostAfter(absl::Milliseconds(random_.Below(4000)),
                          [this] { disk_.Heal(); });
      break;
  }
}

void SimCluster::NodeFault(uint64_t kind, Node& node) {
  switch (kind) {
    case 0:
      if (node.daemon == nullptr) break;
      Fired("worker_killed");
      KillDaemon(node, absl::Milliseconds(20), 6000);
      break;
    case 1:
      if (node.machine->KillAKeeper()) Fired("keeper_killed");
      break;
    case 2:
      if (node.machine->KillARank()) Fired("rank_killed");
      break;
    case 3:
      Fired("machine_rebooted");
      KillDaemon(node, absl::Milliseconds(500), 9000);
      node.machine->Reboot();
      break;
    case 4: {
      if (node.daemon == nullptr) break;
      Fired("worker_paused");
      node.daemon->Stop();
      const absl::Duration time = absl::Milliseconds(200 + random_.Below(8000));
      node.disturbed_at = executor_.Monotonic() + time;
      executor_.PostAfter(time, [&node] {
        if (node.daemon != nullptr) node.daemon->Continue();
      });
      break;
    }
    case 5:
      Drain(node);
      break;
    case 6: {
      if (node.daemon == nullptr || node.daemon->stopped()) break;
      const bool suspect = random_.Below(3) == 0;
      if (node.daemon->SickenADevice(
              suspect, absl::Milliseconds(500 + random_.Below(6000)))) {
        Fired(suspect ? "device_suspect" : "device_fenced");
      }
      break;
    }
    default:
      clients_[random_.Below(clients_.size())]->Die();
      Fired("client_killed");
      break;
  }
}

void SimCluster::NetworkFault(uint64_t kind, Node& node) {
  switch (kind) {
    case 0:
    case 1:
      Fired("partitioned");
      Cut(node, absl::Milliseconds(random_.Below(12'000)));
      break;
    case 2:
      Fired("connections_broken");
      network_.BreakAll(random_.Below(2) == 0 ? "head" : node.machine->name());
      break;
    case 3: {
      Fired("client_partitioned");
      const std::string name = absl::StrCat("client-", random_.Below(3));
      network_.Partition(name, "head");
      executor_.PostAfter(absl::Milliseconds(random_.Below(9000)),
                          [this, name] { network_.Heal(name, "head"); });
      break;
    }
    default:
      // Days, so that code that counts time by it is found out.
      if (random_.Below(2) == 0) {
        Fired("clock_stepped_forward");
        clock_.Step(absl::Hours(72) * random_.Double());
      } else {
        Fired("clock_stepped_back");
        clock_.Step(-absl::Hours(72) * random_.Double());
      }
      break;
  }
}

std::optional<head::AppendFault> SimCluster::OnWrite(const head::Batch& batch) {
  if (restoring_) return std::nullopt;
  ++writes_;
  std::optional<head::AppendFault> fault;
  if (writes_ == options_.crash_at_write) {
    fault = CrashNow(options_.crash);
  } else if (faulty_ && crash_at_next_write_.has_value()) {
    fault = CrashNow(*std::exchange(crash_at_next_write_, std::nullopt));
  } else if (faulty_ && random_.Below(kCrashAtWriteOneIn) == 0) {
    fault = CrashNow(static_cast<Crash>(random_.Below(4)));
  }
  if (!fault.has_value() && options_.broken != Break::kStoreSkipsSyncs &&
      options_.broken != Break::kStoreSkipsSyncsUnseen) {
    const std::string violation = history_.OnDurable(batch);
    if (!violation.empty()) Violate(violation);
  }
  return fault;
}

std::optional<head::AppendFault> SimCluster::CrashNow(Crash crash) {
  Fired(CrashName(crash));
  crashing_ = crash;
  switch (crash) {
    case Crash::kBefore:
      return head::AppendFault::kNotLanded;
    case Crash::kTorn:
      return head::AppendFault::kUnsynced;
    case Crash::kAmidEffects:
      silenced_before_ = network_.faults().silenced;
      crash_at_the_latest_ = executor_.Monotonic() + absl::Milliseconds(50);
      network_.SilenceAfter("head", static_cast<int>(random_.Below(3)));
      return std::nullopt;
    case Crash::kAfter:
      break;
  }
  return std::nullopt;
}

void SimCluster::FinishCrash() {
  if (!crashing_.has_value()) return;
  if (*crashing_ == Crash::kAmidEffects &&
      network_.faults().silenced == silenced_before_ &&
      executor_.Monotonic() < crash_at_the_latest_) {
    return;
  }
  KillHead();
  if (*crashing_ == Crash::kTorn) disk_.PowerOff(random_);
  crashing_.reset();
}

void SimCluster::HealEverything() {
  faulty_ = false;
  crash_at_next_write_.reset();
  network_.SetBreakProbability(0);
  network_.HealAll();
  disk_.Heal();
  clock_.CatchUp();
  if (head_ != nullptr && head_->stopped()) head_->Continue();
  if (options_.broken == Break::kHeadFallsSilent) {
    network_.SilenceAfter("head", 0);
  }
  for (const auto& program : programs_) {
    program->Calm();
    executor_.PostAfter(absl::Milliseconds(random_.Below(3000)),
                        [each = program.get()] { each->Finish(); });
  }
  Say("healed");
}

}  // namespace cohort::sim
