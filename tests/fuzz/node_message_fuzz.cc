// A worker that lies: whatever it sends, the head's state holds its invariants
// and is what a restart would find.
//
// An input is a row of WorkerMessages, each after two bytes with its length.

#include <utility>

#include "absl/strings/match.h"

#include "common/check.h"
#include "common/random.h"
#include "common/testing/manual_executor.h"
#include "head/services/node_wire.h"
#include "head/state/cluster_state.h"
#include "head/state/rows.h"
#include "head/store/memory_store.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"
#include "head/testing/no_links.h"
#include "tests/fuzz/fuzz.h"
#include "tests/sim/sim_invariants.h"

namespace head = cohort::head;
namespace v1 = cohort::v1;

namespace {

// Ids that the seeds know.
std::string Id(char c) { return std::string(16, c); }

head::Rows Stored() {
  head::Rows rows;
  rows.cluster = head::NewCluster();
  rows.cluster->set_cluster_id(Id('c'));
  rows.cluster->set_term(1);
  head::NodeRecord node;
  node.id = *cohort::NodeId::FromBytes(Id('n'));
  node.node.set_name("node");
  head::SetResources(node.node, *cohort::ParseResources("CPU=4,GPU=2"));
  head::AddDevice(node.node, {.id = "g0", .kind = "gpu"});
  head::AddDevice(node.node, {.id = "g1", .kind = "gpu"});
  rows.nodes.push_back(node);
  for (const char c : {'1', '2'}) {
    head::JobRecord job(*cohort::JobId::FromBytes(Id(c)));
    job.row.set_sequence(static_cast<uint64_t>(c - '0'));
    job.row.set_state(c == '1' ? v1::JOB_STATE_RUNNING
                               : v1::JOB_STATE_STARTING);
    head::SetCommand(job.spec.Own(), {"train"});
    job.spec.Own().mutable_scaling()->set_num_workers(2);
    job.spec.Own().mutable_run()->set_num_to_keep(1);
    job.spec.Own().mutable_run()->set_max_failures(1);
    head::SetResources(job.spec.Own(), *cohort::ParseResources("CPU=1"));
    job.spec.Own().mutable_run()->set_restart(
        c == '1' ? v1::RESTART_POLICY_ALL : v1::RESTART_POLICY_ONE);
    job.row.set_num_workers(2);
    job.row.set_incarnations(2);
    job.row.set_attempts(1);
    job.row.set_epoch(1);
    rows.jobs.push_back(job);
    head::AttemptRecord attempt;
    attempt.id = *cohort::AttemptId::FromBytes(Id(c));
    attempt.job = job.id;
    attempt.number = 1;
    attempt.epoch = 1;
    attempt.state =
        c == '1' ? v1::ATTEMPT_STATE_RUNNING : v1::ATTEMPT_STATE_PREPARING;
    attempt.places = {{.node = node.id,
                       .phase = c == '1' ? v1::PLACE_PHASE_RUNNING
                                         : v1::PLACE_PHASE_ASSIGNED}};
    for (int slot = 0; slot < 2; ++slot) {
      head::Process& process = attempt.processes.emplace_back();
      process.slot = process.local_rank = slot;
      process.incarnation = static_cast<uint64_t>(slot) + 1;
      process.node = node.id;
    }
    rows.attempts.push_back(attempt);
  }
  return rows;
}

// A head with two jobs on one node, and what it stores.
class World {
 public:
  World()
      : node_(*cohort::NodeId::FromBytes(Id('n'))),
        state_({}, time_, random_, nobody_, nobody_, Stored()) {
    const head::Rows rows = Stored();
    head::Batch batch = {head::ToWrite(*rows.cluster)};
    for (const auto& node : rows.nodes) batch.push_back(head::ToWrite(node));
    for (const auto& job : rows.jobs) {
      batch.push_back(head::ToWrite(job));
      batch.push_back(head::ToWrite(head::SpecRecord{job.id, job.spec}));
    }
    for (const auto& each : rows.attempts) batch.push_back(head::ToWrite(each));
    COHORT_CHECK(head::MemoryStore(disk_).Append(0, batch).ok());
  }

  void Take(const v1::WorkerMessage& message) {
    head::Transition transition;
    if (message.has_register_()) {
      const auto registration = head::FromWire(message.register_());
      if (!registration.ok()) return;
      const auto registered = state_.RegisterNode(*registration, transition);
      if (registered.ok() && registration->id == node_) {
        incarnation_ = registered->incarnation;
      }
    } else if (message.has_observed()) {
      const absl::Status taken =
          state_.Observe(node_, incarnation_, message.observed(), transition);
      COHORT_CHECK(taken.ok() || transition.empty()) << taken;
    } else if (message.has_heartbeat()) {
      state_.NoteDevices(node_, incarnation_,
                         head::FromWire(message.heartbeat().devices()),
                         transition);
    } else {
      time_.AdvanceBy(absl::Seconds(1));
      state_.Tick(transition);
    }
    COHORT_CHECK(
        head::MemoryStore(disk_).Append(1, transition.TakeBatch()).ok());
  }

  void Check() {
    const std::string violation = cohort::sim::CheckState(state_);
    // It came back smaller than what it holds: nothing more is placed there.
    COHORT_CHECK(violation.empty() ||
                 absl::StartsWith(violation, "PL-2: more is held"))
        << violation;
    const std::string rebuilt =
        cohort::sim::CheckRebuilt(state_, disk_, {}, time_);
    COHORT_CHECK(rebuilt.empty()) << rebuilt;
  }

 private:
  cohort::ManualExecutor time_;
  cohort::SeededRandom random_{1};
  head::NoLinks nobody_;
  head::MemoryDisk disk_;
  const cohort::NodeId node_;
  uint64_t incarnation_ = 0;
  head::ClusterState state_;
};

std::string Framed(const v1::WorkerMessage& message) {
  const std::string bytes = message.SerializeAsString();
  COHORT_CHECK(bytes.size() < 1 << 16);
  std::string framed;
  framed.push_back(static_cast<char>(bytes.size() >> 8));
  framed.push_back(static_cast<char>(bytes.size()));
  return framed + bytes;
}

v1::WorkerMessage Register() {
  v1::WorkerMessage message;
  v1::Register& reg = *message.mutable_register_();
  reg.set_node_id(Id('n'));
  reg.set_name("node");
  reg.set_host("127.0.0.1");
  for (const auto& [name, units] : {std::pair("CPU", 4), std::pair("GPU", 2)}) {
    auto* amount = reg.mutable_resources()->add_amounts();
    amount->set_name(name);
    amount->set_ten_thousandths(units * 10'000);
  }
  for (const char* id : {"g0", "g1"}) {
    v1::Device* device = reg.add_devices();
    device->set_id(id);
    device->set_kind("gpu");
  }
  reg.mutable_observed()->set_full(true);
  return message;
}

v1::WorkerMessage Devices(v1::DeviceState state) {
  v1::WorkerMessage message;
  v1::DeviceStatus& device = *message.mutable_heartbeat()->add_devices();
  device.set_id("g0");
  device.set_state(state);
  device.set_reason("Xid 48");
  device.mutable_sample()->set_ecc_volatile(1);
  return message;
}

v1::WorkerMessage Observe(char c, v1::ProcessState state) {
  v1::WorkerMessage message;
  v1::ObservedPlace& place = *message.mutable_observed()->add_places();
  place.set_attempt_id(Id(c));
  place.set_job_id(Id(c));
  place.set_epoch(1);
  place.set_phase(v1::PHASE_PREPARED);
  place.set_master_port(4000);
  for (int slot = 0; slot < 2; ++slot) {
    v1::ObservedProcess& seen = *place.add_processes();
    seen.set_slot(slot);
    seen.set_incarnation(static_cast<uint64_t>(slot) + 1);
    seen.set_pid(100 + slot);
    seen.set_state(state);
    if (state != v1::PROCESS_STATE_ENDED) continue;
    seen.set_end_cause(v1::END_CAUSE_EXITED);
    seen.mutable_exit()->set_code(slot);
    seen.set_exit_order(2 - slot);
  }
  auto& checkpoint = *place.add_checkpoints();
  checkpoint.set_path("/results/x/attempt-1.1/step-3");
  checkpoint.set_step(3);
  checkpoint.set_epoch(1);
  return message;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string begin = Framed(Register());
  const std::string tick = Framed(v1::WorkerMessage());
  return {begin + Framed(Observe('1', v1::PROCESS_STATE_RUNNING)) + tick,
          begin + Framed(Observe('1', v1::PROCESS_STATE_ENDED)) + tick,
          begin + Framed(Observe('2', v1::PROCESS_STATE_PENDING)) +
              Framed(Observe('2', v1::PROCESS_STATE_RUNNING)) +
              Framed(Observe('2', v1::PROCESS_STATE_ENDED)),
          begin + Framed(Devices(v1::DEVICE_STATE_FENCED)) +
              Framed(Observe('1', v1::PROCESS_STATE_ENDED)) + tick +
              Framed(Devices(v1::DEVICE_STATE_HEALTHY)),
          begin + tick + tick + begin +
              Framed(Observe('9', v1::PROCESS_STATE_RUNNING))};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World world;
  for (int messages = 0; size >= 2 && messages < 16; ++messages) {
    const size_t length = std::min<size_t>(size - 2, data[0] << 8 | data[1]);
    v1::WorkerMessage message;
    if (message.ParseFromArray(data + 2, static_cast<int>(length))) {
      world.Take(message);
    }
    data += 2 + length;
    size -= 2 + length;
  }
  world.Check();
  return 0;
}
