// ClusterState's part about slots of running attempts: those that wait to be
// filled, and how many a job has (docs/design/0009-processes.md).

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/job_limits.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/placement/candidates.h"
#include "head/placement/node_form.h"
#include "head/placement/refusal.h"
#include "head/state/cluster_state.h"
#include "head/state/job_spec.h"
#include "head/state/wait.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

// Of one kind, so that no tick takes long: the next one goes on.
constexpr size_t kAdmittedPerTick = 1'000;
// Of what one job waits for, for people.
constexpr size_t kSlotsReasonBytesMax = 512;

// How many slots of the attempt have room on each node.
std::map<NodeId, int> SlotsByNode(const AttemptRecord& attempt) {
  std::map<NodeId, int> slots;
  for (const Process& process : attempt.processes) {
    if (HoldsRoom(attempt, process)) ++slots[process.node];
  }
  return slots;
}

// Whether all slots that wait are placed together or not at all: no other says
// where, and the first alone could go where the others never fit.
bool WaitTogether(const JobRecord& job, const AttemptRecord& attempt) {
  if (!SlotsByNode(attempt).empty()) return false;
  const GangRequest request = RequestOf(job);
  return OnOneNode(request) || InOneDomain(request);
}

}  // namespace

// ---- asks ----

void ClusterState::AskForSlots(const JobRecord& job,
                               const AttemptRecord& attempt) {
  std::vector<SlotAsk> asks;
  const bool goes_on = attempt.state != v1::ATTEMPT_STATE_ENDED &&
                       attempt.cause == v1::ATTEMPT_CAUSE_NONE &&
                       !attempt.orphaned();
  const bool together = WaitTogether(job, attempt);
  // Together with the last of them.
  const bool too_early =
      together && std::any_of(attempt.processes.begin(),
                              attempt.processes.end(), [](const Process& each) {
                                return each.backs_off() && !each.retired;
                              });
  // One of an attempt that was adopted, which cannot begin again.
  const bool has_secrets = !gates_.secrets().Keeps(job);
  if (goes_on && !too_early && has_secrets) asks = AsksOf(attempt, together);
  BackOff(job, attempt, goes_on);
  DropAsks(job, asks);
  std::map<int, int>& known = slot_asks_[job.id];
  std::map<int, GangRequest> requests;  // by how many slots
  for (const SlotAsk& ask : asks) {
    const AskId id{job.id, ask.first};
    known.insert_or_assign(ask.first, ask.count);
    const auto [request, fresh] = requests.try_emplace(ask.count);
    if (fresh) request->second = RequestForSlots(job, attempt, ask.count);
    if (line_.Contains(id)) {
      if (line_.RequestFor(id) == request->second) continue;
      line_.Remove(job, ask.first);
    }
    line_.AddSlots(job, ask.first, request->second);
  }
  if (known.empty()) slot_asks_.erase(job.id);
}

std::vector<int> ClusterState::BackingOff(const JobId& job) const {
  std::vector<int> slots;
  const auto& times = deadlines_.Of(DueKind::kBackOff);
  for (auto at = times.lower_bound({DueKind::kBackOff, AskId{job, 0}});
       at != times.end() && at->first.ask().job == job; ++at) {
    slots.push_back(at->first.ask().first);
  }
  return slots;
}

void ClusterState::BackOff(const JobRecord& job, const AttemptRecord& attempt,
                           bool goes_on) {
  std::set<int> slots;
  for (const Process& process : attempt.processes) {
    if (goes_on && process.backs_off()) slots.insert(process.slot);
  }
  for (const int slot : BackingOff(job.id)) {
    if (slots.erase(slot) > 0) continue;  // it has its time
    deadlines_.Erase({DueKind::kBackOff, AskId{job.id, slot}});
  }
  for (const int slot : slots) {
    deadlines_.Set(
        {DueKind::kBackOff, AskId{job.id, slot}},
        BackOffOf(job, attempt.processes[static_cast<size_t>(slot)]));
  }
}

void ClusterState::DropAsks(const JobRecord& job,
                            const std::vector<SlotAsk>& asks) {
  const auto found = slot_asks_.find(job.id);
  if (found == slot_asks_.end()) return;
  for (auto at = found->second.begin(); at != found->second.end();) {
    // One of fewer slots has waited as long.
    const auto same = std::lower_bound(
        asks.begin(), asks.end(), at->first,
        [](const SlotAsk& ask, int first) { return ask.first < first; });
    if (same != asks.end() && same->first == at->first &&
        same->count <= at->second) {
      ++at;
      continue;
    }
    line_.Remove(job, at->first);
    at = found->second.erase(at);
  }
}

void ClusterState::AdmitDue(Change& change) {
  std::map<JobId, std::vector<int>> slots;
  for (const DueKind kind : {DueKind::kStartTime, DueKind::kBackOff}) {
    for (const Due& due : deadlines_.TakeDue(kind, kAdmittedPerTick)) {
      const AskId& ask = due.ask();
      if (ask.IsJob()) {
        AskAgain({ask.job}, change);
      } else {
        slots[ask.job].push_back(ask.first);
      }
    }
  }
  for (const auto& [job, due] : slots) {
    AttemptRecord& attempt = *attempts_.FindMutable(attempts_.LastOf(job)->id);
    ApplyOutcome(*jobs_.FindMutable(job), attempt,
                 controller_.Refill(attempt, due), change);
  }
}

GangRequest ClusterState::RequestForSlots(const JobRecord& job,
                                          const AttemptRecord& attempt,
                                          int count) const {
  GangRequest request = RequestOf(job);
  request.num_workers = count;
  // The strategy holds for all slots, also those that live.
  const std::map<NodeId, int> living = SlotsByNode(attempt);
  if (living.empty()) return request;
  const bool apart = request.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD;
  const bool together = OnOneNode(request) && !apart;
  LabelSelector::Requirement hosts{.key = kHostLevel,
                                   .op = together
                                             ? LabelSelector::Operator::kIn
                                             : LabelSelector::Operator::kNotIn,
                                   .values = {}};
  int most = 0;  // of those that live where more may go
  for (const auto& [node, processes] : living) {
    const bool is_full = processes >= request.ranks_per_node_max;
    // By their ids: two nodes may have one name.
    if (apart || together || is_full) hosts.values.push_back(node.ToHex());
    if (!is_full) most = std::max(most, processes);
  }
  request.ranks_per_node_max -= most;
  std::sort(hosts.values.begin(), hosts.values.end());
  if (!hosts.values.empty()) request.selector.Add(std::move(hosts));
  if (InOneDomain(request)) {
    const auto& labels = nodes_.Find(living.begin()->first)->node.labels();
    const auto domain = labels.find(request.topology.level);
    if (domain != labels.end()) {
      request.selector.Add({.key = domain->first,
                            .op = LabelSelector::Operator::kIn,
                            .values = {domain->second}});
    }
  }
  return request;
}

std::string ClusterState::SlotsReason(const JobRecord& job) const {
  std::string text;
  const auto add = [&](const std::vector<int>& slots, absl::string_view what) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", RanksText(slots), what);
    return text.size() <= kSlotsReasonBytesMax;
  };
  for (const SlotsInLine& ask : SlotsInLineOf(job.id)) {
    const std::string why = line_.ReasonOf(ask.ask, nodes_.index());
    if (!add(ask.slots, absl::StrCat(ask.slots.size() == 1 ? " waits" : " wait",
                                     why.empty() ? "" : ": ", why))) {
      return absl::StrCat(text, " ...");
    }
  }
  for (const int slot : BackingOff(job.id)) {
    const absl::Duration left =
        *deadlines_.LeftOf({DueKind::kBackOff, AskId{job.id, slot}});
    if (!add({slot}, absl::StrCat(" starts again in ",
                                  absl::FormatDuration(absl::Ceil(
                                      std::max(left, absl::ZeroDuration()),
                                      absl::Seconds(1)))))) {
      return absl::StrCat(text, " ...");
    }
  }
  if (text.empty()) text = job.row.reason();
  const std::optional<Wait> secrets = gates_.secrets().WaitOf(job);
  return secrets.has_value() ? absl::StrCat(text, "; ", secrets->text) : text;
}

std::vector<ClusterState::SlotsInLine> ClusterState::SlotsInLineOf(
    const JobId& job) const {
  std::vector<SlotsInLine> in_line;
  const auto asks = slot_asks_.find(job);
  if (asks == slot_asks_.end()) return in_line;
  for (const auto& [first, count] : asks->second) {
    const AskId ask{job, first};
    if (!line_.Contains(ask)) continue;
    in_line.push_back({.ask = ask,
                       .slots = SlotsOf(*attempts_.LastOf(job),
                                        {.first = first, .count = count})});
  }
  return in_line;
}

// ---- filled ----

void ClusterState::FillSlots(JobRecord& job, int first, const Plan& plan,
                             Change& change) {
  AttemptRecord& attempt = *attempts_.FindMutable(attempts_.LastOf(job.id)->id);
  line_.Remove(job, first);
  std::map<int, int>& asks = slot_asks_.at(job.id);
  const std::vector<int> filled =
      SlotsOf(attempt, {.first = first, .count = asks.at(first)});
  asks.erase(first);
  const RunOutcome outcome =
      controller_.Fill(job, attempt, filled, plan,
                       nodes_.Find(plan.parts.front().node)->node.host());
  for (const PlannedPart& part : plan.parts) {
    std::set<int> slots;
    for (const int slot : SlotsOn(attempt, part.node)) {
      if (outcome.slots.contains(slot)) slots.insert(slot);
    }
    Hold(job, attempt, part.node, slots);
    attempts_.NotePlace(attempt.id, part.node);
  }
  ApplyOutcome(job, attempt, outcome, change);
}

void ClusterState::Hold(const JobRecord& job, const AttemptRecord& attempt,
                        const NodeId& node, const std::set<int>& slots) {
  NodeTable::Held held{.each = ResourcesPerWorker(*job.spec), .processes = {}};
  for (const int slot : slots) {
    const Process& process = attempt.processes[static_cast<size_t>(slot)];
    if (!HoldsRoom(attempt, process)) continue;
    held.processes.emplace(Incarnation{slot, process.incarnation},
                           process.devices);
  }
  if (!held.processes.empty()) {
    nodes_.Hold(attempt.id, node, std::move(held));
  }
}

// ---- how many ----

absl::Status ClusterState::ResizeJob(const RequestKey& request, const JobId& id,
                                     int num_workers, Transition& transition) {
  return Mutate<JobId>(
             request, transition,
             [&](Change& change) { return ResizeJob(id, num_workers, change); })
      .status();
}

absl::StatusOr<JobId> ClusterState::ResizeJob(const JobId& id, int num_workers,
                                              Change& change) {
  COHORT_RETURN_IF_ERROR(CheckNumWorkers(num_workers));
  JobRecord* const job = jobs_.FindMutable(id);
  if (job == nullptr && jobs_.arrays().Find(id) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", id.ToText(), " is an array: resize its elements one by one (",
        id.ToText(), ".0, ...)"));
  }
  if (job == nullptr) return NoJob(id);
  const auto refuse = [&](absl::string_view why, const char* reason) {
    return SetReason(absl::FailedPreconditionError(absl::StrCat(
                         "job ", id.ToText(), " cannot be resized: ", why)),
                     reason);
  };
  if (job->spec->has_actor()) {
    return refuse("its ranks are actors, which lie in fixed dimensions",
                  "not_resizable");
  }
  if (!RunsOneByOne(*job)) {
    return refuse(
        "its restart policy is all, so its ranks start together (submit it "
        "with --restart one or none)",
        "not_resizable");
  }
  if (HasEnded(job->row.state()) ||
      job->row.state() == v1::JOB_STATE_STOPPING) {
    return refuse(
        absl::StrCat(HasEnded(job->row.state()) ? "it has ended: " : "it is ",
                     EnumText(job->row.state())),
        "not_resizable");
  }
  const AttemptRecord* const last = attempts_.LastOf(id);
  if (last != nullptr && last->orphaned()) {
    return refuse("its attempt is an orphan since the store was restored",
                  "not_resizable");
  }
  if (job->row.num_workers() == num_workers) return id;
  GangRequest resized = RequestOf(*job);
  resized.num_workers = num_workers;
  if (const auto nonsense = RefuseNonsense(resized)) {
    return refuse(nonsense->reason, "not_resizable");
  }
  TellOf(id, "job_resized",
         absl::StrCat("from ", job->row.num_workers(), " to ", num_workers,
                      " workers"),
         change);
  change.cause = job->row.origin().cause();
  change.jobs.insert(id);
  const bool waits = job->row.state() == v1::JOB_STATE_PENDING;
  if (waits) LeaveLine(*job);
  job->row.set_num_workers(num_workers);
  if (waits) {
    StandInLine(*job);
  } else if (last->cause == v1::ATTEMPT_CAUSE_NONE) {
    AttemptRecord& attempt = *attempts_.FindMutable(last->id);
    ApplyOutcome(*job, attempt, controller_.Resize(*job, attempt), change);
  }
  return id;
}

}  // namespace cohort::head
