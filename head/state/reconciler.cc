#include "head/state/reconciler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "head/state/attempt_table.h"
#include "head/state/job_spec.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// An attempt that should not have begun ends at once.
constexpr absl::Duration kTimeLimitMin = absl::Milliseconds(1);

// The last one committed before the attempt: what it wrote itself is newer than
// its start.
std::optional<Checkpoint> RestoreOf(const JobRecord& job,
                                    const AttemptRecord& attempt) {
  for (auto it = job.row.checkpoints().rbegin();
       it != job.row.checkpoints().rend(); ++it) {
    if (it->epoch() < attempt.epoch) return *it;
  }
  return std::nullopt;
}

// The nodes of the processes, each once, in the order of their first ranks.
std::vector<NodeId> NodesOf(const AttemptRecord& attempt) {
  std::vector<NodeId> nodes;
  std::set<NodeId> seen;
  for (const Process& process : attempt.processes) {
    if (!process.waits() && seen.insert(process.node).second) {
      nodes.push_back(process.node);
    }
  }
  return nodes;
}

void AddProcess(const JobRecord& job, const AttemptRecord& attempt,
                const Process& process, v1::DesiredPlace& desired) {
  v1::DesiredProcess* const out = desired.add_processes();
  const Goal goal = GoalOf(attempt, process);
  out->set_slot(process.slot);
  out->set_incarnation(process.incarnation);
  out->set_goal(goal);
  if (goal == v1::GOAL_FORGET) return;
  out->set_rank(process.slot);
  out->set_local_rank(process.local_rank);
  for (const auto& [device, amount] : process.devices) {
    out->add_gpu_ids(device);
  }
  const absl::Duration limit = TimeLimitOf(*job.spec);
  if (limit != absl::InfiniteDuration()) {
    // The same throughout its life: both grow at an end.
    *out->mutable_time_limit() =
        rpc::ToWire(std::max(limit - job.ran() - process.ran, kTimeLimitMin));
  }
  *out->mutable_grace() = rpc::ToWire(GraceOf(*job.spec));
  if (goal == v1::GOAL_STOP) {
    out->set_reason(process.retired   ? "the job was made smaller"
                    : process.leaving ? "its node is drained"
                                      : EndReasonOf(attempt));
  }
}

// What does not change while the attempt goes on.
void SetLaunch(const JobRecord& job, const AttemptRecord& attempt,
               v1::DesiredPlace& desired) {
  const JobSpec& spec = *job.spec;
  desired.set_number(attempt.number);
  desired.set_job_name(spec.name());
  *desired.mutable_launch() = spec.launch();
  *desired.mutable_resources_per_process() =
      spec.scaling().resources_per_worker();
  desired.set_storage_path(spec.run().storage_path());
  if (const auto restore = RestoreOf(job, attempt)) {
    *desired.mutable_restore() = *restore;
  }
  desired.set_max_failures(spec.run().max_failures());
  desired.set_preflight(spec.run().preflight());
  desired.set_restart(spec.run().restart());
  desired.set_keep_work(spec.run().keep_work());
  desired.set_isolate_gpus(spec.run().isolate_gpus());
  const Origin& origin = job.row.origin();
  desired.set_user(origin.user().empty() ? origin.principal() : origin.user());
  desired.set_owner(spec.has_actor() && !spec.actor().driver_id().empty()
                        ? spec.actor().driver_id()
                    : job.id.IsElement() ? job.id.array().bytes()
                                         : "");
}

void SetMembership(const AttemptRecord& attempt, const NodeId& node,
                   v1::DesiredPlace& desired) {
  const std::vector<NodeId> nodes = NodesOf(attempt);
  const auto at = std::find(nodes.begin(), nodes.end(), node);
  desired.set_epoch(attempt.epoch);
  desired.set_world_size(static_cast<int>(attempt.processes.size()));
  desired.set_node_rank(static_cast<int>(at - nodes.begin()));
  desired.set_node_count(static_cast<int>(nodes.size()));
  int local = 0;
  for (const Process& process : attempt.processes) {
    desired.add_members(MemberIncarnation(process));
    local += process.node == node;
  }
  desired.set_local_world_size(local);
  desired.set_reserves_port(HoldsRankZero(attempt, node));
  if (attempt.state != v1::ATTEMPT_STATE_PREPARING) {
    desired.set_master_address(attempt.master_address);
    desired.set_master_port(attempt.master_port);
  }
}

void SetNotice(const NodeRecord& node, absl::Time now,
               v1::DesiredPlace& desired) {
  if (!node.node.has_drain()) return;
  const v1::Drain& drain = node.node.drain();
  v1::Notice& notice = *desired.mutable_notice();
  notice.set_kind(v1::NOTICE_KIND_DRAIN);
  notice.set_reason(drain.reason());
  if (!drain.has_deadline()) return;
  *notice.mutable_deadline() = rpc::ToWire(
      std::max(rpc::FromWire(drain.deadline()) - now, absl::ZeroDuration()));
}

}  // namespace

bool HoldsRankZero(const AttemptRecord& attempt, const NodeId& node) {
  return !attempt.processes.empty() && attempt.processes.front().node == node;
}

std::string EndReasonOf(const AttemptRecord& attempt) {
  return attempt.detail.empty() ? "it has ended" : attempt.detail;
}

Goal GoalOf(const JobRecord& job, const AttemptRecord& attempt,
            const Place& place) {
  const bool removes = place.phase == v1::PLACE_PHASE_ENDED &&
                       attempt.number == job.row.attempts() &&
                       HoldsRankZero(attempt, place.node) &&
                       !job.row.retired().empty();
  return removes || !IsOver(place) ? v1::GOAL_PREPARE : v1::GOAL_FORGET;
}

Goal GoalOf(const AttemptRecord& attempt, const Process& process) {
  if (process.over()) return v1::GOAL_FORGET;
  if (process.leaving || process.retired) return v1::GOAL_STOP;
  switch (attempt.state) {
    case v1::ATTEMPT_STATE_PREPARING:
      return v1::GOAL_PREPARE;
    case v1::ATTEMPT_STATE_RUNNING:
      return v1::GOAL_RUN;
    default:
      return v1::GOAL_STOP;
  }
}

v1::DesiredPlace DesiredFor(const JobRecord& job, const AttemptRecord& attempt,
                            const Place& place, const Incarnations& forgotten,
                            const NodeRecord& node, absl::Time now) {
  if (GoalOf(job, attempt, place) == v1::GOAL_FORGET) {
    return ForgetOf(attempt.id, job.id, EndReasonOf(attempt));
  }
  v1::DesiredPlace desired;
  desired.set_attempt_id(std::string(attempt.id.bytes()));
  desired.set_job_id(job.id.bytes());
  desired.set_goal(v1::GOAL_PREPARE);
  SetLaunch(job, attempt, desired);
  SetMembership(attempt, place.node, desired);
  SetNotice(node, now, desired);
  for (const Process& process : attempt.processes) {
    if (process.node == place.node) AddProcess(job, attempt, process, desired);
  }
  for (const auto& [slot, incarnation] : forgotten) {
    if (IsOnNode(attempt, slot, place.node) &&
        attempt.processes[static_cast<size_t>(slot)].incarnation ==
            incarnation) {
      continue;  // named above
    }
    v1::DesiredProcess* const out = desired.add_processes();
    out->set_slot(slot);
    out->set_incarnation(incarnation);
    out->set_goal(v1::GOAL_FORGET);
  }
  if (desired.reserves_port()) {
    for (const std::string& path : job.row.retired()) {
      desired.add_retired_checkpoints(path);
    }
  }
  return desired;
}

v1::DesiredPlace ForgetOf(const AttemptId& attempt, const JobId& job,
                          std::string reason) {
  v1::DesiredPlace desired;
  desired.set_attempt_id(std::string(attempt.bytes()));
  desired.set_job_id(job.bytes());
  desired.set_goal(v1::GOAL_FORGET);
  desired.set_reason(std::move(reason));
  return desired;
}

}  // namespace cohort::head
