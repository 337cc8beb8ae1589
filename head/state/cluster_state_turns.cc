// What follows from a committed cause in turns of a bounded number of rows
// (BD-1): ClusterState's part about elements of arrays that end or whose rows
// are behind, attempts on nodes that are gone, and phases that changed by
// themselves.

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "head/state/cluster_state.h"
#include "head/state/job_spec.h"

namespace cohort::head {

void ClusterState::GoOn(Transition& transition) {
  Change change;
  WriteElements(change);
  WritePhases(change);
  EmptyNodes(change);
  EndActors(change);
  PlaceWaiting(change);
  Finish(change, transition);
}

// ---- the ends of arrays ----

bool ClusterState::WillEnd(const JobRecord& job) const {
  if (!job.id.IsElement() || HasEnded(job.row.state())) return false;
  const ArrayTable::Entry* const array = jobs_.arrays().Find(job.id.array());
  const storage::v1::ArrayRow& row = array->record.row;
  if (!row.has_end() || job.row.sequence() < array->end_from) return false;
  return !IsSpared(row.end(), job);
}

bool ClusterState::IsSpared(const ArrayEnd& end, const JobRecord& job) const {
  return end.spares_held() &&
         (job.row.held() || orphans_.OfJob(job.id) != nullptr);
}

void ClusterState::EndArray(const JobId& array, ArrayEnd end, Change& change) {
  const ArrayTable::Entry& entry = *jobs_.arrays().Find(array);
  const storage::v1::ArrayRow& row = entry.record.row;
  if (row.has_end() && (end.to() != v1::JOB_STATE_STOPPED ||
                        row.end().to() == v1::JOB_STATE_STOPPED)) {
    return;
  }
  jobs_.SetArrayEnd(array, std::move(end));
  change.arrays.insert(array);
  EndElements(change);
  if (!row.has_end()) return;
  // None of them may start before its turn to end comes.
  for (const JobId& each : jobs_.Named(array)) {
    const JobRecord& job = *jobs_.Find(each);
    if (job.row.state() == v1::JOB_STATE_PENDING && WillEnd(job)) {
      LeaveLine(job);
    }
  }
}

void ClusterState::EndElements(Change& change) {
  while (!jobs_.arrays().ending().empty()) {
    const JobId array = *jobs_.arrays().ending().begin();
    if (!EndElementsOf(array, change)) return;
    jobs_.SetArrayEnd(array, std::nullopt);
    change.arrays.insert(array);
  }
}

bool ClusterState::EndElementsOf(const JobId& array, Change& change) {
  const ArrayTable::Entry& entry = *jobs_.arrays().Find(array);
  const auto& all = jobs_.by_sequence();
  const ArrayEnd& end = entry.record.row.end();
  const uint64_t before = std::exchange(change.cause, end.cause());
  auto it = all.lower_bound(std::max(entry.end_from, entry.first_sequence));
  for (; it != all.end() && it->second.array() == array; ++it) {
    if (TurnIsFull(change)) {
      jobs_.SetArrayEndFrom(array, it->first);
      change.cause = before;
      return false;
    }
    EndElement(*jobs_.FindMutable(it->second), end, change);
  }
  change.cause = before;
  return true;
}

void ClusterState::EndElement(JobRecord& job, const ArrayEnd& end,
                              Change& change) {
  change.quietly = true;
  if (end.to() == v1::JOB_STATE_STOPPED) {
    Stop(job, change);
  } else if (job.row.state() == v1::JOB_STATE_PENDING && !IsSpared(end, job)) {
    job.row.set_reason(end.reason());
    *job.row.mutable_causes() = end.causes();
    if (end.failure_class() != v1::FAILURE_CLASS_NONE) {
      job.row.set_failure_class(end.failure_class());
    }
    MoveJob(job, v1::JOB_STATE_FAILED, change);
  }
  change.quietly = false;
}

// ---- the rows of elements ----

void ClusterState::WriteElements(Change& change) {
  while (!jobs_.arrays().behind().empty()) {
    const JobId array = *jobs_.arrays().behind().begin();
    if (!WriteElementsOf(array, change)) return;
    jobs_.ArrayCaughtUp(array);
    change.arrays.insert(array);
  }
}

bool ClusterState::WriteElementsOf(const JobId& array, Change& change) {
  const ArrayTable::Entry& entry = *jobs_.arrays().Find(array);
  const auto& all = jobs_.by_sequence();
  auto it = all.lower_bound(std::max(entry.row_from, entry.first_sequence));
  for (; it != all.end() && it->second.array() == array; ++it) {
    if (!jobs_.Find(it->second)->behind) continue;
    if (TurnIsHalfFull(change)) {
      jobs_.SetArrayRowFrom(array, it->first);
      return false;
    }
    change.jobs.insert(it->second);
  }
  return true;
}

// ---- phases ----

void ClusterState::TellPhase(const JobRecord& job, Change& change) {
  // Nothing is known from rows that are older than phases.
  const auto& phases = job.row.phases();
  if (phases.empty() || phases.rbegin()->kind() == PhaseOf(job)) return;
  if (TurnIsFull(change)) {
    untold_phases_.insert(job.id);
  } else {
    change.jobs.insert(job.id);
  }
}

void ClusterState::WritePhases(Change& change) {
  while (!untold_phases_.empty() && !TurnIsHalfFull(change)) {
    const JobId id = untold_phases_.extract(untold_phases_.begin()).value();
    const JobRecord* const job = jobs_.Find(id);
    if (job != nullptr && !HasEnded(job->row.state())) TellPhase(*job, change);
  }
}

// ---- nodes that are gone ----

void ClusterState::Empty(const NodeId& node, uint64_t cause, Change& change) {
  if (attempts_.OnNode(node).empty()) return;
  emptying_[node] = cause;
  EmptyNodes(change);
}

void ClusterState::Spare(const NodeId& node) {
  if (nodes_.Find(node)->state != v1::NODE_STATE_DEAD &&
      !HasDeadlinePassed(node)) {
    emptying_.erase(node);
  }
}

void ClusterState::EmptyNodes(Change& change) {
  const uint64_t before = change.cause;
  while (!emptying_.empty() && !TurnIsFull(change)) {
    const auto [node, cause] = *emptying_.begin();
    change.cause = cause;
    if (EmptyNode(node, change)) emptying_.erase(node);
  }
  change.cause = before;
}

bool ClusterState::EmptyNode(const NodeId& node, Change& change) {
  const NodeRecord* const record = nodes_.Find(node);
  // Its attempts have gone in other ways, and history forgot it.
  if (record == nullptr) return true;
  const bool is_dead = record->state == v1::NODE_STATE_DEAD;
  const std::string why = WhySilent(node);
  for (const AttemptId& id : attempts_.OnNode(node)) {
    if (TurnIsFull(change)) return false;
    if (!is_dead) {
      Evict(id, node, change);
      continue;
    }
    AttemptRecord& attempt = *attempts_.FindMutable(id);
    if (IsOver(*PlaceOn(attempt, node)) || attempt.orphaned()) continue;
    JobRecord& job = *jobs_.FindMutable(attempt.job);
    ApplyOutcome(job, attempt, controller_.LosePlace(job, attempt, node, why),
                 change);
  }
  return true;
}

}  // namespace cohort::head
