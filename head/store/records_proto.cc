#include "head/store/records_proto.h"

#include <map>

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

template <typename Id>
std::string IdBytes(const Id& id) {
  return id.IsNil() ? std::string() : std::string(id.bytes());
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

ResourceSet ToResources(
    const google::protobuf::RepeatedPtrField<pb::Amount>& entries) {
  ResourceSet set;
  for (const pb::Amount& entry : entries) {
    set.Set(entry.name(), Amount::FromTenThousandths(entry.ten_thousandths()));
  }
  return set;
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

void TextPairsToProto(const std::map<std::string, std::string>& pairs,
                      google::protobuf::RepeatedPtrField<pb::TextPair>* out) {
  for (const auto& [key, value] : pairs) {
    pb::TextPair* const pair = out->Add();
    pair->set_key(key);
    pair->set_value(value);
  }
}

std::map<std::string, std::string> ToTextPairs(
    const google::protobuf::RepeatedPtrField<pb::TextPair>& pairs) {
  std::map<std::string, std::string> out;
  for (const pb::TextPair& pair : pairs) out[pair.key()] = pair.value();
  return out;
}

void ToProto(const Origin& origin, pb::Origin* out) {
  out->set_namespace_(origin.name_space);
  out->set_principal(origin.principal);
  out->set_request_id(origin.request_id);
  out->set_cause(origin.cause);
}

Origin FromProto(const pb::Origin& origin) {
  return {.name_space = origin.namespace_(),
          .principal = origin.principal(),
          .request_id = origin.request_id(),
          .cause = origin.cause()};
}

void ToProto(const ExitStatus& exit, v1::ExitStatus* out) {
  out->set_code(exit.code);
  out->set_signal(exit.signal);
  out->set_oom_killed(exit.oom_killed);
  out->set_detail(exit.detail);
}

ExitStatus FromProto(const v1::ExitStatus& exit) {
  return {.code = exit.code(),
          .signal = exit.signal(),
          .oom_killed = exit.oom_killed(),
          .detail = exit.detail()};
}

// What code takes for granted of a spec that was accepted.
void CheckSpec(const JobSpec& spec, FieldReader& reader) {
  reader.ToEnum(spec.scaling().placement_strategy(),
                v1::PLACEMENT_STRATEGY_UNSPECIFIED,
                v1::PLACEMENT_STRATEGY_STRICT_SPREAD, "placement strategy");
  for (const Dependency& each : spec.after()) {
    reader.ToId<JobId>(each.job_id(), "dependency");
    reader.ToEnum(each.kind(), v1::DEPENDENCY_KIND_UNSPECIFIED,
                  v1::DEPENDENCY_KIND_ANY, "dependency's kind");
  }
}

void ToProto(const AttemptRank& rank, pb::AttemptRank* out) {
  out->set_rank(rank.rank);
  out->set_local_rank(rank.local_rank);
  TextsToProto(rank.gpu_ids, out->mutable_gpu_ids());
  out->set_state(rank.state);
  out->set_pid(rank.pid);
  if (rank.exit.has_value()) ToProto(*rank.exit, out->mutable_exit());
}

AttemptRank FromProto(const pb::AttemptRank& rank, FieldReader& reader) {
  AttemptRank out;
  out.rank = rank.rank();
  out.local_rank = rank.local_rank();
  out.gpu_ids.assign(rank.gpu_ids().begin(), rank.gpu_ids().end());
  out.state = reader.ToEnum(rank.state(), v1::RANK_STATE_PENDING,
                            v1::RANK_STATE_EXITED, "rank state");
  out.pid = rank.pid();
  if (rank.has_exit()) out.exit = FromProto(rank.exit());
  return out;
}

void ToProto(const AttemptPart& part, pb::AttemptPart* out) {
  out->set_node_id(IdBytes(part.node));
  AmountsToProto(part.resources, out->mutable_resources());
  AmountsToProto(part.devices, out->mutable_devices());
  for (const AttemptRank& rank : part.ranks) ToProto(rank, out->add_ranks());
  out->set_phase(part.phase);
  out->set_master_port(part.master_port);
  out->set_ran_us(absl::ToInt64Microseconds(part.ran));
}

AttemptPart FromProto(const pb::AttemptPart& part, FieldReader& reader) {
  AttemptPart out;
  out.node = reader.ToId<NodeId>(part.node_id(), "part's node id");
  out.resources = ToResources(part.resources());
  out.devices = ToAmounts(part.devices());
  for (const pb::AttemptRank& rank : part.ranks()) {
    out.ranks.push_back(FromProto(rank, reader));
  }
  out.phase = reader.ToEnum(part.phase(), v1::PART_PHASE_ASSIGNED,
                            v1::PART_PHASE_LOST, "part phase");
  out.master_port = part.master_port();
  out.ran = absl::Microseconds(part.ran_us());
  return out;
}

void ToProto(const Drain& drain, pb::Drain* out) {
  out->set_reason(drain.reason);
  out->set_principal(drain.principal);
  out->set_asked_at_us(ToMicros(drain.asked_at));
  const bool has_deadline = drain.deadline != absl::InfiniteFuture();
  out->set_deadline_us(has_deadline ? ToMicros(drain.deadline) : 0);
}

void ToProto(const Preflight& preflight, pb::Preflight* out) {
  out->set_attempt(preflight.attempt);
  out->set_verdict(preflight.verdict);
  out->set_summary(preflight.summary);
  out->set_json(preflight.json);
  out->set_at_us(ToMicros(preflight.at));
}

Preflight FromProto(const pb::Preflight& preflight, FieldReader& reader) {
  return {.attempt = preflight.attempt(),
          .verdict = reader.ToEnum(
              preflight.verdict(), v1::PREFLIGHT_VERDICT_PASSED,
              v1::PREFLIGHT_VERDICT_FAILED, "preflight's verdict"),
          .summary = preflight.summary(),
          .json = preflight.json(),
          .at = FromMicros(preflight.at_us())};
}

Drain FromProto(const pb::Drain& drain) {
  const int64_t deadline = drain.deadline_us();
  return {.reason = drain.reason(),
          .principal = drain.principal(),
          .asked_at = FromMicros(drain.asked_at_us()),
          .deadline = deadline == 0 ? absl::InfiniteFuture()
                                    : absl::FromUnixMicros(deadline)};
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
  row.set_name(record.name);
  row.set_state(record.state);
  row.set_incarnation(record.incarnation);
  row.set_host(record.host);
  row.set_pid(record.pid);
  AmountsToProto(record.resources, row.mutable_resources());
  for (const Device& device : record.devices) {
    pb::Device* const out = row.add_devices();
    out->set_id(device.id);
    out->set_kind(device.kind);
    out->set_model(device.model);
    out->set_memory_bytes(device.memory_bytes);
    out->set_simulated(device.simulated);
    out->set_pci_bus_id(device.pci_bus_id);
    if (device.numa_node.has_value()) out->set_numa_node(*device.numa_node);
    for (const std::string& peer : device.nvlink_peers) {
      out->add_nvlink_peers(peer);
    }
    out->set_parent(device.parent);
    if (device.state != v1::DEVICE_STATE_HEALTHY) {
      out->set_state(device.state);
    }
    out->set_reason(device.reason);
    out->set_since_us(ToMicros(device.since));
  }
  TextPairsToProto(record.labels, row.mutable_labels());
  for (const Taint& taint : record.taints) {
    v1::Taint* const out = row.add_taints();
    out->set_key(taint.key);
    out->set_value(taint.value);
  }
  if (record.drain.has_value()) ToProto(*record.drain, row.mutable_drain());
  row.set_build(record.build);
  row.set_since_us(ToMicros(record.since));
  row.set_unfit(record.unfit);
  ToProto(record.origin, row.mutable_origin());
}

Device FromProto(const pb::Device& row, FieldReader& reader) {
  Device device{
      .id = row.id(),
      .kind = row.kind(),
      .model = row.model(),
      .memory_bytes = row.memory_bytes(),
      .simulated = row.simulated(),
      .pci_bus_id = row.pci_bus_id(),
      .numa_node = {},
      .nvlink_peers = {row.nvlink_peers().begin(), row.nvlink_peers().end()},
      .parent = row.parent()};
  if (row.has_numa_node()) device.numa_node = row.numa_node();
  if (row.state() != 0) {
    device.state = reader.ToEnum(row.state(), v1::DEVICE_STATE_HEALTHY,
                                 v1::DEVICE_STATE_FENCED, "device state");
  }
  device.reason = row.reason();
  device.since = FromMicros(row.since_us());
  return device;
}

NodeRecord FromProto(const pb::NodeRow& row, FieldReader& reader) {
  NodeRecord record;
  record.id = reader.ToId<NodeId>(row.node_id(), "node id");
  record.name = row.name();
  record.state = reader.ToEnum(row.state(), v1::NODE_STATE_ALIVE,
                               v1::NODE_STATE_SUSPECT, "state");
  record.incarnation = row.incarnation();
  record.host = row.host();
  record.pid = row.pid();
  record.resources = ToResources(row.resources());
  for (const pb::Device& device : row.devices()) {
    record.devices.push_back(FromProto(device, reader));
  }
  record.labels = ToTextPairs(row.labels());
  for (const v1::Taint& taint : row.taints()) {
    record.taints.push_back({.key = taint.key(), .value = taint.value()});
  }
  if (row.has_drain()) record.drain = FromProto(row.drain());
  record.build = row.build();
  record.since = FromMicros(row.since_us());
  record.unfit = row.unfit();
  record.origin = FromProto(row.origin());
  return record;
}

void ToProto(const JobRecord& record, pb::JobRow& row) {
  row.set_job_id(IdBytes(record.id));
  ToProto(record.origin, row.mutable_origin());
  row.set_sequence(record.sequence);
  row.set_state(record.state);
  row.set_reason(record.reason);
  row.set_attempts(record.attempts);
  row.set_epoch(record.epoch);
  row.set_failures(record.failures);
  row.set_infra_restarts(record.infra_restarts);
  if (record.exit.has_value()) ToProto(*record.exit, row.mutable_exit());
  row.set_failed_rank(record.failed_rank);
  row.set_stderr_tail(record.stderr_tail);
  row.set_submitted_at_us(ToMicros(record.submitted_at));
  row.set_started_at_us(ToMicros(record.started_at));
  row.set_ended_at_us(ToMicros(record.ended_at));
  row.set_metrics_json(record.metrics_json);
  row.set_metrics_count(record.metrics_count);
  for (const Checkpoint& checkpoint : record.checkpoints) {
    v1::Checkpoint* const out = row.add_checkpoints();
    out->set_path(checkpoint.path);
    out->set_step(checkpoint.step);
    out->set_epoch(checkpoint.epoch);
  }
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
    ToProto(*record.preflight, row.mutable_preflight());
  }
}

JobRecord FromProto(const pb::JobRow& row, FieldReader& reader) {
  JobRecord record;
  record.id = reader.ToId<JobId>(row.job_id(), "job id");
  record.origin = FromProto(row.origin());
  record.sequence = row.sequence();
  record.state = reader.ToEnum(row.state(), v1::JOB_STATE_PENDING,
                               v1::JOB_STATE_STOPPED, "state");
  record.reason = row.reason();
  record.attempts = row.attempts();
  record.epoch = row.epoch();
  record.failures = row.failures();
  record.infra_restarts = row.infra_restarts();
  if (row.has_exit()) record.exit = FromProto(row.exit());
  record.failed_rank = row.failed_rank();
  record.stderr_tail = row.stderr_tail();
  record.submitted_at = FromMicros(row.submitted_at_us());
  record.started_at = FromMicros(row.started_at_us());
  record.ended_at = FromMicros(row.ended_at_us());
  record.metrics_json = row.metrics_json();
  record.metrics_count = row.metrics_count();
  for (const v1::Checkpoint& checkpoint : row.checkpoints()) {
    record.checkpoints.push_back({.path = checkpoint.path(),
                                  .step = checkpoint.step(),
                                  .epoch = checkpoint.epoch()});
  }
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
    record.preflight = FromProto(row.preflight(), reader);
  }
  return record;
}

void ToProto(const AttemptRecord& record, pb::AttemptRow& row) {
  row.set_attempt_id(IdBytes(record.id));
  row.set_job_id(IdBytes(record.job));
  row.set_number(record.number);
  row.set_epoch(record.epoch);
  row.set_state(record.state);
  for (const AttemptPart& part : record.parts) ToProto(part, row.add_parts());
  row.set_master_address(record.master_address);
  row.set_master_port(record.master_port);
  row.set_cause(record.cause);
  row.set_detail(record.detail);
  if (record.exit.has_value()) ToProto(*record.exit, row.mutable_exit());
  row.set_failed_rank(record.failed_rank);
  TextsToProto(record.causes, row.mutable_causes());
  row.set_gpu_abort_levels(record.gpu_abort_levels);
  ToProto(record.origin, row.mutable_origin());
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
  for (const pb::AttemptPart& part : row.parts()) {
    record.parts.push_back(FromProto(part, reader));
  }
  record.master_address = row.master_address();
  record.master_port = row.master_port();
  record.cause = reader.ToEnum(row.cause(), v1::ATTEMPT_CAUSE_NONE,
                               v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED, "cause");
  record.detail = row.detail();
  if (row.has_exit()) record.exit = FromProto(row.exit());
  record.failed_rank = row.failed_rank();
  record.causes.assign(row.causes().begin(), row.causes().end());
  record.gpu_abort_levels = row.gpu_abort_levels();
  record.origin = FromProto(row.origin());
  record.orphaned_since = FromMicros(row.orphaned_since_us());
  return record;
}

void ToProto(const ArrayRecord& record, pb::ArrayRow& row) {
  row.set_array_id(IdBytes(record.id));
  ToProto(record.origin, row.mutable_origin());
  row.set_submitted_at_us(ToMicros(record.submitted_at));
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
  record.origin = FromProto(row.origin());
  record.submitted_at = FromMicros(row.submitted_at_us());
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

void ToProto(const RequestRecord& record, pb::RequestRow& row) {
  row.set_principal(record.principal);
  row.set_request_id(record.request_id);
  row.set_body_hash(record.body_hash);
  row.set_answer(record.answer);
  row.set_at_us(ToMicros(record.at));
}

RequestRecord FromProto(const pb::RequestRow& row, FieldReader&) {
  return {.principal = row.principal(),
          .request_id = row.request_id(),
          .body_hash = row.body_hash(),
          .answer = row.answer(),
          .at = FromMicros(row.at_us())};
}

void ToProto(const PackageRecord& record, pb::PackageRow& row) {
  row.set_hash(record.hash);
  row.set_size_bytes(record.size_bytes);
  row.set_completed_at_us(ToMicros(record.completed_at));
  row.set_unpinned_at_us(ToMicros(record.unpinned_at));
}

PackageRecord FromProto(const pb::PackageRow& row, FieldReader&) {
  return {.hash = row.hash(),
          .size_bytes = row.size_bytes(),
          .completed_at = FromMicros(row.completed_at_us()),
          .unpinned_at = FromMicros(row.unpinned_at_us())};
}

void ToProto(const EventRecord& record, pb::EventRow& row) {
  row.set_number(record.number);
  row.set_at_us(ToMicros(record.at));
  row.set_kind(record.kind);
  ToProto(record.origin, row.mutable_origin());
  row.set_job_id(IdBytes(record.job));
  row.set_attempt_id(IdBytes(record.attempt));
  row.set_node_id(IdBytes(record.node));
  row.set_text(record.text);
  for (const NodeId& node : record.nodes) row.add_node_ids(IdBytes(node));
}

EventRecord FromProto(const pb::EventRow& row, FieldReader& reader) {
  EventRecord record;
  record.number = row.number();
  record.at = FromMicros(row.at_us());
  record.kind = row.kind();
  record.origin = FromProto(row.origin());
  record.job = reader.ToId<JobId>(row.job_id(), "job id");
  record.attempt = reader.ToId<AttemptId>(row.attempt_id(), "attempt id");
  record.node = reader.ToId<NodeId>(row.node_id(), "node id");
  record.text = row.text();
  for (const std::string& node : row.node_ids()) {
    record.nodes.push_back(reader.ToId<NodeId>(node, "node id"));
  }
  return record;
}

void ToProto(const WaitReasonRecord& record, pb::WaitReasonRow& row) {
  row.set_number(record.number);
  row.set_shape_key(record.shape_key);
  *row.mutable_reason() = record.reason;
}

WaitReasonRecord FromProto(const pb::WaitReasonRow& row, FieldReader& reader) {
  for (const v1::Holder& holder : row.reason().blocker().holders()) {
    reader.ToId<JobId>(holder.job_id(), "job id");
  }
  return {.number = row.number(),
          .shape_key = row.shape_key(),
          .reason = row.reason()};
}

void ToProto(const SpecRecord& record, pb::SpecRow& row) {
  row.set_job_id(IdBytes(record.id));
  *row.mutable_spec() = *record.spec;
}

SpecRecord FromProto(const pb::SpecRow& row, FieldReader& reader) {
  CheckSpec(row.spec(), reader);
  return {.id = reader.ToId<JobId>(row.job_id(), "job id"), .spec = row.spec()};
}

}  // namespace cohort::head
