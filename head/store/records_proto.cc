#include "head/store/records_proto.h"

#include <map>
#include <utility>

#include "absl/time/time.h"

namespace cohort::head {
namespace {

// The message package; `storage` is also a word of ours.
namespace pb = ::cohort::storage::v1;

// Microseconds since 1970; 0 is "not yet".
int64_t ToMicros(absl::Time time) {
  return time == absl::InfinitePast() ? 0 : absl::ToUnixMicros(time);
}

absl::Time FromMicros(int64_t micros) {
  return micros == 0 ? absl::InfinitePast() : absl::FromUnixMicros(micros);
}

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

template <typename Texts>
void TextsToProto(const Texts& texts,
                  google::protobuf::RepeatedPtrField<std::string>* out) {
  for (const std::string& text : texts) *out->Add() = text;
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

// Its node is told by whoever has it.
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

void ToProto(const ClusterRecord& record, pb::ClusterRow& row) {
  row.set_schema_version(kSchemaVersion);
  row.set_cluster_id(IdBytes(record.cluster));
  row.set_generation(IdBytes(record.generation));
  row.set_term(record.term);
  row.set_next_event(record.next_event);
  row.set_next_incarnation(record.next_incarnation);
  row.set_next_job_sequence(record.next_job_sequence);
  row.set_settling(record.settling);
  row.set_rowless_orphans(record.rowless_orphans);
  for (const AttemptId& attempt : record.ended_orphans) {
    row.add_ended_orphans(IdBytes(attempt));
  }
  for (const HeadLife& life : record.lives) {
    pb::HeadLife& out = *row.add_lives();
    out.set_term(life.term);
    out.set_nonce(life.nonce);
    out.set_first_incarnation(life.first_incarnation);
  }
}

ClusterRecord FromProto(const pb::ClusterRow& row, FieldReader& reader) {
  ClusterRecord record = {
      .cluster = reader.ToId<ClusterId>(row.cluster_id(), "cluster id"),
      .generation = reader.ToId<GenerationId>(row.generation(), "generation"),
      .term = row.term(),
      .next_event = row.next_event(),
      .next_incarnation = row.next_incarnation(),
      .next_job_sequence = row.next_job_sequence(),
      .settling = row.settling(),
      .rowless_orphans = row.rowless_orphans()};
  for (const std::string& attempt : row.ended_orphans()) {
    record.ended_orphans.push_back(
        reader.ToId<AttemptId>(attempt, "ended attempt"));
  }
  for (const pb::HeadLife& life : row.lives()) {
    record.lives.push_back({.term = life.term(),
                            .nonce = life.nonce(),
                            .first_incarnation = life.first_incarnation()});
  }
  return record;
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

void ToProto(const JobRecord& record, pb::JobRow& row) {
  row.set_job_id(IdBytes(record.id));
  *row.mutable_origin() = record.origin;
  row.set_sequence(record.sequence);
  row.set_state(record.state);
  row.set_reason(record.reason);
  row.set_attempts(record.attempts);
  row.set_epoch(record.epoch);
  row.set_incarnations(record.incarnations);
  row.set_num_workers(record.num_workers);
  row.set_failures(record.failures);
  row.set_infra_restarts(record.infra_restarts);
  if (record.exit.has_value()) *row.mutable_exit() = *record.exit;
  row.set_failed_rank(record.failed_rank);
  row.set_stderr_tail(record.stderr_tail);
  row.set_submitted_at_us(ToMicros(record.submitted_at));
  row.set_started_at_us(ToMicros(record.started_at));
  row.set_ended_at_us(ToMicros(record.ended_at));
  row.set_metrics_json(record.metrics_json);
  row.set_metrics_count(record.metrics_count);
  row.mutable_checkpoints()->Assign(record.checkpoints.begin(),
                                    record.checkpoints.end());
  TextsToProto(record.retired, row.mutable_retired());
  for (const auto& [failure_class, count] : record.failures_by_class) {
    pb::ClassCount* const out = row.add_failures_by_class();
    out->set_failure_class(failure_class);
    out->set_count(count);
  }
  row.set_held(record.held);
  row.set_held_by(record.held_by);
  row.set_ran_us(absl::ToInt64Microseconds(record.ran));
  row.set_failure_class(record.failure_class);
  TextsToProto(record.causes, row.mutable_causes());
  for (const JobPhase& phase : record.phases) {
    pb::JobPhase* const out = row.add_phases();
    out->set_kind(phase.kind);
    out->set_since_us(ToMicros(phase.since));
  }
  if (record.preflight.has_value()) {
    *row.mutable_preflight() = *record.preflight;
  }
}

JobRecord FromProto(const pb::JobRow& row, FieldReader& reader) {
  JobRecord record;
  record.id = reader.ToId<JobId>(row.job_id(), "job id");
  record.origin = row.origin();
  record.sequence = row.sequence();
  record.state = reader.ToEnum(row.state(), v1::JOB_STATE_PENDING,
                               v1::JOB_STATE_STOPPED, "state");
  record.reason = row.reason();
  record.attempts = row.attempts();
  record.epoch = row.epoch();
  record.incarnations = row.incarnations();
  record.num_workers = row.num_workers();
  record.failures = row.failures();
  record.infra_restarts = row.infra_restarts();
  if (row.has_exit()) record.exit = row.exit();
  record.failed_rank = row.failed_rank();
  record.stderr_tail = row.stderr_tail();
  record.submitted_at = FromMicros(row.submitted_at_us());
  record.started_at = FromMicros(row.started_at_us());
  record.ended_at = FromMicros(row.ended_at_us());
  record.metrics_json = row.metrics_json();
  record.metrics_count = row.metrics_count();
  record.checkpoints.assign(row.checkpoints().begin(), row.checkpoints().end());
  record.retired.assign(row.retired().begin(), row.retired().end());
  for (const pb::ClassCount& entry : row.failures_by_class()) {
    const FailureClass failure_class =
        reader.ToEnum(entry.failure_class(), v1::FAILURE_CLASS_NONE,
                      v1::FAILURE_CLASS_TIMEOUT, "failure class");
    record.failures_by_class[failure_class] = entry.count();
  }
  record.held = row.held();
  record.held_by = row.held_by();
  record.ran = absl::Microseconds(row.ran_us());
  record.failure_class =
      reader.ToEnum(row.failure_class(), v1::FAILURE_CLASS_NONE,
                    v1::FAILURE_CLASS_TIMEOUT, "failure class");
  record.causes.assign(row.causes().begin(), row.causes().end());
  record.phases.reserve(static_cast<size_t>(row.phases_size()));
  for (const pb::JobPhase& phase : row.phases()) {
    record.phases.push_back(
        {.kind = reader.ToEnum(phase.kind(), v1::WAIT_KIND_RESOURCES,
                               v1::WaitKind_MAX, "phase"),
         .since = FromMicros(phase.since_us())});
  }
  if (row.has_preflight()) {
    record.preflight = row.preflight();
    reader.ToEnum(row.preflight().report().verdict(),
                  v1::PREFLIGHT_VERDICT_PASSED, v1::PREFLIGHT_VERDICT_FAILED,
                  "preflight's verdict");
  }
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
  TextsToProto(record.causes, row.mutable_causes());
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

void ToProto(const ArrayRecord& record, pb::ArrayRow& row) {
  row.set_array_id(IdBytes(record.id));
  *row.mutable_origin() = record.origin;
  row.set_submitted_at_us(ToMicros(record.submitted_at));
  row.set_first_sequence(record.first_sequence);
  if (record.hold.has_value()) {
    row.mutable_hold()->set_held(record.hold->held);
    row.mutable_hold()->set_by(record.hold->by);
    row.mutable_hold()->set_cause(record.hold->cause);
  }
  if (!record.end.has_value()) return;
  pb::ArrayEnd& end = *row.mutable_end();
  end.set_to(record.end->to);
  end.set_reason(record.end->reason);
  for (const std::string& cause : record.end->causes) end.add_causes(cause);
  end.set_failure_class(record.end->failure_class);
  end.set_spares_held(record.end->spares_held);
  end.set_cause(record.end->cause);
}

ArrayRecord FromProto(const pb::ArrayRow& row, FieldReader& reader) {
  ArrayRecord record;
  record.id = reader.ToId<JobId>(row.array_id(), "array id");
  record.origin = row.origin();
  record.submitted_at = FromMicros(row.submitted_at_us());
  record.first_sequence = row.first_sequence();
  if (row.has_hold()) {
    record.hold = ArrayHold{.held = row.hold().held(),
                            .by = row.hold().by(),
                            .cause = row.hold().cause()};
  }
  if (!row.has_end()) return record;
  record.end =
      ArrayEnd{.to = reader.ToEnum(row.end().to(), v1::JOB_STATE_FAILED,
                                   v1::JOB_STATE_STOPPED, "end"),
               .reason = row.end().reason(),
               .causes = {row.end().causes().begin(), row.end().causes().end()},
               .failure_class = reader.ToEnum(
                   row.end().failure_class(), v1::FAILURE_CLASS_NONE,
                   v1::FAILURE_CLASS_TIMEOUT, "failure class"),
               .spares_held = row.end().spares_held(),
               .cause = row.end().cause()};
  return record;
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
