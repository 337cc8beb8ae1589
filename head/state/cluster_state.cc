#include "head/state/cluster_state.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/state/end_reason.h"
#include "head/state/failure_class.h"
#include "head/state/head_lives.h"
#include "head/state/job_phases.h"
#include "head/state/job_spec.h"
#include "head/state/orphan_list.h"
#include "head/state/reconciler.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Of one decision, so that none takes long: the next tick goes on.
constexpr int kPlacementsPerPass = 1'000;
constexpr size_t kPlacementRowsPerPass = 3'000;
constexpr size_t kForgottenPerTick = 1'000;
constexpr size_t kMetricsPerTick = 1'000;

// Of an attempt, in the text of one event.
constexpr size_t kNodesNamed = 8;

}  // namespace

ClusterState::ClusterState(ClusterLimits limits, const Clock& clock,
                           Random& random, NodeLinks& links,
                           JobWatchers& watchers, Rows rows,
                           std::shared_ptr<const SecretBox> box)
    : limits_(limits),
      clock_(clock),
      random_(random),
      links_(links),
      watchers_(watchers),
      controller_(limits.runs,
                  [this](const NodeId& node) {
                    const NodeRecord* record = nodes_.Find(node);
                    return record == nullptr ? node.ToHex()
                                             : record->node.name();
                  }),
      box_(std::move(box)),
      requests_(limits.history.requests, clock),
      packages_(limits.history.packages, clock),
      audit_(limits.history.audit, clock),
      deadlines_(limits.tick_period, clock),
      gates_(jobs_, orphans_, deadlines_, clock, box_.get()),
      loaded_at_(clock.Monotonic()),
      history_(limits.history, clock, jobs_, attempts_, nodes_, metrics_) {
  Load(std::move(rows));
}

ClusterState::~ClusterState() = default;

void ClusterState::Load(Rows rows) {
  cluster_ = std::move(rows.cluster).value_or(NewCluster());
  first_incarnation_ = cluster_.next_incarnation();
  for (NodeRecord& node : rows.nodes) {
    const NodeId id = node.id;
    if (node.state != v1::NODE_STATE_DEAD) GrantLease(id);
    if (node.node.has_drain()) {
      deadlines_.Set({DueKind::kDrain, id},
                     RestOf(node.node.drain(), clock_.Wall()));
    }
    nodes_.Put(std::move(node));
    // Until it registers with this head.
    nodes_.Withdraw(id, clock_.Wall());
  }
  for (PackageRecord& package : rows.packages) {
    packages_.Add(std::move(package));
  }
  for (DriverRecord& driver : rows.drivers) {
    const DriverId id = IdOf<DriverId>(driver.driver_id());
    drivers_.Add(std::move(driver));
    AwaitDriver(id);
  }
  for (ClusterFile& file : rows.cluster_file) fleet_.SetFile(std::move(file));
  for (InstanceRecord& each : rows.instances) fleet_.Put(std::move(each));
  for (CapacityRecord& each : rows.capacity) {
    fleet_.PutCapacity(std::move(each));
  }
  for (TokenRecord& each : rows.tokens) tokens_.Put(std::move(each));
  for (MetricsRecord& each : rows.metrics) metrics_.Load(std::move(each));
  for (ArrayRecord& array : rows.arrays) jobs_.AddArray(std::move(array));
  for (JobRecord& job : rows.jobs) {
    if (!HasEnded(job.row.state()) &&
        !job.spec->launch().package_hash().empty()) {
      packages_.Pin(job.spec->launch().package_hash());
    }
    if (!HasEnded(job.row.state())) drivers_.AddActor(job);
    jobs_.Add(std::move(job));
  }
  for (AttemptRecord& attempt : rows.attempts) {
    if (attempt.state != v1::ATTEMPT_STATE_ENDED) {
      const JobRecord& job = *jobs_.Find(attempt.job);
      for (const Place& place : attempt.places) {
        Hold(job, attempt, place.node, SlotsOn(attempt, place.node));
      }
    }
    if (attempt.orphaned()) orphans_.Add(attempt);
    attempts_.Add(std::move(attempt));
  }
  for (const auto& [sequence, id] : jobs_.by_sequence()) {
    const JobRecord& job = *jobs_.Find(id);
    if (!HasEnded(job.row.state())) gates_.Added(job);
  }
  for (const auto& [sequence, id] : jobs_.by_sequence()) {
    const JobRecord& job = *jobs_.Find(id);
    if (job.row.state() == v1::JOB_STATE_PENDING) StandInLine(job);
    const AttemptRecord* const last = attempts_.LastOf(id);
    if (last != nullptr && RunsOneByOne(job)) AskForSlots(job, *last);
    // Of an element without a row it is what it began with.
    if (job.behind && job.row.phases().empty()) {
      NotePhase(PhaseOf(job), job.submitted_at(), *jobs_.FindMutable(id));
    }
  }
  for (const auto& [id, node] : nodes_.records()) {
    if (node.state == v1::NODE_STATE_DEAD && !attempts_.OnNode(id).empty()) {
      emptying_[id] = node.cause;
    }
  }
  for (const auto& [id, driver] : drivers_.records()) {
    if (!IsOwned(driver)) drivers_.NoteUnowned(id);
  }
  nodes_.TakeRestated();  // their rows say since when
  requests_.Load(std::move(rows.requests));
  history_.Load(rows.events);
  audit_.Load(rows.audit);
}

void ClusterState::TakeTerm(Transition& transition) {
  Change change;
  if (cluster_.cluster_id().empty()) {
    cluster_.set_cluster_id(IdBytes(ClusterId::New(random_)));
    cluster_.set_generation(IdBytes(GenerationId::New(random_)));
  }
  cluster_.set_term(cluster_.term() + 1);
  BeginLife(random_.Uint64(), nodes_, cluster_);
  if (cluster_.rowless_orphans()) cluster_.set_settling(true);
  change.cluster = true;
  // A back-off begins again.
  for (const auto& [sequence, id] : jobs_.by_sequence()) {
    const JobRecord& job = *jobs_.Find(id);
    if (!HasEnded(job.row.state())) TellPhase(job, change);
  }
  AddEvent(EventOf("head_started", absl::StrCat("term ", cluster_.term())),
           change);
  Finish(change, transition);
}

// ---- clients ----

void ClusterState::CompletePackage(const std::string& hash, int64_t size_bytes,
                                   Transition& transition) {
  if (packages_.Find(hash) != nullptr) {
    packages_.SetLost(hash, false);
    return;
  }
  Change change;
  const int64_t now_us = absl::ToUnixMicros(clock_.Wall());
  PackageRecord record;
  record.set_hash(hash);
  record.set_size_bytes(size_bytes);
  record.set_completed_at_us(now_us);
  record.set_unpinned_at_us(now_us);
  change.Put(record);
  packages_.Add(std::move(record));
  AddEvent(EventOf("package_completed", absl::BytesToHexString(hash)), change);
  Finish(change, transition);
}

void ClusterState::LosePackage(const std::string& hash, absl::string_view why,
                               Transition& transition) {
  if (packages_.Find(hash) == nullptr || !packages_.SetLost(hash, true)) return;
  Change change;
  AddEvent(EventOf("package_lost",
                   absl::StrCat(absl::BytesToHexString(hash), ": ", why)),
           change);
  Finish(change, transition);
}

std::vector<std::string> ClusterState::TrimPackages(
    const std::set<std::string>& uploading, Transition& transition) {
  Change change;
  std::vector<std::string> gone = packages_.Trim(uploading);
  for (const std::string& hash : gone) change.Delete<PackageRecord>(hash);
  Finish(change, transition);
  return gone;
}

// ---- what nodes have ----

absl::Status ClusterState::Observe(const NodeId& node, uint64_t incarnation,
                                   const v1::Observed& observed,
                                   Transition& transition) {
  const NodeRecord* record = nodes_.Find(node);
  if (record == nullptr || record->node.incarnation() != incarnation ||
      record->state == v1::NODE_STATE_DEAD) {
    return absl::OkStatus();
  }
  COHORT_RETURN_IF_ERROR(ValidateObserved(observed));
  COHORT_RETURN_IF_ERROR(CheckOrphans(node, observed));
  Change change;
  HearAgain(node, change);
  for (const v1::ObservedPlace& place : observed.places()) {
    ApplyObserved(node, place, change);
  }
  if (observed.full()) ApplyAbsence(node, observed, change);
  PlaceWaiting(change);
  Finish(change, transition);
  return absl::OkStatus();
}

void ClusterState::WithdrawNode(const NodeId& node, uint64_t incarnation) {
  const NodeRecord* record = nodes_.Find(node);
  if (record != nullptr && record->node.incarnation() == incarnation) {
    nodes_.Withdraw(node, clock_.Wall());
  }
}

void ClusterState::ApplyObserved(const NodeId& node,
                                 const v1::ObservedPlace& observed,
                                 Change& change) {
  if (TakeOrphan(node, observed, change)) return;
  AcknowledgeWords(node, observed, change);
  AttemptRecord* attempt = attempts_.FindMutable(AttemptOf(observed));
  const Place* const place =
      attempt == nullptr ? nullptr : PlaceOn(*attempt, node);
  if (place == nullptr || IsOver(*place) ||
      attempt->state == v1::ATTEMPT_STATE_ENDED) {
    return ApplyUnwanted(node, observed, change);
  }
  JobRecord& job = *jobs_.FindMutable(attempt->job);
  const uint64_t cause_before = change.cause;
  for (const v1::ObservedProcess& each : observed.processes()) {
    if (each.end_cause() == v1::END_CAUSE_DEVICE_FAULT) {
      change.cause = std::max(change.cause, FaultOf(*attempt, node));
    }
    // What is the attempt's no more, or is over, the node is to forget.
    const Process* const process =
        FindProcess(*attempt, each.slot(), each.incarnation());
    if (process == nullptr || process->node != node || process->over()) {
      change.desired[node][attempt->id].emplace(each.slot(),
                                                each.incarnation());
    }
  }
  ApplyExchanges(node, observed, *attempt, change);
  const RunOutcome outcome = ObserveWithMissing(job, *attempt, node, observed);
  if (outcome.preflight_told) {
    *job.row.mutable_preflight()->mutable_at() = rpc::ToWire(clock_.Wall());
  }
  if (!outcome.acknowledged.empty()) {
    change.acknowledged[node].push_back(
        {.attempt = attempt->id, .paths = outcome.acknowledged, .words = {}});
  }
  ApplyOutcome(job, *attempt, outcome, change);
  change.cause = cause_before;
  ApplyOrphans(node, observed, change);
}

void ClusterState::ApplyExchanges(const NodeId& node,
                                  const v1::ObservedPlace& observed,
                                  const AttemptRecord& attempt,
                                  Change& change) {
  if (observed.exchanges().empty() || observed.epoch() != attempt.epoch) return;
  const std::set<int> local_ranks = SlotsOn(attempt, node);
  for (const SharedExchange& complete :
       exchanges_.Give(attempt.id, attempt.epoch,
                       static_cast<int>(attempt.processes.size()), local_ranks,
                       observed.exchanges())) {
    for (const Place& each : attempt.places) {
      if (!IsOver(each)) change.exchanges[each.node].push_back(complete);
    }
  }
}

RunOutcome ClusterState::ObserveWithMissing(JobRecord& job,
                                            AttemptRecord& attempt,
                                            const NodeId& node,
                                            const v1::ObservedPlace& observed) {
  const bool failed =
      observed.preflight().verdict() == v1::PREFLIGHT_VERDICT_FAILED;
  const std::vector<int> missing =
      failed ? exchanges_.MissingOf(attempt.id) : std::vector<int>();
  if (missing.empty()) {
    return controller_.Observe(job, attempt, node, observed);
  }
  v1::ObservedPlace told = observed;
  absl::StrAppend(told.mutable_preflight()->mutable_summary(),
                  "; nothing was heard of rank",
                  missing.size() == 1 ? " " : "s ",
                  absl::StrJoin(missing, ", "));
  return controller_.Observe(job, attempt, node, told);
}

void ClusterState::AcknowledgeWords(const NodeId& node,
                                    const v1::ObservedPlace& observed,
                                    Change& change) {
  Acknowledged words{.attempt = AttemptOf(observed), .paths = {}, .words = {}};
  for (const v1::ObservedProcess& each : observed.processes()) {
    if (each.stderr_tail().empty()) continue;
    words.words.emplace(each.slot(), each.incarnation());
  }
  if (!words.words.empty()) {
    change.acknowledged[node].push_back(std::move(words));
  }
}

void ClusterState::ApplyUnwanted(const NodeId& node,
                                 const v1::ObservedPlace& observed,
                                 Change& change) {
  const AttemptId id = AttemptOf(observed);
  AttemptRecord* const attempt = attempts_.FindMutable(id);
  ApplyOrphans(node, observed, change);
  if (attempt == nullptr || PlaceOn(*attempt, node) == nullptr) {
    change.forget[node].emplace(id, JobOf(observed));
    return;
  }
  JobRecord& job = *jobs_.FindMutable(attempt->job);
  const RunOutcome outcome = controller_.ObserveAfterwards(
      job, *attempt, *attempts_.LastOf(job.id), node, observed);
  if (outcome.job_changed) change.jobs.insert(job.id);
  for (const RunOutcome::Note& note : outcome.notes) {
    AddJobEvent(job, id, note.kind, note.text, change);
  }
  change.desired[node].try_emplace(id);
}

void ClusterState::ApplyAbsence(const NodeId& node,
                                const v1::Observed& observed, Change& change) {
  std::set<AttemptId> present;
  for (const v1::ObservedPlace& place : observed.places()) {
    present.insert(AttemptOf(place));
  }
  for (const AttemptId& orphan : nodes_.OrphansOn(node)) {
    if (!present.contains(orphan)) RemoveOrphan(node, orphan, change);
  }
  for (const JobId& job : orphans_.NoteFullSet(node, present)) {
    Requeue(job, change);
  }
  for (const AttemptId& id : attempts_.OnNode(node)) {
    if (present.contains(id) || attempts_.Find(id)->orphaned()) continue;
    ApplyMissing(node, id, change);
  }
}

void ClusterState::ApplyMissing(const NodeId& node, const AttemptId& id,
                                Change& change) {
  AttemptRecord& attempt = *attempts_.FindMutable(id);
  const Place& place = *PlaceOn(attempt, node);
  if (IsOver(place)) return;
  JobRecord& job = *jobs_.FindMutable(attempt.job);
  const NodeRecord* record = nodes_.Find(node);
  const bool is_dead = record->state == v1::NODE_STATE_DEAD;
  const bool is_unbegun = attempt.state == v1::ATTEMPT_STATE_PREPARING ||
                          (attempt.state == v1::ATTEMPT_STATE_RUNNING &&
                           place.phase == v1::PLACE_PHASE_ASSIGNED);
  if (is_unbegun && !is_dead) {
    // It never arrived, or was lost before anything ran: sent again.
    v1::ObservedPlace nothing_yet;
    nothing_yet.set_phase(v1::PHASE_PREPARING);
    return ApplyOutcome(job, attempt,
                        controller_.Observe(job, attempt, node, nothing_yet),
                        change);
  }
  const std::string why = absl::StrCat(
      "node ", record->node.name(),
      is_dead ? " is dead" : " does not know the attempt any more");
  ApplyOutcome(job, attempt, controller_.LosePlace(job, attempt, node, why),
               change);
}

std::string ClusterState::WhySilent(const NodeId& node) const {
  return absl::StrCat("node ", nodes_.Find(node)->node.name(),
                      " was silent for ",
                      absl::FormatDuration(limits_.node_timeout));
}

void ClusterState::NodeSilent(const NodeId& node, Change& change) {
  const NodeRecord& record = *nodes_.Find(node);
  const std::string why = WhySilent(node);
  change.cause = 0;  // nothing of this decision
  COHORT_LOG(kWarning, "node_dead", {"node", node},
             {"name", record.node.name()}, {"timeout", limits_.node_timeout});
  change.cause = AddNodeEvent(node, "node_dead", why, change);
  nodes_.MarkDead(node);
  change.nodes.insert(node);
  change.disconnects.push_back(
      {.node = node,
       .incarnation = record.node.incarnation(),
       .reason = SetReason(
           absl::UnavailableError(absl::StrCat(why, ": register again")),
           "node_dead")});
  // So that a head which starts amid it goes on; a drain has its own.
  if (!record.node.has_drain()) nodes_.SetCause(node, change.cause);
  Empty(node, change.cause, change);
  for (const AttemptId& id : orphans_.EndingOn(node)) {
    OnOrphanGone(node, id, change);
  }
}

// ---- time ----

void ClusterState::Tick(Transition& transition) {
  Change change;
  deadlines_.Tick();
  TickNodes(change);
  AdmitDue(change);
  for (const Due& due :
       deadlines_.TakeDue(DueKind::kMetrics, kMetricsPerTick)) {
    metrics_stored_at_[due.ask().job] = clock_.Monotonic();
    PutMetrics(due.ask().job, change);
  }
  EndAbsentDrivers(change);
  ExpireCapacity(change);
  Settle(change);
  PlaceWaiting(change);
  change.may_forget = kForgottenPerTick;
  Finish(change, transition);
}

// ---- placing ----

void ClusterState::PlaceWaiting(Change& change) {
  // What follows is the head's: who waited is placed because of what made room.
  change.principal.clear();
  change.request_id.clear();
  AdmitReady(change);
  change.cause = std::max(change.cause, change.freed_by);
  if (cluster_.settling()) return;
  line_.Freed(nodes_.TakeGains(), nodes_.index());
  for (int tried = 0; tried < kPlacementsPerPass; ++tried) {
    const std::optional<AskId> next = line_.Next();
    if (!next.has_value() || change.row_count() >= kPlacementRowsPerPass) {
      return;
    }
    TryPlace(*next, change);
  }
}

void ClusterState::TryPlace(const AskId& ask, Change& change) {
  JobRecord& job = *jobs_.FindMutable(ask.job);
  Placement placement = PlaceGang(nodes_.index(), line_.RequestFor(ask));
  if (auto* refusal = std::get_if<Refusal>(&placement)) {
    line_.Refuse(ask, std::move(*refusal));
    return;
  }
  ++counters_.placements;
  const Plan& plan = std::get<Plan>(placement);
  if (ask.IsJob()) {
    PlaceJob(job, plan, change);
  } else {
    FillSlots(job, ask.first, plan, change);
  }
}

void ClusterState::PlaceJob(JobRecord& job, const Plan& plan, Change& change) {
  AttemptRecord attempt =
      controller_.Begin(job, AttemptId::New(random_), plan,
                        nodes_.Find(plan.parts.front().node)->node.host());
  for (const Place& place : attempt.places) {
    Hold(job, attempt, place.node, SlotsOn(attempt, place.node));
    change.desired[place.node].try_emplace(attempt.id);
  }
  const AttemptId attempt_id = attempt.id;
  change.attempts.insert(attempt_id);
  attempts_.Add(std::move(attempt));
  MoveJob(job, v1::JOB_STATE_STARTING, change, attempt_id);
  attempts_.FindMutable(attempt_id)->origin = job.row.origin();
  history_.TrimAttempts(job.id, change);
}

// ---- what follows for jobs ----

void ClusterState::ApplyOutcome(JobRecord& job, AttemptRecord& attempt,
                                const RunOutcome& outcome, Change& change) {
  if (outcome.job_changed) change.jobs.insert(job.id);
  if (outcome.attempt_changed) change.attempts.insert(attempt.id);
  if (!outcome.slots.empty()) {
    change.slots[attempt.id].insert(outcome.slots.begin(), outcome.slots.end());
  }
  if (outcome.metrics_changed) {
    metrics_.Note(job.id, job.row.metrics_json());
    if (AreMetricsDue(job.id)) PutMetrics(job.id, change);
  }
  const bool freed = ApplyGoals(attempt, outcome, change);
  for (const RunOutcome::Note& note : outcome.notes) {
    AddJobEvent(job, attempt.id, note.kind, note.text, change);
  }
  ApplyAttemptState(job, attempt, outcome, change);
  for (const JobState state : outcome.job_moves) {
    MoveJob(job, state, change, attempt.id);
  }
  if (freed) change.freed_by = job.row.origin().cause();
  // Who waits asks for what suits those that live.
  const bool others_wait = slot_asks_.contains(job.id);
  if (outcome.asks || (others_wait && !outcome.slots.empty())) {
    AskForSlots(job, attempt);
  }
  if (outcome.epoch_changed || outcome.addresses_changed) {
    change.watched.insert(job.id);
  }
  if (outcome.attempt_ended &&
      attempt.cause == v1::ATTEMPT_CAUSE_PACKAGE_LOST) {
    FailWithoutPackage(job, change);
  }
}

bool ClusterState::AreMetricsDue(const JobId& job) {
  const absl::Duration now = clock_.Monotonic();
  const auto [at, is_first] = metrics_stored_at_.emplace(job, now);
  const Due due{DueKind::kMetrics, AskId{job}};
  if (!is_first && !deadlines_.Contains(due)) {
    deadlines_.Set(due, at->second + limits_.metrics_period - now);
  }
  return is_first;
}

void ClusterState::PutMetrics(const JobId& job, Change& change) {
  change.jobs.insert(job);
  const MetricsRecord* const history = metrics_.TakeDue(job);
  if (history != nullptr) change.Put(*history);
}

bool ClusterState::ApplyGoals(AttemptRecord& attempt, const RunOutcome& outcome,
                              Change& change) {
  std::set<NodeId> left;
  bool freed = false;
  for (const auto& [process, node] : outcome.over) {
    const Process* const last =
        FindProcess(attempt, process.first, process.second);
    const bool keeps =
        last != nullptr && last->node == node && HoldsRoom(attempt, *last);
    if (!keeps) nodes_.Release(attempt.id, node, process);
    freed |= !keeps;
    left.insert(node);
    // Its slot may be another's already.
    change.desired[node][attempt.id].insert(process);
  }
  for (const NodeId& node : left) NoteLeft(node, change);
  for (const Place& place : attempt.places) {
    const bool retires =
        outcome.retired_changed && HoldsRankZero(attempt, place.node);
    if (outcome.goals_changed || retires) {
      change.desired[place.node].try_emplace(attempt.id);
    }
  }
  // From its first change on a slot has a row of its own.
  const bool is_over = attempt.state == v1::ATTEMPT_STATE_ENDED;
  for (const int slot : outcome.slots) {
    if (slot >= static_cast<int>(attempt.processes.size())) continue;
    attempt.processes[static_cast<size_t>(slot)].has_row = !is_over;
  }
  return freed;
}

void ClusterState::ApplyAttemptState(JobRecord& job,
                                     const AttemptRecord& attempt,
                                     const RunOutcome& outcome,
                                     Change& change) {
  if (!outcome.goals_changed) return;
  change.watched.insert(job.id);
  std::string text = EnumText(attempt.state);
  if (attempt.cause != v1::ATTEMPT_CAUSE_NONE) {
    absl::StrAppend(&text, " (", LowerEnumText(attempt.cause), ") ",
                    attempt.detail);
  }
  AddJobEvent(job, attempt.id, "attempt_moved", std::move(text), change);
  if (outcome.attempt_ended) {
    const FailureClass failure = ClassOf(attempt.cause, attempt.exit);
    ++counters_.attempts_ended[failure == v1::FAILURE_CLASS_NONE
                                   ? LowerEnumText(attempt.cause)
                                   : LowerEnumText(failure)];
    running_since_.erase(attempt.id);
    attempts_.Retire(attempt.id);
    exchanges_.Drop(attempt.id);
  }
}

void ClusterState::MoveJob(JobRecord& job, JobState to, Change& change,
                           const AttemptId& attempt) {
  const absl::Time now = clock_.Wall();
  const bool was_waiting = job.row.state() == v1::JOB_STATE_PENDING;
  jobs_.Move(job.id, to);
  if (was_waiting) {
    LeaveLine(job);
    gates_.back_off().Forget(job.id);
  }
  if (to == v1::JOB_STATE_PENDING) StandInLine(job);
  if (to == v1::JOB_STATE_RUNNING) {
    running_since_.emplace(attempt, clock_.Monotonic());
    if (job.started_at() == absl::InfinitePast()) {
      job.row.set_started_at_us(ToMicros(now));
    }
  }
  if (HasEnded(to)) {
    job.row.set_ended_at_us(ToMicros(now));
    metrics_stored_at_.erase(job.id);
    const MetricsRecord* const metrics = metrics_.TakeLast(job.id);
    if (metrics != nullptr) change.Put(*metrics);
    deadlines_.Erase({DueKind::kMetrics, AskId{job.id}});
    gates_.Ended(job);
    drivers_.RemoveActor(job);
    ForgetDriver(DriverOf(*job.spec), change);
    const std::string& hash = job.spec->launch().package_hash();
    if (!hash.empty() && packages_.Unpin(hash, now)) {
      change.Put(*packages_.Find(hash));
    }
  }
  if (change.quietly) {
    job.row.mutable_origin()->set_cause(change.cause);
  } else {
    AddJobEvent(
        job, attempt, "job_moved",
        absl::StrCat(EnumText(to),
                     to == v1::JOB_STATE_STARTING ? NodesText(attempt) : "",
                     job.row.reason().empty() ? "" : ": ", job.row.reason()),
        change);
  }
  change.jobs.insert(job.id);
  change.watched.insert(job.id);
}

std::string ClusterState::NodesText(const AttemptId& attempt) const {
  const std::vector<Place>& places = attempts_.Find(attempt)->places;
  std::string text;
  for (size_t i = 0; i < places.size() && i < kNodesNamed; ++i) {
    absl::StrAppend(&text, i == 0 ? " on " : ", ",
                    nodes_.Find(places[i].node)->node.name());
  }
  if (places.size() > kNodesNamed) {
    absl::StrAppend(&text, " and ", places.size() - kNodesNamed, " more");
  }
  return text;
}

std::string ClusterState::ReasonOf(const JobRecord& job) const {
  if (const auto* orphan = orphans_.KeepsBack(job)) {
    return OrphanReason(*orphan);
  }
  if (job.row.state() != v1::JOB_STATE_PENDING) {
    const AttemptRecord* attempt =
        HasEnded(job.row.state()) ? nullptr : attempts_.LastOf(job.id);
    if (attempt == nullptr) return job.row.reason();
    if (IsEndedOrphan(*attempt)) return EndedOrphanReason(*attempt, nodes_);
    if (RunsOneByOne(job)) return SlotsReason(job);
    const std::string early = EarlyExitText(*attempt, clock_.Wall());
    return early.empty() ? job.row.reason() : early;
  }
  std::string kept;
  for (const Wait& wait : WaitsOf(job)) {
    if (wait.kind == v1::WAIT_KIND_RESTORED) return wait.text;
    // What comes first, and what time ends meanwhile.
    if (!kept.empty() && wait.until == absl::InfiniteFuture()) continue;
    absl::StrAppend(&kept, kept.empty() ? "" : "; ", wait.text);
  }
  if (WillEnd(job))
    return jobs_.arrays().Find(job.id.array())->record.row.end().reason();
  if (!kept.empty()) {
    return job.row.attempts() == 0 ? kept
                                   : absl::StrCat(kept, "; ", job.row.reason());
  }
  const std::string waits = line_.ReasonOf(job, nodes_.index());
  if (job.row.attempts() == 0) return waits.empty() ? job.row.reason() : waits;
  if (waits.empty()) return job.row.reason();
  return absl::StrCat(job.row.reason(), "; to start again it ", waits);
}

std::vector<Wait> ClusterState::WaitsOf(const JobRecord& job) const {
  std::vector<Wait> waits = gates_.WaitsOf(job);
  // It stands in line meanwhile, which stands still.
  if (cluster_.settling() && !orphans_.Keeps(job)) {
    waits.insert(waits.begin(),
                 {.kind = v1::WAIT_KIND_RESTORED,
                  .text = "the store was restored: nothing starts before its "
                          "nodes were heard of, or are dead",
                  .lifted_by = {{.kind = "NODES_HEARD_OF",
                                 .text = "its nodes heard of, or dead"}}});
  }
  return waits;
}

std::vector<HistoryLevel> ClusterState::HistoryLevels() const {
  std::vector<HistoryLevel> levels = history_.Levels();
  levels.push_back(requests_.Level());
  levels.push_back(packages_.Level());
  levels.push_back(audit_.Level());
  return levels;
}

std::map<std::string, int64_t> ClusterState::WaitingByReason() const {
  const auto in_line = static_cast<int64_t>(line_.size());
  std::map<std::string, int64_t> waiting = gates_.Counts();
  waiting[LowerEnumText(v1::WAIT_KIND_BACK_OFF)] =
      static_cast<int64_t>(deadlines_.Of(DueKind::kBackOff).size());
  waiting[LowerEnumText(v1::WAIT_KIND_RESOURCES)] =
      cluster_.settling() ? 0 : in_line;
  waiting[LowerEnumText(v1::WAIT_KIND_RESTORED)] =
      cluster_.settling() ? in_line : 0;
  return waiting;
}

// ---- events and the end of a decision ----

uint64_t ClusterState::AddEvent(EventRecord event, Change& change) {
  event.set_number(cluster_.next_event());
  cluster_.set_next_event(event.number() + 1);
  *event.mutable_at() = rpc::ToWire(clock_.Wall());
  event.set_cause(std::max(event.cause(), change.cause));
  if (!change.principal.empty()) {
    event.set_principal(change.principal);
    event.set_request_id(change.request_id);
  } else if (event.principal().empty()) {
    event.set_principal("head");
  }
  if (event.namespace_().empty()) event.set_namespace_(kDefaultNamespace);
  ++counters_.events_by_kind[event.kind()];
  change.cluster = true;
  change.events.push_back(std::move(event));
  return change.events.back().number();
}

void ClusterState::AddJobEvent(JobRecord& job, const AttemptId& attempt,
                               const char* kind, std::string text,
                               Change& change) {
  change.jobs.insert(job.id);
  // They come and go by the hundred, and are their driver's business.
  if (job.spec->actor().executor()) return;
  // Its cause: the event of this job before.
  EventRecord event = EventOf(
      kind, std::move(text),
      {.job = job.id, .attempt = attempt, .cause = job.row.origin().cause()});
  event.set_namespace_(job.row.origin().namespace_());
  if (const AttemptRecord* record = attempts_.Find(attempt)) {
    for (const Place& place : record->places) {
      if (event.node_ids_size() == kEventNodesMax) break;
      event.add_node_ids(IdBytes(place.node));
    }
  }
  job.row.mutable_origin()->set_cause(AddEvent(std::move(event), change));
}

TableView ClusterState::view() const {
  return {.now = clock_.Wall(),
          .cluster = cluster_,
          .nodes = nodes_,
          .jobs = jobs_,
          .attempts = attempts_,
          .drivers = drivers_};
}

void ClusterState::Finish(Change& change, Transition& transition) {
  EndUnownedDrivers(change);
  const absl::Time now = clock_.Wall();
  for (const JobId& id : change.jobs) {
    JobRecord& job = *jobs_.FindMutable(id);
    job.behind = false;
    if (!HasEnded(job.row.state())) NotePhase(PhaseOf(job), now, job);
  }
  for (const NodeId& node : nodes_.TakeRestated()) {
    nodes_.SetSince(node, now);
    change.nodes.insert(node);
  }
  const bool rowless = cluster_.settling() || orphans_.HasRowless();
  if (cluster_.rowless_orphans() != rowless) {
    cluster_.set_rowless_orphans(rowless);
    change.cluster = true;
  }
  const StoredSizes sizes = PutRows(change, view(), transition);
  counters_.most_rows = std::max(counters_.most_rows, transition.row_count());
  for (size_t i = 0; i < change.requests.size(); ++i) {
    requests_.Add(change.requests[i], sizes.requests[i]);
  }
  history_.Note(change, sizes.events);
  history_.Trim(change.may_forget, change);
  for (const RequestRecord& each :
       requests_.Trim(2 * change.requests.size() + change.may_forget)) {
    change.Delete<RequestRecord>(each.principal(), each.request_id());
  }
  transition.Add(std::exchange(change.gone, {}));
  audit_.Trim(change.may_forget, transition);
  if (change.cluster) transition.Put(cluster_);
  AddEffects(std::move(change), view(), links_, watchers_, transition);
}

}  // namespace cohort::head
