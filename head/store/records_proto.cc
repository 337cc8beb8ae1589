#include "head/store/records_proto.h"

#include <map>
#include <utility>

#include "absl/time/time.h"

namespace cohort::head {
namespace {

// The message package; `storage` is also a word of ours.
namespace pb = ::cohort::storage::v1;

template <typename Amounts>
void AmountsToProto(const Amounts& amounts,
                    google::protobuf::RepeatedPtrField<pb::Amount>* out) {
  for (const auto& [name, amount] : amounts) {
    pb::Amount* const entry = out->Add();
    entry->set_name(name);
    entry->set_ten_thousandths(amount.ten_thousandths());
  }
}

std::map<std::string, Amount> ToAmounts(
    const google::protobuf::RepeatedPtrField<pb::Amount>& entries) {
  std::map<std::string, Amount> amounts;
  for (const pb::Amount& entry : entries) {
    amounts[entry.name()] = Amount::FromTenThousandths(entry.ten_thousandths());
  }
  return amounts;
}

// What code takes for granted of a spec that was accepted.
void CheckSpec(const JobSpec& spec, FieldReader& reader) {
  reader.ToEnum(spec.scaling().placement_strategy(),
                v1::PLACEMENT_STRATEGY_UNSPECIFIED,
                v1::PLACEMENT_STRATEGY_STRICT_SPREAD, "placement strategy");
  reader.ToEnum(spec.run().restart(), v1::RESTART_POLICY_UNSPECIFIED,
                v1::RESTART_POLICY_NONE, "restart policy");
  for (const Dependency& each : spec.after()) {
    reader.ToId<JobId>(each.job_id(), "dependency");
    reader.ToEnum(each.kind(), v1::DEPENDENCY_KIND_UNSPECIFIED,
                  v1::DEPENDENCY_KIND_ANY, "dependency's kind");
  }
}

// The row that has it also has its node.
void ToProto(const Process& process, pb::Process* out) {
  out->set_slot(process.slot);
  out->set_incarnation(process.incarnation);
  out->set_local_rank(process.local_rank);
  AmountsToProto(process.devices, out->mutable_devices());
  out->set_state(process.state);
  if (process.exit.has_value()) *out->mutable_exit() = *process.exit;
  out->set_ran_us(absl::ToInt64Microseconds(process.ran));
  out->set_failures(process.failures);
  out->set_moves(process.moves);
  out->set_again(process.again);
  out->set_leaving(process.leaving);
  out->set_retired(process.retired);
}

Process FromProto(const pb::Process& process, FieldReader& reader) {
  Process out;
  out.slot = process.slot();
  out.incarnation = process.incarnation();
  out.local_rank = process.local_rank();
  out.devices = ToAmounts(process.devices());
  out.state = reader.ToEnum(process.state(), v1::PROCESS_STATE_PENDING,
                            v1::PROCESS_STATE_ENDED, "process state");
  if (process.has_exit()) out.exit = process.exit();
  out.ran = absl::Microseconds(process.ran_us());
  out.failures = process.failures();
  out.moves = process.moves();
  out.again = process.again();
  out.leaving = process.leaving();
  out.retired = process.retired();
  return out;
}

}  // namespace

ClusterRecord NewCluster() {
  ClusterRecord cluster;
  cluster.set_schema_version(kSchemaVersion);
  cluster.set_next_event(1);
  cluster.set_next_incarnation(1);
  cluster.set_next_job_sequence(1);
  return cluster;
}

void ToProto(const NodeRecord& record, pb::NodeRow& row) {
  row.set_node_id(IdBytes(record.id));
  row.set_state(record.state);
  row.set_cause(record.cause);
  *row.mutable_node() = record.node;
}

NodeRecord FromProto(const pb::NodeRow& row, FieldReader& reader) {
  for (const Device& device : row.node().devices()) {
    reader.ToEnum(device.state(), v1::DEVICE_STATE_UNSPECIFIED,
                  v1::DEVICE_STATE_FENCED, "device state");
  }
  return {.id = reader.ToId<NodeId>(row.node_id(), "node id"),
          .state = reader.ToEnum(row.state(), v1::NODE_STATE_ALIVE,
                                 v1::NODE_STATE_SUSPECT, "state"),
          .cause = row.cause(),
          .node = row.node()};
}

JobRecord FromProto(pb::JobRow row, FieldReader& reader) {
  reader.ToEnum(row.state(), v1::JOB_STATE_PENDING, v1::JOB_STATE_STOPPED,
                "state");
  reader.ToEnum(row.failure_class(), v1::FAILURE_CLASS_NONE,
                v1::FAILURE_CLASS_TIMEOUT, "failure class");
  for (const v1::ClassCount& each : row.failures_by_class()) {
    reader.ToEnum(each.failure_class(), v1::FAILURE_CLASS_NONE,
                  v1::FAILURE_CLASS_TIMEOUT, "failure class");
  }
  for (const JobPhase& phase : row.phases()) {
    reader.ToEnum(phase.kind(), v1::WAIT_KIND_RESOURCES, v1::WaitKind_MAX,
                  "phase");
  }
  if (row.has_preflight()) {
    reader.ToEnum(row.preflight().report().verdict(),
                  v1::PREFLIGHT_VERDICT_PASSED, v1::PREFLIGHT_VERDICT_FAILED,
                  "preflight's verdict");
  }
  JobRecord record;
  record.id = reader.ToId<JobId>(row.job_id(), "job id");
  record.row = std::move(row);
  return record;
}

void ToProto(const AttemptRecord& record, pb::AttemptRow& row) {
  row.set_attempt_id(IdBytes(record.id));
  row.set_job_id(IdBytes(record.job));
  row.set_number(record.number);
  row.set_epoch(record.epoch);
  row.set_state(record.state);
  std::map<NodeId, int> places;
  for (const Place& place : record.places) {
    pb::Place* const out = row.add_places();
    out->set_node_id(IdBytes(place.node));
    out->set_phase(place.phase);
    out->set_master_port(place.master_port);
    places[place.node] = row.places_size();
  }
  for (const Process& process : record.processes) {
    pb::Process* const out = row.add_processes();
    ToProto(process, out);
    if (!process.node.IsNil()) out->set_place(places.at(process.node));
  }
  row.set_master_address(record.master_address);
  row.set_master_port(record.master_port);
  row.set_cause(record.cause);
  row.set_detail(record.detail);
  if (record.exit.has_value()) *row.mutable_exit() = *record.exit;
  row.set_failed_rank(record.failed_rank);
  row.mutable_causes()->Assign(record.causes.begin(), record.causes.end());
  row.set_gpu_abort_levels(record.gpu_abort_levels);
  *row.mutable_origin() = record.origin;
  row.set_orphaned_since_us(ToMicros(record.orphaned_since));
}

AttemptRecord FromProto(const pb::AttemptRow& row, FieldReader& reader) {
  AttemptRecord record;
  record.id = reader.ToId<AttemptId>(row.attempt_id(), "attempt id");
  record.job = reader.ToId<JobId>(row.job_id(), "job id");
  record.number = row.number();
  record.epoch = row.epoch();
  record.state = reader.ToEnum(row.state(), v1::ATTEMPT_STATE_PREPARING,
                               v1::ATTEMPT_STATE_ENDED, "state");
  for (const pb::Place& place : row.places()) {
    record.places.push_back(
        {.node = reader.ToId<NodeId>(place.node_id(), "place's node id"),
         .phase = reader.ToEnum(place.phase(), v1::PLACE_PHASE_ASSIGNED,
                                v1::PLACE_PHASE_LOST, "place phase"),
         .master_port = place.master_port()});
  }
  for (const pb::Process& process : row.processes()) {
    Process& added = record.processes.emplace_back(FromProto(process, reader));
    const size_t place = static_cast<size_t>(process.place());
    if (place > 0 && place <= record.places.size()) {
      added.node = record.places[place - 1].node;
    }
    reader.Check(
        process.place() >= 0 && place <= record.places.size() &&
            added.slot + 1 == static_cast<int>(record.processes.size()),
        "slot or place");
  }
  record.master_address = row.master_address();
  record.master_port = row.master_port();
  record.cause = reader.ToEnum(row.cause(), v1::ATTEMPT_CAUSE_NONE,
                               v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED, "cause");
  record.detail = row.detail();
  if (row.has_exit()) record.exit = row.exit();
  record.failed_rank = row.failed_rank();
  record.causes.assign(row.causes().begin(), row.causes().end());
  record.gpu_abort_levels = row.gpu_abort_levels();
  record.origin = row.origin();
  record.orphaned_since = FromMicros(row.orphaned_since_us());
  return record;
}

void ToProto(const ProcessRecord& record, pb::ProcessRow& row) {
  row.set_attempt_id(IdBytes(record.attempt));
  ToProto(record.process, row.mutable_process());
  if (!record.process.node.IsNil()) {
    row.set_node_id(IdBytes(record.process.node));
  }
}

ProcessRecord FromProto(const pb::ProcessRow& row, FieldReader& reader) {
  ProcessRecord record;
  record.attempt = reader.ToId<AttemptId>(row.attempt_id(), "attempt id");
  record.process = FromProto(row.process(), reader);
  record.process.node = reader.ToId<NodeId>(row.node_id(), "node id");
  reader.Check(record.process.slot >= 0, "slot");
  record.slot = static_cast<uint64_t>(record.process.slot);
  return record;
}

ArrayRecord FromProto(pb::ArrayRow row, FieldReader& reader) {
  if (row.has_end()) {
    reader.ToEnum(row.end().to(), v1::JOB_STATE_FAILED, v1::JOB_STATE_STOPPED,
                  "end");
    reader.ToEnum(row.end().failure_class(), v1::FAILURE_CLASS_NONE,
                  v1::FAILURE_CLASS_TIMEOUT, "failure class");
  }
  return {.id = reader.ToId<JobId>(row.array_id(), "array id"),
          .spec = {},
          .row = std::move(row)};
}

void CheckRow(const ClusterRecord& cluster, FieldReader& reader) {
  reader.ToId<ClusterId>(cluster.cluster_id(), "cluster id");
  reader.ToId<GenerationId>(cluster.generation(), "generation");
  for (const std::string& attempt : cluster.ended_orphans()) {
    reader.ToId<AttemptId>(attempt, "ended attempt");
  }
}

void CheckRow(const EventRecord& event, FieldReader& reader) {
  reader.ToId<JobId>(event.job_id(), "job id");
  reader.ToId<AttemptId>(event.attempt_id(), "attempt id");
  reader.ToId<NodeId>(event.node_id(), "node id");
  for (const std::string& node : event.node_ids()) {
    reader.ToId<NodeId>(node, "node id");
  }
}

void CheckRow(const WaitReasonRecord& row, FieldReader& reader) {
  for (const v1::Holder& holder : row.reason().blocker().holders()) {
    reader.ToId<JobId>(holder.job_id(), "job id");
  }
}

void CheckRow(const DriverRecord& driver, FieldReader& reader) {
  reader.ToId<DriverId>(driver.driver_id(), "driver id");
  reader.Check(!driver.driver_id().empty(), "driver id");
  reader.ToId<AttemptId>(driver.attempt_id(), "attempt id");
}

void CheckRow(const InstanceRecord& instance, FieldReader& reader) {
  reader.ToId<InstanceId>(instance.instance_id(), "instance id");
  reader.Check(!instance.instance_id().empty(), "instance id");
  reader.ToId<NodeId>(instance.node_id(), "node id");
}

void CheckRow(const MetricsRecord& row, FieldReader& reader) {
  reader.ToId<JobId>(row.job_id(), "job id");
  reader.Check(!row.job_id().empty(), "job id");
  for (const v1::MetricsHistory::Point& point : row.history().points()) {
    reader.Check(point.names_size() == point.values_size(), "values");
    for (const uint32_t name : point.names()) {
      reader.Check(name < static_cast<uint32_t>(row.history().names_size()),
                   "names");
    }
  }
}

void ToProto(const SpecRecord& record, pb::SpecRow& row) {
  row.set_job_id(IdBytes(record.id));
  // Lent, as a spec may be 1 MiB: an arena does not free it.
  row.unsafe_arena_set_allocated_spec(const_cast<JobSpec*>(&*record.spec));
}

SpecRecord FromProto(pb::SpecRow row, FieldReader& reader) {
  CheckSpec(row.spec(), reader);
  return {.id = reader.ToId<JobId>(row.job_id(), "job id"),
          .spec = std::move(*row.mutable_spec())};
}

}  // namespace cohort::head
