// The part of ClusterState that deals with what it did not decide: attempts of
// an earlier generation of a restored store (docs/design/0003-head.md, OR-1).
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/state/cluster_state.h"
#include "head/state/job_spec.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

// Of attempts that a person has ended and whose nodes may not know it yet.
constexpr int kEndedRemembered = 256;

// Nothing of it runs, nor will.
bool HasEnded(const v1::ObservedPlace& place) {
  const auto& all = place.processes();
  const bool none_left =
      std::all_of(all.begin(), all.end(), [](const v1::ObservedProcess& each) {
        return each.state() == v1::PROCESS_STATE_ENDED;
      });
  return place.phase() == v1::PHASE_FAILED || (!all.empty() && none_left);
}

// A process of the place was begun after that of its slot in the row.
bool IsNewer(const v1::ObservedPlace& place, const AttemptRecord& attempt) {
  const auto& all = place.processes();
  return std::any_of(all.begin(), all.end(), [&](const auto& each) {
    const size_t slot = static_cast<size_t>(each.slot());
    return slot >= attempt.processes.size() ||
           attempt.processes[slot].incarnation < each.incarnation();
  });
}

absl::Status NotAnOrphan(const AttemptId& attempt, const AttemptRecord* known) {
  const std::string what =
      known == nullptr
          ? absl::StrCat("attempt ", attempt.ToHex(), " is not an orphan")
          : absl::StrCat("attempt ", attempt.ToHex(), " of job ",
                         known->job.ToText(), " is ", EnumText(known->state),
                         " and no orphan");
  return SetReason(absl::NotFoundError(absl::StrCat(
                       what, ": `cohort status` lists those that are")),
                   "unknown_attempt");
}

absl::Status CannotAdopt(const AttemptId& attempt, absl::string_view why) {
  return SetReason(absl::FailedPreconditionError(absl::StrCat(
                       "attempt ", attempt.ToHex(), " cannot be adopted: ", why,
                       "; `cohort end ", attempt.ToHex(), "` ends it")),
                   "cannot_adopt");
}

// FailedPrecondition unless the job of `entry` can go on with it.
absl::Status CheckAdoptable(const OrphanTable::Entry& entry,
                            const AttemptRecord* attempt) {
  if (attempt == nullptr) {
    return CannotAdopt(entry.attempt,
                       "it began after the backup, and the restored store has "
                       "no record of it");
  }
  if (attempt->state != v1::ATTEMPT_STATE_PREPARING) return absl::OkStatus();
  const bool all_have_it = std::all_of(
      entry.parts.begin(), entry.parts.end(),
      [](const auto& part) { return part.second.seen.has_value(); });
  // It may have begun and ended since the backup, and would begin again.
  return all_have_it
             ? absl::OkStatus()
             : CannotAdopt(entry.attempt,
                           "it had not started when the backup was made, and "
                           "not all of its nodes have it now: it may be over");
}

}  // namespace

absl::StatusOr<JobId> ClusterState::AdoptAttempt(const RequestKey& request,
                                                 const AttemptId& attempt,
                                                 Transition& transition) {
  return Mutate<JobId>(request, transition, [&](Change& change) {
    return AdoptAttempt(attempt, change);
  });
}

absl::StatusOr<JobId> ClusterState::AdoptAttempt(const AttemptId& attempt,
                                                 Change& change) {
  const OrphanTable::Entry* entry = orphans_.Find(attempt);
  const AttemptRecord* row = attempts_.Find(attempt);
  if (entry == nullptr) return NotAnOrphan(attempt, row);
  COHORT_RETURN_IF_ERROR(CheckAdoptable(*entry, row));
  const JobId job = entry->job;
  AddJobEvent(*jobs_.FindMutable(job), attempt, "attempt_adopted", "", change);
  Claim(attempt, change);
  // It was left alone when their time came (DR-2).
  for (const Place& place : std::vector<Place>(row->places)) {
    if (HasDeadlinePassed(place.node)) Evict(attempt, place.node, change);
  }
  return job;
}

absl::StatusOr<JobId> ClusterState::EndAttempt(const RequestKey& request,
                                               const AttemptId& attempt,
                                               Transition& transition) {
  return Mutate<JobId>(request, transition, [&](Change& change) {
    return EndAttempt(attempt, change);
  });
}

absl::StatusOr<JobId> ClusterState::EndAttempt(const AttemptId& attempt,
                                               Change& change) {
  const OrphanTable::Entry* entry = orphans_.Find(attempt);
  if (entry == nullptr) return NotAnOrphan(attempt, attempts_.Find(attempt));
  const JobId id = entry->job;
  if (entry->has_row) {
    JobRecord& job = *jobs_.FindMutable(id);
    AddJobEvent(job, attempt, "attempt_ended", "", change);
    const OrphanTable::Entry claimed = ReplayReports(attempt, change);
    AttemptRecord& record = *attempts_.FindMutable(attempt);
    if (record.state != v1::ATTEMPT_STATE_ENDED) {
      // Before what is missing of it: that is not why it ends.
      ApplyOutcome(job, record, controller_.EndOrphan(job, record), change);
    }
    LoseMissing(claimed, change);
    attempts_.NoteEndedOrphan(attempt);
  } else if (!entry->ending) {
    EndRowless(*entry, change);
  }
  return id;
}

void ClusterState::EndRowless(const OrphanTable::Entry& orphan,
                              Change& change) {
  const OrphanTable::Entry entry = orphan;  // it may go
  // Its job starts again because of it, and its nodes end what they have.
  const uint64_t told_by =
      AddEvent(EventOf("attempt_ended", "only its node knows of it",
                       {.job = entry.job, .attempt = entry.attempt}),
               change);
  change.freed_by = told_by;
  auto& ended = *cluster_.mutable_ended_orphans();
  *ended.Add() = IdBytes(entry.attempt);
  if (ended.size() > kEndedRemembered) ended.erase(ended.begin());
  orphans_.MarkEnding(entry.attempt);
  for (const auto& [node, part] : entry.parts) {
    change.forget[node].emplace(entry.attempt, entry.job);
    const NodeRecord* record = nodes_.Find(node);
    if (record == nullptr || record->state == v1::NODE_STATE_DEAD) {
      OnOrphanGone(node, entry.attempt, change);
    } else {
      nodes_.SetOrphanEvent(node, entry.attempt, told_by);
    }
  }
}

void ClusterState::OnOrphanGone(const NodeId& node, const AttemptId& orphan,
                                Change& change) {
  const std::optional<JobId> job = orphans_.OnOrphanGone(node, orphan);
  if (job.has_value()) Requeue(*job, change);
}

bool ClusterState::WasEnded(const AttemptId& orphan) const {
  const auto& ended = cluster_.ended_orphans();
  return std::find(ended.begin(), ended.end(), orphan.bytes()) != ended.end();
}

bool ClusterState::IsOrphan(const NodeId& node,
                            const v1::ObservedPlace& observed) const {
  const AttemptRecord* attempt = attempts_.Find(AttemptOf(observed));
  if (attempt != nullptr) {
    // One by one its slots may have been filled since on other nodes than its
    // row names.
    return attempt->orphaned() && (PlaceOn(*attempt, node) != nullptr ||
                                   (RunsOneByOne(*jobs_.Find(attempt->job)) &&
                                    IsNewer(observed, *attempt)));
  }
  return !HasEnded(observed) && !observed.generation().empty() &&
         observed.generation() != cluster_.generation();
}

bool ClusterState::TakeOrphan(const NodeId& node,
                              const v1::ObservedPlace& observed,
                              Change& change) {
  if (!IsOrphan(node, observed)) return false;
  const bool is_new = orphans_.Observe(node, observed, clock_.Wall());
  const OrphanTable::Entry& entry = *orphans_.Find(AttemptOf(observed));
  if (entry.has_row) {
    HoldOrphan(node, observed, 0, change);
    return true;
  }
  AcknowledgeWords(node, observed, change);  // no row takes them
  uint64_t told_by = 0;
  if (entry.ending || WasEnded(entry.attempt)) {
    orphans_.MarkEnding(entry.attempt);
    change.forget[node].emplace(entry.attempt, entry.job);
  } else if (is_new) {
    COHORT_LOG(kWarning, "attempt_orphaned", {"attempt", entry.attempt},
               {"job", entry.job}, {"node", node});
    told_by = AddEvent(
        EventOf("attempt_orphaned",
                "it began after the backup: it runs on until it ends or "
                "`cohort end` ends it",
                {.job = entry.job, .attempt = entry.attempt, .node = node}),
        change);
  }
  HoldOrphan(node, observed, told_by, change);
  // The entry's job, whatever this report says: that is the one that it keeps
  // waiting, and Requeue lets go.
  const JobRecord* job = jobs_.Find(entry.job);
  if (job != nullptr && job->row.state() == v1::JOB_STATE_PENDING) {
    Occupy(*job, change);
  }
  return true;
}

void ClusterState::HoldOrphan(const NodeId& node,
                              const v1::ObservedPlace& observed,
                              uint64_t told_by, Change& change) {
  const OrphanTable::Entry& entry = *orphans_.Find(AttemptOf(observed));
  AttemptRecord* const row = attempts_.FindMutable(entry.attempt);
  NodeTable::Held held = ClaimOf(node, observed);
  for (const v1::ObservedProcess& each : observed.processes()) {
    const bool in_row =
        row != nullptr &&
        FindProcess(*row, each.slot(), each.incarnation()) != nullptr;
    if (in_row || each.state() == v1::PROCESS_STATE_ENDED) continue;
    held.processes.emplace(Incarnation{each.slot(), each.incarnation()},
                           DevicesOf(held.each, each));
  }
  if (nodes_.SetOrphan(node, entry.attempt, entry.job, std::move(held))) {
    nodes_.SetOrphanEvent(node, entry.attempt, told_by);
    DisplaceFor(node, entry.attempt, change);
  }
}

void ClusterState::Claim(const AttemptId& id, Change& change) {
  LoseMissing(ReplayReports(id, change), change);
}

OrphanTable::Entry ClusterState::ReplayReports(const AttemptId& id,
                                               Change& change) {
  OrphanTable::Entry entry = orphans_.Take(id);
  AttemptRecord& attempt = *attempts_.FindMutable(id);
  JobRecord& job = *jobs_.FindMutable(attempt.job);
  const std::vector<Process> in_row = attempt.processes;
  attempt.orphaned_since = absl::InfinitePast();
  change.attempts.insert(id);
  change.jobs.insert(attempt.job);
  TakeNewest(job, attempt, entry, change);
  drivers_.TellAgain(DriverOf(*jobs_.Find(attempt.job)->spec));
  for (const Place& place : attempt.places) {
    change.desired[place.node].try_emplace(id);
  }
  for (const auto& [node, part] : entry.parts) {
    if (part.seen.has_value()) ApplyObserved(node, *part.seen, change);
  }
  // An orphan that has ended holds nothing, so what it had may be another's: a
  // slot does not back off in it.
  std::vector<int> without_room;
  for (const Process& process : attempt.processes) {
    const size_t slot = static_cast<size_t>(process.slot);
    if (process.backs_off() && !process.waits() && slot < in_row.size() &&
        process.incarnation != in_row[slot].incarnation) {
      without_room.push_back(process.slot);
    }
  }
  if (!without_room.empty()) {
    ApplyOutcome(job, attempt, controller_.Refill(attempt, without_room),
                 change);
  }
  return entry;
}

void ClusterState::TakeNewest(JobRecord& job, AttemptRecord& attempt,
                              const OrphanTable::Entry& entry, Change& change) {
  if (!RunsOneByOne(job)) return;  // then no slot is filled twice
  for (const auto& [node, part] : entry.parts) {
    if (!part.seen.has_value() || nodes_.Find(node) == nullptr) continue;
    for (const v1::ObservedProcess& seen : part.seen->processes()) {
      const size_t slot = static_cast<size_t>(seen.slot());
      if (slot >= attempt.processes.size() ||
          attempt.processes[slot].incarnation >= seen.incarnation()) {
        continue;
      }
      Process& process = attempt.processes[slot];
      if (HoldsRoom(attempt, process)) {
        nodes_.Release(attempt.id, process.node,
                       {process.slot, process.incarnation});
      }
      process.incarnation = seen.incarnation();
      process.node = node;
      process.devices = DevicesOf(ResourcesPerWorker(*job.spec), seen);
      process.state = v1::PROCESS_STATE_STARTING;
      process.again = process.leaving = false;
      process.has_row = true;
      job.row.set_incarnations(
          std::max(job.row.incarnations(), seen.incarnation()));
      if (PlaceOn(attempt, node) == nullptr) {
        attempt.places.push_back({.node = node});
        attempts_.NotePlace(attempt.id, node);
      }
      PlaceOn(attempt, node)->phase = v1::PLACE_PHASE_RUNNING;
      nodes_.RemoveOrphan(node, attempt.id);
      Hold(job, attempt, node, {process.slot});
      change.slots[attempt.id].insert(process.slot);
    }
  }
}

void ClusterState::LoseMissing(const OrphanTable::Entry& entry,
                               Change& change) {
  const AttemptId& id = entry.attempt;
  const AttemptRecord& attempt = *attempts_.Find(id);
  for (const Place& place : std::vector<Place>(attempt.places)) {
    const NodeRecord* node = nodes_.Find(place.node);
    const bool is_dead = node == nullptr || node->state == v1::NODE_STATE_DEAD;
    if (!is_dead && !entry.parts.at(place.node).missing) continue;
    ApplyMissing(place.node, id, change);
  }
  const JobRecord& job = *jobs_.Find(attempt.job);
  if (RunsOneByOne(job)) AskForSlots(job, attempt);
  Requeue(attempt.job, change);
}

void ClusterState::Requeue(const JobId& id, Change& change) {
  const JobRecord* job = jobs_.Find(id);
  if (job == nullptr || orphans_.OfJob(id) != nullptr) return;
  drivers_.TellAgain(DriverOf(*job->spec));
  gates_.array().Vacate(*job);
  if (job->row.state() != v1::JOB_STATE_PENDING) return;
  // It may stand there already.
  LeaveLine(*job);
  StandInLine(*job);
  TellPhase(*job, change);
}

void ClusterState::Settle(Change& change) {
  if (!cluster_.settling() ||
      clock_.Monotonic() - loaded_at_ < limits_.node_timeout) {
    return;
  }
  for (const auto& [id, node] : nodes_.records()) {
    const bool was_heard = node.node.incarnation() >= first_incarnation_;
    if (!was_heard && node.state != v1::NODE_STATE_DEAD) return;
  }
  cluster_.set_settling(false);
  AddEvent(EventOf("restore_settled",
                   absl::StrCat(orphans_.all().size(), " orphans")),
           change);
}

}  // namespace cohort::head
