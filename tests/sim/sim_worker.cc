#include "tests/sim/sim_worker.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/job_id.h"
#include "common/status_util.h"
#include "head/store/records_codec.h"
#include "rpc/wire_values.h"

namespace cohort::sim {
namespace {

// One preparation in so many fails: a full disk, a package that is gone.
constexpr uint64_t kPrepareFailsOneIn = 60;
v1::Register RegistrationOf(const NodeId& node, const NodeKind& kind,
                            uint64_t nonce) {
  v1::Register registration;
  const bool is_other = kind.protocol != 0;
  registration.mutable_protocol()->set_min_version(
      is_other ? kind.protocol : worker::kProtocolMin);
  registration.mutable_protocol()->set_max_version(
      is_other ? kind.protocol : worker::kProtocolMax);
  registration.set_node_id(std::string(node.bytes()));
  registration.set_name(kind.name);
  registration.set_host(kind.host);
  registration.set_daemon_nonce(nonce);
  *registration.mutable_resources() = rpc::ToWire(kind.resources);
  for (const std::string& gpu : kind.gpus) {
    v1::Device* device = registration.add_devices();
    device->set_id(gpu);
    device->set_kind("gpu");
    device->set_model(kind.gpu_model);
    device->set_simulated(true);
  }
  for (const auto& [key, value] : kind.labels) {
    (*registration.mutable_labels())[key] = value;
  }
  if (!kind.taint.empty()) registration.add_taints()->set_key(kind.taint);
  return registration;
}

}  // namespace

// ProcessHost on a Machine: what it does takes time, and a daemon that dies
// meanwhile never hears of it.
class WorkerDaemon::Host final : public worker::ProcessHost {
 public:
  Host(World world, Machine& machine, Executor& process)
      : world_(world), machine_(machine), process_(process) {}

  void SetListener(Listener listener) override {
    listener_ = std::move(listener);
    machine_.SetDaemon(
        [this](const worker::KeeperEvent& event) {
          process_.Post([this, event] { listener_.on_event(event); });
        },
        [this](const ProcessId& id, uint64_t count, std::string json) {
          process_.Post([this, id, count, json = std::move(json)] {
            listener_.on_metrics(id, count, json);
          });
        });
  }

  void Save(const AttemptId& attempt, worker::PlaceEntry entry,
            worker::Durability, Done done) override {
    // On disk at once or never, and then told or not: the order of saves holds.
    After(Disk(), [this, attempt, entry = std::move(entry),
                   done = std::move(done)]() mutable {
      machine_.places[attempt] = std::move(entry);
      std::move(done)(absl::OkStatus());
    });
  }
  void Save(const ProcessId& process, worker::ProcessEntry entry,
            worker::Durability, Done done) override {
    After(Disk(), [this, process, entry = std::move(entry),
                   done = std::move(done)]() mutable {
      machine_.processes[process] = std::move(entry);
      std::move(done)(absl::OkStatus());
    });
  }

  void Prepare(const v1::DesiredPlace& place,
               absl::AnyInvocable<void(absl::StatusOr<int>) &&> done) override {
    CheckDurable(place);
    const bool fails = world_.random.Below(kPrepareFailsOneIn) == 0;
    const int port = static_cast<int>(20'000 + world_.random.Below(10'000));
    process_.PostAfter(
        absl::Milliseconds(world_.random.Below(50)),
        [this, fails, port, holds_zero = place.reserves_port(),
         done = std::move(done)]() mutable {
          if (!fails) return std::move(done)(holds_zero ? port : 0);
          const bool own_fault = port % 2 == 0;
          world_.counters.Count(own_fault ? "node_failed" : "prepare_failed");
          const absl::Status full =
              absl::ResourceExhaustedError("the disk is full");
          std::move(done)(own_fault ? SetReason(full, worker::kNodeFault)
                                    : full);
        });
  }

  void Begin(const v1::DesiredPlace& place, std::vector<ProcessId> which,
             Done done) override {
    // Long enough, now and then, to be killed meanwhile.
    const uint64_t ms_max = world_.random.Below(10) == 0 ? 2000 : 20;
    process_.PostAfter(absl::Milliseconds(world_.random.Below(ms_max)),
                       [this, place, which = std::move(which),
                        generation = machine_.binding->generation(),
                        done = std::move(done)]() mutable {
                         // Its events are posted: they follow `done`.
                         machine_.Begin(place, which, generation);
                         std::move(done)(absl::OkStatus());
                       });
  }

  void Adopt(const v1::DesiredPlace& place,
             worker::KeeperHost::AdoptCallback done) override {
    const AttemptId id = *AttemptId::FromBytes(place.attempt_id());
    process_.Post([this, id, done = std::move(done)]() mutable {
      const auto known = machine_.KnownOf(id);
      world_.counters.Count(known.has_value() ? "adopted" : "adopted_nothing");
      if (!known.has_value()) {
        return std::move(done)(absl::NotFoundError("no such keeper"));
      }
      std::move(done)(worker::AdoptedKeeper{.known = *known, .message = ""});
      machine_.Replay(id);
    });
  }

  void Revoke(const AttemptId&) override { world_.counters.Count("revoked"); }
  void Stop(const ProcessId& process, absl::Duration grace) override {
    machine_.Stop(process, grace);
  }
  void Kill(const ProcessId& process) override { machine_.Kill(process); }

  void Forget(const ProcessId& process, Done done) override {
    After(Disk(), [this, process, done = std::move(done)]() mutable {
      machine_.Remove(process);
      machine_.processes.erase(process);
      std::move(done)(absl::OkStatus());
    });
  }
  void Forget(const AttemptId& attempt, Done done) override {
    After(Disk(), [this, attempt, done = std::move(done)]() mutable {
      machine_.Remove(attempt);
      machine_.places.erase(attempt);
      std::erase_if(machine_.processes, [&](const auto& each) {
        return each.first.attempt == attempt;
      });
      std::move(done)(absl::OkStatus());
    });
  }

  void RemoveCheckpoint(const v1::DesiredPlace&, const std::string&,
                        Done done) override {
    world_.counters.Count("checkpoint_removed");
    After(absl::Milliseconds(1), [done = std::move(done)]() mutable {
      std::move(done)(absl::OkStatus());
    });
  }

  void ReadStderrTail(const ProcessId& process,
                      absl::AnyInvocable<void(std::string) &&> done) override {
    After(absl::Milliseconds(1), [process, done = std::move(done)]() mutable {
      std::move(done)(absl::StrCat("slot ", process.slot, " said why"));
    });
  }

 private:
  // Writes reach the disk in order: the next is done no earlier than the last.
  absl::Duration Disk() {
    const absl::Duration now = world_.clock.Monotonic();
    disk_free_ = std::max(disk_free_, now) +
                 absl::Microseconds(100 + world_.random.Below(3000));
    return disk_free_ - now;
  }
  void After(absl::Duration delay, Task task) {
    process_.PostAfter(delay, std::move(task));
  }
  // CM-1: nothing is begun that the head could forget.
  void CheckDurable(const v1::DesiredPlace& place) {
    const AttemptId id = *AttemptId::FromBytes(place.attempt_id());
    if (world_.checks_durability && !world_.before_restore.contains(id) &&
        !world_.disk.FindSynced(head::Table::kAttempts, head::RowKey(id))
             .has_value()) {
      machine_.Violate(
          "CM-1: a worker heard of an attempt before it was "
          "durable");
    }
  }

  World world_;
  Machine& machine_;
  Executor& process_;
  Listener listener_;
  absl::Duration disk_free_;
};

class WorkerDaemon::Binding final : public worker::ClusterBinding {
 public:
  Binding(Machine& machine, Executor& process)
      : machine_(machine), process_(process) {}

  std::optional<v1::Stamp> Current() const override { return machine_.binding; }
  void Save(const v1::Stamp& stamp,
            absl::AnyInvocable<void(absl::Status) &&> done) override {
    process_.PostAfter(absl::Milliseconds(1),
                       [this, stamp, done = std::move(done)]() mutable {
                         machine_.binding = stamp;
                         std::move(done)(absl::OkStatus());
                       });
  }

 private:
  Machine& machine_;
  Executor& process_;
};

WorkerDaemon::WorkerDaemon(World world, Machine& machine, const NodeId& node,
                           const NodeKind& kind)
    : world_(world),
      machine_(machine),
      process_(world.executor),
      channel_(world.network.Connect(machine.name(), "head", world.credential)),
      host_(std::make_unique<Host>(world, machine, process_)),
      binding_(std::make_unique<Binding>(machine, process_)),
      router_({}, rpc::Authenticator(world.credential), world.clock) {
  // Each place in a message of its own: registrations have many, and break in
  // the middle (NS-5).
  node_.emplace(
      *host_, world.clock,
      worker::NodeState::Events{
          .on_change = [this] { link_->NoteChange(); },
          .on_fault =
              [this](const absl::Status& why) { readiness_->NoteFault(why); },
          .on_begun = [this] { readiness_->NoteBegun(); }},
      /*message_bytes=*/1);
  // No look finds a cause: what was full when an attempt could not begin is so
  // for as long as the back-off says.
  readiness_.emplace(
      worker::NodeReadinessOptions(), process_, process_, nullptr,
      [this](const std::string& not_ready) { OnReadiness(not_ready); });
  MakeLink(node, kind);
  MakeRunService();
  world.network.Listen(machine.name() + ".sock", &router_);
  if (machine.flaw() == Flaw::kLosesReports) {
    machine.places.clear();
    machine.processes.clear();
  }
  Restore();
}

void WorkerDaemon::MakeLink(const NodeId& node, const NodeKind& kind) {
  for (const std::string& gpu : kind.gpus) {
    devices_.emplace_back().set_id(gpu);
    devices_.back().set_state(v1::DEVICE_STATE_HEALTHY);
  }
  link_.emplace(
      RegistrationOf(node, kind, world_.random.Uint64()), *channel_, *node_,
      *binding_, process_, world_.random,
      worker::HeadLink::Events{
          .on_joined = [this] { OnJoined(); },
          .on_send_log = [](const v1::Stamp&, const v1::SendLog&) {},
          .on_refused =
              [this](const absl::Status& why) {
                const std::string reason = GetReason(why);
                world_.counters.Count(absl::StrCat(
                    "worker_refused_", reason.empty() ? "otherwise" : reason));
              },
          .devices = [this] { return devices_; }});
}

void WorkerDaemon::MakeRunService() {
  run_service_.emplace(
      router_, process_, *node_,
      worker::RunPaths{
          .host = machine_.name(),
          .runtime_directory = [](const AttemptId& id) { return id.ToHex(); },
          .checkpoint_root =
              [](const v1::DesiredPlace& begun) {
                return absl::StrCat("/results/", JobIdText(begun.job_id()),
                                    "/attempt-", begun.number(), ".",
                                    begun.epoch());
              }});
}

void WorkerDaemon::Restore() {
  worker::JournalEntries entries;
  for (const auto& [id, entry] : machine_.places) {
    entries.places.push_back(entry);
  }
  for (const auto& [id, entry] : machine_.processes) {
    entries.processes.push_back(entry);
  }
  process_.Post([this, entries = std::move(entries)]() mutable {
    node_->Restore(std::move(entries),
                   [this] { readiness_->Start([this] { link_->Start(); }); });
  });
}

void WorkerDaemon::OnReadiness(const std::string& not_ready) {
  if (!not_ready.empty()) world_.counters.Count("node_not_ready");
  link_->SetNotReady(not_ready);
}

bool WorkerDaemon::SickenADevice(bool suspect, absl::Duration time) {
  if (devices_.empty()) return false;
  const size_t index = world_.random.Below(devices_.size());
  SetDevice(index,
            suspect ? v1::DEVICE_STATE_SUSPECT : v1::DEVICE_STATE_FENCED);
  process_.PostAfter(
      time, [this, index] { SetDevice(index, v1::DEVICE_STATE_HEALTHY); });
  return true;
}

void WorkerDaemon::SetDevice(size_t index, v1::DeviceState state) {
  v1::DeviceStatus& device = devices_[index];
  device.set_state(state);
  const bool fenced = state == v1::DEVICE_STATE_FENCED;
  device.set_reason(state == v1::DEVICE_STATE_HEALTHY
                        ? ""
                        : absl::StrCat("GPU ", device.id(), ": Xid 94"));
  link_->NoteDevices();
  node_->NoteDeviceFault(device.id(), fenced ? device.reason() : "",
                         /*lost=*/false);
}

void WorkerDaemon::OnJoined() {
  world_.counters.Count("joined");
  if (machine_.flaw() != Flaw::kEndsOnItsOwn) return;
  machine_.StopAll(absl::Seconds(1));
}

WorkerDaemon::~WorkerDaemon() {
  machine_.SetDaemon(nullptr, nullptr);
  process_.Kill();
  world_.network.Kill(machine_.name() + ".sock");
  world_.network.Kill(machine_.name());
}

}  // namespace cohort::sim
