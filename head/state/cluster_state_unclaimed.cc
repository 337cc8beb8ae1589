// The part of ClusterState that deals with what it did not decide: attempts of
// an earlier generation of a restored store (docs/design/0003-head.md, UN-1).
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/state/adoption.h"
#include "head/state/cluster_state.h"
#include "head/state/job_spec.h"

namespace cohort::head {
namespace {

// Of attempts that a person has ended and whose nodes may not know it yet.
constexpr size_t kEndedRemembered = 256;

absl::Status NotUnclaimed(const AttemptId& attempt,
                          const AttemptRecord* known) {
  const std::string what =
      known == nullptr
          ? absl::StrCat("no attempt ", attempt.ToHex(), " is unclaimed")
          : absl::StrCat("attempt ", attempt.ToHex(), " of job ",
                         known->job.ToText(), " is ",
                         AttemptStateName(known->state), " and not unclaimed");
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

bool HasEndedOn(const NodeId& node, const UnclaimedTable::Entry& entry) {
  const auto seen = entry.seen.find(node);
  return seen != entry.seen.end() &&
         seen->second.phase == ObservedPhase::kEnded;
}

absl::Status CannotAdoptEnded(const AttemptId& attempt) {
  return SetReason(absl::FailedPreconditionError(absl::StrCat(
                       "attempt ", attempt.ToHex(),
                       " cannot be adopted: it was ended, and goes once its "
                       "nodes hear of it")),
                   "cannot_adopt");
}

}  // namespace

absl::StatusOr<JobId> ClusterState::AdoptAttempt(const RequestKey& request,
                                                 const AttemptId& attempt,
                                                 Transition& transition) {
  COHORT_ASSIGN_OR_RETURN(
      const RequestRecord* earlier,
      requests_.Find(request.principal, request.request_id, request.body_hash));
  if (earlier != nullptr) return JobId::FromBytes(earlier->answer);
  const UnclaimedTable::Entry* entry = unclaimed_.Find(attempt);
  if (entry == nullptr) return NotUnclaimed(attempt, attempts_.Find(attempt));
  if (entry->ending) return CannotAdoptEnded(attempt);
  const JobId job = entry->job;
  const bool is_stranger = !entry->has_row;
  Change change;
  if (!is_stranger) {
    COHORT_RETURN_IF_ERROR(CheckNotOver(*entry, *attempts_.Find(attempt)));
  } else {
    COHORT_RETURN_IF_ERROR(GiveRows(*entry, request, change));
  }
  Remember(request, job.bytes(), change);
  JobRecord& row = *jobs_.FindMutable(job);
  AddJobEvent(row, attempt, "attempt_adopted", "", change);
  if (is_stranger) {
    Occupy(row, change);
    MoveJob(row, JobState::kStarting, change, attempt);
  }
  Claim(attempt, change);
  // It was left alone when their time came (DR-2).
  for (const AttemptPart& part :
       std::vector<AttemptPart>(attempts_.Find(attempt)->parts)) {
    if (drains_.HasPassed(part.node)) Evict(attempt, part.node, change);
  }
  PlaceWaiting(change);
  Finish(change, transition);
  return job;
}

absl::StatusOr<JobId> ClusterState::EndAttempt(const RequestKey& request,
                                               const AttemptId& attempt,
                                               Transition& transition) {
  COHORT_ASSIGN_OR_RETURN(
      const RequestRecord* earlier,
      requests_.Find(request.principal, request.request_id, request.body_hash));
  if (earlier != nullptr) return JobId::FromBytes(earlier->answer);
  const UnclaimedTable::Entry* entry = unclaimed_.Find(attempt);
  if (entry == nullptr) return NotUnclaimed(attempt, attempts_.Find(attempt));
  const JobId id = entry->job;
  Change change;
  Remember(request, id.bytes(), change);
  if (entry->has_row) {
    JobRecord& job = *jobs_.FindMutable(id);
    AddJobEvent(job, attempt, "attempt_ended", "", change);
    const UnclaimedTable::Entry claimed = HearOut(attempt, change);
    AttemptRecord& record = *attempts_.FindMutable(attempt);
    if (record.state != AttemptState::kEnded) {
      // Before what is missing of it: that is not why it ends.
      ApplyOutcome(job, record, controller_.EndUnclaimed(job, record), change);
    }
    LoseMissing(claimed, change);
    attempts_.NoteEndedUnclaimed(attempt);
  } else if (!entry->ending) {
    EndStranger(*entry, request, change);
  }
  PlaceWaiting(change);
  Finish(change, transition);
  return id;
}

void ClusterState::EndStranger(const UnclaimedTable::Entry& stranger,
                               const RequestKey& request, Change& change) {
  const UnclaimedTable::Entry entry = stranger;  // it may go
  EventRecord event;
  event.kind = "attempt_ended";
  event.origin.principal = request.principal;
  event.job = entry.job;
  event.attempt = entry.attempt;
  event.text = "only its node knows of it";
  // Its job starts again because of it, and its nodes end what they have.
  const uint64_t told_by = AddEvent(std::move(event), change);
  change.freed_by = told_by;
  std::vector<AttemptId>& ended = cluster_.ended_unclaimed;
  ended.push_back(entry.attempt);
  if (ended.size() > kEndedRemembered) ended.erase(ended.begin());
  unclaimed_.MarkEnding(entry.attempt);
  for (const auto& [node, observed] : entry.seen) {
    change.forget[node].emplace(entry.attempt, entry.job);
    const NodeRecord* record = nodes_.Find(node);
    const bool is_dead = record == nullptr || record->state == NodeState::kDead;
    if (is_dead || observed.phase == ObservedPhase::kEnded) {
      NoteGone(node, entry.attempt, change);
    } else {
      nodes_.SetGhostEvent(node, entry.attempt, told_by);
    }
  }
}

void ClusterState::NoteGone(const NodeId& node, const AttemptId& stranger,
                            Change& change) {
  const std::optional<JobId> job = unclaimed_.NoteGone(node, stranger);
  if (job.has_value()) LetGo(*job, change);
}

bool ClusterState::WasEnded(const AttemptId& stranger) const {
  const UnclaimedTable::Entry* entry = unclaimed_.Find(stranger);
  if (entry != nullptr && entry->ending) return true;
  const std::vector<AttemptId>& ended = cluster_.ended_unclaimed;
  return std::find(ended.begin(), ended.end(), stranger) != ended.end();
}

bool ClusterState::IsUnclaimed(const NodeId& node,
                               const ObservedAttempt& observed) const {
  const AttemptRecord* attempt = attempts_.Find(observed.attempt);
  if (attempt != nullptr) {
    // It was never placed on another node than its row names.
    return attempt->unclaimed() && PartOn(*attempt, node) != nullptr;
  }
  return !observed.generation.empty() &&
         absl::string_view(observed.generation) != cluster_.generation.bytes();
}

absl::Status ClusterState::CheckUnclaimed(const NodeId& node,
                                          const Observed& observed) const {
  std::vector<const ObservedAttempt*> unclaimed;
  for (const ObservedAttempt& each : observed.attempts) {
    if (IsUnclaimed(node, each)) unclaimed.push_back(&each);
  }
  return unclaimed_.CheckRoom(node, unclaimed);
}

bool ClusterState::TakeUnclaimed(const NodeId& node,
                                 const ObservedAttempt& observed,
                                 Change& change) {
  if (!IsUnclaimed(node, observed)) return false;
  if (attempts_.Find(observed.attempt) != nullptr) {
    unclaimed_.Observe(node, observed, clock_.Wall());
    return true;
  }
  const bool is_ending = WasEnded(observed.attempt);
  if (is_ending) change.forget[node].emplace(observed.attempt, observed.job);
  if (is_ending && observed.phase == ObservedPhase::kEnded) {
    RemoveGhost(node, observed.attempt, change);
    NoteGone(node, observed.attempt, change);
    return true;
  }
  const uint64_t told_by = nodes_.GhostEvent(node, observed.attempt);
  nodes_.RemoveGhost(node, observed.attempt);
  const bool is_new = unclaimed_.Observe(node, observed, clock_.Wall());
  if (is_ending) {
    unclaimed_.MarkEnding(observed.attempt);
  } else if (is_new) {
    COHORT_LOG(kWarning, "attempt_unclaimed", {"attempt", observed.attempt},
               {"job", observed.job}, {"node", node});
    EventRecord event;
    event.kind = "attempt_unclaimed";
    event.text = "it began after the backup: `cohort adopt` or `cohort end` it";
    event.job = observed.job;
    event.attempt = observed.attempt;
    event.node = node;
    AddEvent(std::move(event), change);
  }
  // What it holds there is not free; all of the node until it is said what.
  const UnclaimedTable::Entry& entry = *unclaimed_.Find(observed.attempt);
  if (observed.phase != ObservedPhase::kEnded) {
    std::optional<AttemptPart> part;
    if (entry.seen.at(node).wanted.has_value()) {
      part = PartOf(node, *entry.seen.at(node).wanted);
    }
    const bool fresh = nodes_.AddGhost(node, observed.attempt, entry.job,
                                       part.has_value() ? &*part : nullptr);
    nodes_.SetGhostEvent(node, observed.attempt, told_by);
    if (fresh) GiveWayTo(node, observed.attempt, change);
  }
  // The entry's job, whatever this report says: that is the one that it keeps
  // waiting, and LetGo lets go.
  const JobRecord* job = jobs_.Find(entry.job);
  if (job == nullptr || job->state != JobState::kPending) return true;
  const bool runs =
      std::any_of(entry.seen.begin(), entry.seen.end(), [](const auto& seen) {
        return seen.second.phase != ObservedPhase::kEnded;
      });
  if (runs) {
    Occupy(*job, change);
  } else {
    LeaveLine(*job);
    eligibility_.Withdraw(*job);
    TellPhase(*job, change);
  }
  return true;
}

absl::Status ClusterState::CheckParts(const UnclaimedTable::Entry& entry,
                                      const AttemptRecord& attempt) const {
  for (const AttemptPart& part : attempt.parts) {
    const bool has_ended = HasEndedOn(part.node, entry);
    const NodeRecord* node = nodes_.Find(part.node);
    if (node == nullptr || (node->state == NodeState::kDead && !has_ended)) {
      return CannotAdopt(
          attempt.id,
          absl::StrCat("its node ",
                       node == nullptr ? part.node.ToHex() : node->name,
                       " is dead: start its worker again and try again"));
    }
    if (has_ended) continue;
    const std::string obstacle = nodes_.ObstacleTo(attempt.id, part);
    if (obstacle.empty()) continue;
    return CannotAdopt(attempt.id,
                       absl::StrCat("on node ", node->name, " ", obstacle));
  }
  return absl::OkStatus();
}

absl::Status ClusterState::GiveRows(const UnclaimedTable::Entry& entry,
                                    const RequestKey& request, Change& change) {
  COHORT_ASSIGN_OR_RETURN(AttemptRecord attempt, RecordOf(entry));
  COHORT_RETURN_IF_ERROR(CheckJobOf(entry, attempt));
  COHORT_RETURN_IF_ERROR(CheckParts(entry, attempt));
  if (jobs_.Find(entry.job) == nullptr) {
    COHORT_RETURN_IF_ERROR(GiveJobRow(entry, request, change));
  }
  GiveAttemptRow(entry, std::move(attempt), change);
  return absl::OkStatus();
}

absl::Status ClusterState::CheckJobOf(const UnclaimedTable::Entry& entry,
                                      const AttemptRecord& attempt) const {
  const JobRecord* job = jobs_.Find(entry.job);
  if (job == nullptr) return absl::OkStatus();
  if (job->state != JobState::kPending) {
    return CannotAdopt(
        entry.attempt,
        absl::StrCat("its job is ", JobStateName(job->state), " here"));
  }
  const DesiredAttempt& wanted = *entry.seen.begin()->second.wanted;
  if (wanted.world_size != job->spec->num_workers ||
      wanted.resources_per_rank != job->spec->resources_per_worker) {
    return CannotAdopt(
        entry.attempt,
        absl::StrCat("its node says that it is ", wanted.world_size,
                     " ranks of ", wanted.resources_per_rank.ToString(),
                     ", its job here asks for ", job->spec->num_workers, " of ",
                     job->spec->resources_per_worker.ToString()));
  }
  for (const AttemptId& sibling : attempts_.AllOf(entry.job)) {
    const AttemptRecord& other = *attempts_.Find(sibling);
    if (other.number < attempt.number) continue;
    return CannotAdopt(entry.attempt,
                       absl::StrCat("a later attempt of its job, ",
                                    other.number, ", is known here"));
  }
  return absl::OkStatus();
}

absl::Status ClusterState::GiveJobRow(const UnclaimedTable::Entry& entry,
                                      const RequestKey& request,
                                      Change& change) {
  if (entry.job.IsElement()) {
    return CannotAdopt(entry.attempt, "its array is not known here");
  }
  JobRecord job = JobOf(entry);
  COHORT_RETURN_IF_ERROR(
      Annotate(ValidateJobSpec(*job.spec, job.origin.name_space),
               "its node says nonsense of the job"));
  const std::string& package = job.spec->package_hash;
  if (!package.empty()) {
    if (packages_.Find(package) == nullptr) {
      return CannotAdopt(entry.attempt,
                         absl::StrCat("the backup lacks its package ",
                                      absl::BytesToHexString(package),
                                      ", so that it could never start again"));
    }
    packages_.Pin(package);
  }
  job.origin.principal = request.principal;
  job.origin.request_id = request.request_id;
  job.sequence = cluster_.next_job_sequence++;
  job.submitted_at = clock_.Wall();
  change.cluster = true;
  jobs_.Add(std::move(job));
  eligibility_.Added(*jobs_.Find(entry.job));
  return absl::OkStatus();
}

void ClusterState::GiveAttemptRow(const UnclaimedTable::Entry& entry,
                                  AttemptRecord attempt, Change& change) {
  JobRecord& job = *jobs_.FindMutable(entry.job);
  job.attempts = attempt.number;
  job.epoch = std::max(job.epoch, attempt.epoch);
  job.reason.clear();
  for (const AttemptPart& part : attempt.parts) {
    if (HasEndedOn(part.node, entry)) continue;
    nodes_.RemoveGhost(part.node, attempt.id);
    nodes_.Hold(attempt.id, part);
  }
  attempt.origin = job.origin;
  change.attempts.insert(attempt.id);
  attempts_.Add(std::move(attempt));
}

void ClusterState::Claim(const AttemptId& id, Change& change) {
  LoseMissing(HearOut(id, change), change);
}

UnclaimedTable::Entry ClusterState::HearOut(const AttemptId& id,
                                            Change& change) {
  UnclaimedTable::Entry entry = unclaimed_.Take(id);
  AttemptRecord& attempt = *attempts_.FindMutable(id);
  attempt.unclaimed_since = absl::InfinitePast();
  change.attempts.insert(id);
  change.jobs.insert(attempt.job);
  for (const AttemptPart& part : attempt.parts) {
    change.desired[part.node].insert(id);
  }
  for (const auto& [node, observed] : entry.seen) {
    ApplyObserved(node, observed, change);
  }
  return entry;
}

void ClusterState::LoseMissing(const UnclaimedTable::Entry& entry,
                               Change& change) {
  const AttemptId& id = entry.attempt;
  const AttemptRecord& attempt = *attempts_.Find(id);
  for (const AttemptPart& part : std::vector<AttemptPart>(attempt.parts)) {
    const NodeRecord* node = nodes_.Find(part.node);
    const bool is_dead = node == nullptr || node->state == NodeState::kDead;
    if (!is_dead && !entry.missing.contains(part.node)) continue;
    ApplyMissing(part.node, id, change);
  }
  LetGo(attempt.job, change);
}

void ClusterState::LetGo(const JobId& id, Change& change) {
  const JobRecord* job = jobs_.Find(id);
  if (job == nullptr || unclaimed_.OfJob(id) != nullptr) return;
  eligibility_.Vacate(*job);
  if (job->state != JobState::kPending) return;
  // It may stand there already.
  LeaveLine(*job);
  StandInLine(*job);
  TellPhase(*job, change);
}

void ClusterState::Settle(Change& change) {
  if (!cluster_.settling ||
      clock_.Monotonic() - loaded_at_ < limits_.node_timeout) {
    return;
  }
  for (const auto& [id, node] : nodes_.records()) {
    const bool was_heard = node.incarnation >= first_incarnation_;
    if (!was_heard && node.state != NodeState::kDead) return;
  }
  cluster_.settling = false;
  EventRecord event;
  event.kind = "restore_settled";
  event.text = absl::StrCat(unclaimed_.all().size(), " attempts unclaimed");
  AddEvent(std::move(event), change);
}

}  // namespace cohort::head
