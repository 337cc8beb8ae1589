#include "head/services/cluster_wire.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/services/device_wire.h"
#include "head/state/head_lives.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

void AddBestCheckpoints(const storage::v1::JobRow& row, v1::Job& wire) {
  auto& best = *wire.mutable_best_checkpoints();
  for (const v1::Checkpoint& checkpoint : row.checkpoints()) {
    if (checkpoint.has_score()) *best.Add() = checkpoint;
  }
  std::stable_sort(best.begin(), best.end(), [](const auto& a, const auto& b) {
    return a.score() > b.score();
  });
}

void AddHeld(const ClusterState& state, const NodeId& node,
             const AttemptId& attempt, bool is_over,
             v1::GetNodeResponse& wire) {
  v1::HeldAttempt* const out = wire.add_held();
  out->set_attempt_id(std::string(attempt.bytes()));
  const OrphanTable::Entry* const orphan = state.orphans().Find(attempt);
  if (orphan != nullptr) {
    out->set_state(orphan->ending ? "ENDING" : "ORPHAN");
    out->set_job_id(orphan->job.bytes());
  } else if (is_over) {
    out->set_state("OVER");
  }
  const AttemptRecord* record = state.attempts().Find(attempt);
  if (record == nullptr) return;
  const JobRecord* job = state.jobs().Find(record->job);
  out->set_job_id(record->job.bytes());
  if (job != nullptr) out->set_job_name(job->spec->name());
  out->set_number(record->number);
  if (!is_over && orphan == nullptr) {
    out->set_state(EnumText(record->state));
  }
  const auto held = state.nodes().HeldOn(node);
  if (const auto own = held.find(attempt); own != held.end()) {
    *out->mutable_resources() = rpc::ToWire(own->second);
  }
  for (const Process& process : record->processes) {
    if (process.node == node) *out->add_ranks() = RankToWire(state, process);
  }
}

void AddRanks(const ClusterState& state, const JobRecord& job, v1::Job& wire) {
  const AttemptRecord* attempt = state.attempts().LastOf(job.id);
  if (attempt == nullptr) return;
  for (const Process& each : attempt->processes) {
    *wire.add_ranks() = RankToWire(state, each);
  }
}

// What a list shows of an actor beside what it shows of every job.
void ShowActor(const ClusterState& state, const JobRecord& job, v1::Job& wire) {
  *wire.mutable_spec()->mutable_actor() = job.spec->actor();
  *wire.mutable_spec()->mutable_scaling() = job.spec->scaling();
  wire.mutable_spec()->mutable_run()->set_max_failures(
      job.spec->run().max_failures());
  wire.set_num_workers(job.row.num_workers());
  AddRanks(state, job, wire);
}

void SetSpec(const Shared<JobSpec>& spec, const Origin& origin, v1::Job& wire) {
  *wire.mutable_spec() = *spec;
  // For its process and its callers alone.
  v1::Launch& launch = *wire.mutable_spec()->mutable_launch();
  launch.clear_actor();
  for (auto& [name, value] : *launch.mutable_secrets()) value = "***";
  wire.mutable_spec()->set_namespace_(origin.namespace_());
}

// How an array came to its end: as its first element, by index, that failed.
void SetArrayEnd(const ClusterState& state, const ArrayTable::Entry& array,
                 bool whole, v1::Job& wire) {
  wire.set_failed_rank(-1);
  if (array.HasEnded() && array.ended_at != absl::InfinitePast()) {
    *wire.mutable_ended_at() = rpc::ToWire(array.ended_at);
  }
  if (!array.first_failed.has_value()) return;
  const JobTable& jobs = state.jobs();
  const JobRecord& failed =
      *jobs.Find(jobs.by_sequence().at(*array.first_failed));
  const storage::v1::JobRow& row = failed.row;
  wire.set_reason(absl::StrCat("element ", failed.id.index(), " FAILED",
                               row.reason().empty() ? "" : ": ", row.reason()));
  if (row.has_exit()) *wire.mutable_exit() = row.exit();
  wire.set_failed_rank(row.failed_rank());
  wire.set_failures(row.failures());
  wire.set_failure_class(row.failure_class());
  *wire.mutable_failures_by_class() = row.failures_by_class();
  *wire.mutable_causes() = row.causes();
  if (whole) wire.set_stderr_tail(row.stderr_tail());
}

// The first element of those that wait when all of them are held; null
// otherwise.
const JobRecord* HeldOf(const ClusterState& state,
                        const ArrayTable::Entry& array) {
  const int64_t waiting = array.CountOf(v1::JOB_STATE_PENDING);
  const JobGate::Elements held =
      state.gates().hold().ElementsOf(array.record.id, waiting);
  if (held.count == 0 || held.count != waiting) return nullptr;
  return state.jobs().Find(*held.first);
}

// Its elements ask for the same, so what the first has holds for all:
// in lists why it waits, else whether it never fits, for which the planner may
// have to look.
void SetWait(const ClusterState& state, const ArrayTable::Entry& array,
             bool whole, v1::Job& wire) {
  const JobTable& jobs = state.jobs();
  const JobRecord& first =
      *jobs.Find(jobs.by_sequence().at(array.first_sequence));
  if (first.row.state() != v1::JOB_STATE_PENDING) return;
  wire.set_never_fits(whole && state.NeverFits(first));
  if (whole && !wire.never_fits()) return;
  if (wire.reason().empty()) wire.set_reason(state.ReasonOf(first));
}

}  // namespace

v1::Rank RankToWire(const ClusterState& state, const Process& process) {
  v1::Rank wire;
  wire.set_rank(process.slot);
  wire.set_incarnation(process.waits() ? 0 : process.incarnation);
  wire.set_failures(process.failures);
  wire.set_state(std::min(process.state, v1::PROCESS_STATE_EXITED));
  if (process.exit.has_value()) *wire.mutable_exit() = *process.exit;
  if (process.waits()) return wire;
  wire.set_local_rank(process.local_rank);
  wire.set_node_id(std::string(process.node.bytes()));
  const NodeRecord* node = state.nodes().Find(process.node);
  if (node != nullptr) wire.set_node_name(node->node.name());
  wire.set_pid(process.pid);
  for (const auto& [gpu, amount] : process.devices) wire.add_gpu_ids(gpu);
  return wire;
}

v1::Job ArrayToWire(const ClusterState& state, const ArrayTable::Entry& array,
                    bool whole) {
  v1::Job wire;
  const JobSpec& spec = *array.record.spec;
  wire.set_job_id(array.record.id.bytes());
  wire.set_name(spec.name());
  wire.set_state(array.State());
  SetArrayEnd(state, array, whole, wire);
  SetWait(state, array, whole, wire);
  *wire.mutable_submitted_at() =
      rpc::ToWire(FromMicros(array.record.row.submitted_at_us()));
  if (array.started_at != absl::InfinitePast()) {
    *wire.mutable_started_at() = rpc::ToWire(array.started_at);
  }
  if (const JobRecord* held = HeldOf(state, array)) {
    wire.set_held(true);
    wire.set_held_by(held->row.held_by());
  }
  wire.set_priority(spec.priority());
  for (const auto& [key, value] : spec.labels()) {
    (*wire.mutable_labels())[key] = value;
  }
  wire.set_namespace_(array.record.row.origin().namespace_());
  wire.set_submitted_by(array.record.row.origin().principal());
  if (whole) {
    SetSpec(array.record.spec, array.record.row.origin(), wire);
    wire.set_num_workers(spec.scaling().num_workers());  // of each element
  }
  wire.mutable_array()->set_size(array.size);
  wire.mutable_array()->set_at_once(array.at_once.value_or(0));
  for (const JobState each :
       {v1::JOB_STATE_PENDING, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
        v1::JOB_STATE_STOPPING, v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED,
        v1::JOB_STATE_STOPPED}) {
    if (array.CountOf(each) == 0) continue;
    v1::ArrayStatus::StateCount* const out = wire.mutable_array()->add_counts();
    out->set_state(each);
    out->set_count(array.CountOf(each));
  }
  return wire;
}

v1::Stamp StampOf(const ClusterRecord& cluster) {
  v1::Stamp stamp;
  stamp.set_cluster_id(cluster.cluster_id());
  stamp.set_generation(cluster.generation());
  stamp.set_term(cluster.term());
  stamp.set_nonce(NonceOf(cluster));
  return stamp;
}

v1::Job JobToWire(const ClusterState& state, const JobRecord& job, bool whole) {
  const storage::v1::JobRow& row = job.row;
  v1::Job wire;
  wire.set_job_id(job.id.bytes());
  wire.set_name(job.spec->name());
  wire.set_state(row.state());
  wire.set_reason(state.ReasonOf(job));
  if (whole) wire.set_never_fits(state.NeverFits(job));
  wire.set_attempt(row.attempts());
  wire.set_failures(row.failures());
  wire.set_infra_restarts(row.infra_restarts());
  if (row.has_exit()) *wire.mutable_exit() = row.exit();
  wire.set_failed_rank(row.failed_rank());
  *wire.mutable_submitted_at() = rpc::ToWire(job.submitted_at());
  if (job.started_at() != absl::InfinitePast()) {
    *wire.mutable_started_at() = rpc::ToWire(job.started_at());
  }
  if (job.ended_at() != absl::InfinitePast()) {
    *wire.mutable_ended_at() = rpc::ToWire(job.ended_at());
  }
  const absl::Duration ran = state.RanOf(job);
  if (ran > absl::ZeroDuration()) *wire.mutable_ran() = rpc::ToWire(ran);
  wire.set_metrics_json(row.metrics_json());
  wire.set_metrics_count(static_cast<int64_t>(row.metrics_count()));
  if (!row.checkpoints().empty()) {
    *wire.mutable_checkpoint() = *row.checkpoints().rbegin();
    if (whole) AddBestCheckpoints(row, wire);
  }
  wire.set_failure_class(row.failure_class());
  *wire.mutable_causes() = row.causes();
  *wire.mutable_failures_by_class() = row.failures_by_class();
  wire.set_held(row.held());
  wire.set_held_by(row.held_by());
  wire.set_priority(job.spec->priority());
  for (const auto& [key, value] : job.spec->labels()) {
    (*wire.mutable_labels())[key] = value;
  }
  wire.set_namespace_(row.origin().namespace_());
  wire.set_submitted_by(row.origin().principal());
  if (!whole) {
    if (job.spec->has_actor()) ShowActor(state, job, wire);
    return wire;
  }
  wire.set_stderr_tail(row.stderr_tail());
  if (row.has_preflight()) *wire.mutable_preflight() = row.preflight();
  *wire.mutable_warnings() = row.warnings();
  SetSpec(job.spec, row.origin(), wire);
  wire.set_epoch(row.epoch());
  wire.set_num_workers(row.num_workers());
  AddRanks(state, job, wire);
  return wire;
}

std::optional<v1::Job> NamedToWire(const ClusterState& state, const JobId& id) {
  if (const JobRecord* job = state.jobs().Find(id)) {
    return JobToWire(state, *job, /*whole=*/true);
  }
  const ArrayTable::Entry* array = state.jobs().arrays().Find(id);
  if (array == nullptr) return std::nullopt;
  return ArrayToWire(state, *array, /*whole=*/true);
}

absl::StatusOr<JobQuery> FromWire(const v1::ListJobsRequest& wire) {
  JobQuery query;
  for (const int state : wire.states()) {
    if (state < static_cast<int>(v1::JOB_STATE_PENDING) ||
        state > static_cast<int>(v1::JOB_STATE_STOPPED)) {
      return absl::InvalidArgumentError(
          absl::StrCat("job state ", state, " is not known here"));
    }
    query.states.insert(static_cast<JobState>(state));
  }
  query.labels.insert(wire.labels().begin(), wire.labels().end());
  query.name_space = wire.namespace_();
  if (!wire.array_id().empty()) {
    COHORT_ASSIGN_OR_RETURN(query.array, JobId::FromBytes(wire.array_id()));
    if (query.array.IsNil()) return NoSuchJob(query.array);
  }
  query.name = wire.name();
  query.id_prefix = wire.id_prefix();
  query.fold_arrays = wire.fold_arrays();
  for (const int kind : wire.kinds()) {
    if (!v1::JobKind_IsValid(kind) || kind == v1::JOB_KIND_UNSPECIFIED) {
      return absl::InvalidArgumentError(
          absl::StrCat("job kind ", kind, " is not known here"));
    }
    query.kinds.insert(static_cast<v1::JobKind>(kind));
  }
  if (!wire.page_token().empty()) {
    uint64_t before = 0;
    if (!absl::SimpleAtoi(wire.page_token(), &before)) {
      return absl::InvalidArgumentError(
          "the page token is unknown (give the one of the page before)");
    }
    query.before = before;
  }
  return query;
}

std::string PageToken(uint64_t next) { return absl::StrCat(next); }

v1::Event EventToWire(const ClusterState& state, EventRecord event) {
  event.clear_node_ids();
  const NodeRecord* node = state.nodes().Find(IdOf<NodeId>(event.node_id()));
  if (node != nullptr) event.set_node_name(node->node.name());
  return event;
}

v1::Node NodeToWire(const ClusterState& state, const NodeRecord& node) {
  v1::Node wire = node.node;
  wire.set_node_id(IdBytes(node.id));
  wire.set_state(state.nodes().ShownState(node.id));
  *wire.mutable_available() = rpc::ToWire(state.nodes().AvailableOn(node.id));
  const absl::Time since = state.nodes().ShownSince(node.id);
  wire.clear_since();
  if (since != absl::InfinitePast()) *wire.mutable_since() = rpc::ToWire(since);
  ShowDevices(state, node.id, wire);
  return wire;
}

v1::GetNodeResponse WholeNodeToWire(const ClusterState& state,
                                    const NodeRecord& node) {
  v1::GetNodeResponse wire;
  *wire.mutable_node() = NodeToWire(state, node);
  for (const auto& [attempt, resources] : state.nodes().HeldOn(node.id)) {
    AddHeld(state, node.id, attempt, /*is_over=*/false, wire);
  }
  for (const AttemptId& orphan : state.nodes().OrphansOn(node.id)) {
    AddHeld(state, node.id, orphan, /*is_over=*/true, wire);
  }
  return wire;
}

absl::StatusOr<DrainOrder> FromWire(const v1::DrainNodeRequest& wire) {
  DrainOrder order;
  order.reason = wire.reason();
  if (wire.has_deadline()) order.deadline = rpc::FromWire(wire.deadline());
  COHORT_RETURN_IF_ERROR(ValidateDrainOrder(order));
  return order;
}

}  // namespace cohort::head
