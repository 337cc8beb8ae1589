#include "head/explain/explanation.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "head/explain/changes.h"
#include "head/placement/placement.h"
#include "head/state/dependencies.h"
#include "head/state/job_phases.h"
#include "head/state/job_spec.h"
#include "head/state/job_table.h"
#include "head/state/orphan_list.h"
#include "head/store/enum_text.h"

namespace cohort::head {
namespace {

constexpr size_t kAheadShown = 3;

// ---- what else keeps it ----

NamedChange OfCluster(const char* kind, std::string text,
                      std::string how = "") {
  return {.kind = kind,
          .of_request = false,
          .text = std::move(text),
          .how = std::move(how)};
}

// Elements of an array that all find room now: `most` of them, or fewer.
bool HasRoomFor(const ClusterState& state, const JobRecord& job,
                int64_t elements) {
  // Their workers together: a stricter thing than one after the other, and one
  // question to the planner.
  constexpr int64_t kElementsExplained = 64;
  if (elements > kElementsExplained) return false;
  GangRequest request = RequestOf(job);
  if (elements == 1) return Fits(state.nodes().index(), request);
  if (request.strategy == v1::PLACEMENT_STRATEGY_STRICT_PACK ||
      request.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD ||
      !request.topology.level.empty()) {
    return false;
  }
  request.num_workers *= static_cast<int>(elements);
  return Fits(state.nodes().index(), request);
}

// "; of these 2 are orphans ...": places whose end nobody knows.
std::string OrphanPlaces(int64_t orphans) {
  if (orphans == 0) return "";
  return absl::StrCat(
      "; of these ", orphans, orphans == 1 ? " is an orphan" : " are orphans",
      " since the store was restored: `cohort status` lists "
      "orphans, `cohort adopt` and `cohort end` speak for them");
}

// Of an element that has no place in its array.
void AddPlaces(const ClusterState& state, const JobRecord& job, Wait& wait) {
  const ArrayPlaces& places = state.gates().array();
  const int64_t before = places.Before(job);
  const int64_t more = before + 1;
  const int64_t admitted = places.AdmittedOf(job.id.array());
  const auto orphans =
      static_cast<int64_t>(state.orphans().OfArray(job.id.array()).size());
  if (before > 0) {
    absl::StrAppend(&wait.text, "; ", before,
                    before == 1 ? " comes before it" : " come before it");
  }
  wait.text += OrphanPlaces(orphans);
  const std::string& spec = job.spec->array();
  if (HasRoomFor(state, job, more)) {
    wait.lifted_by.push_back(
        {.kind = "RAISE_ARRAY_LIMIT",
         .of_request = true,
         .text = absl::StrCat(admitted + more, " elements at once instead of ",
                              admitted),
         .how = absl::StrCat("--array ", spec.substr(0, spec.find('%')), "%",
                             admitted + more)});
  }
  // Of those of which somebody knows the end.
  if (admitted - orphans < more && orphans > 0) return;
  wait.lifted_by.push_back(OfCluster(
      "ELEMENT_ENDS", more == 1
                          ? "the end of one of the elements that run"
                          : absl::StrCat("the end of ", more, " elements")));
}

// What only an explanation says.
Wait Detailed(const ClusterState& state, const JobRecord& job, Wait wait) {
  if (wait.kind == v1::WAIT_KIND_ARRAY) AddPlaces(state, job, wait);
  if (wait.kind == v1::WAIT_KIND_HELD) {
    absl::StrAppend(&wait.text, "; `", wait.lifted_by.front().how,
                    "` lets it go");
  }
  return wait;
}

std::vector<Wait> OthersOf(const ClusterState& state, const JobRecord& job,
                           bool read_only) {
  std::vector<Wait> others;
  if (read_only) {
    others.push_back(
        {.kind = v1::WAIT_KIND_READ_ONLY,
         .text = "the head cannot write to its store, and starts nothing until "
                 "it can; `cohort status` says why",
         .lifted_by = {
             OfCluster("STORE_WRITABLE", "a store that can be written")}});
  }
  for (Wait& wait : state.WaitsOf(job)) {
    others.push_back(Detailed(state, job, std::move(wait)));
  }
  if (state.orphans().OfJob(job.id) != nullptr) return others;
  const std::string& package = job.spec->launch().package_hash();
  if (!package.empty() && !state.packages().IsWhole(package)) {
    others.push_back(
        {.kind = v1::WAIT_KIND_PACKAGE,
         .text = absl::StrCat("its package ", absl::BytesToHexString(package),
                              " is lost at the head: no attempt can start "
                              "without it; submit it again, which uploads it"),
         .lifted_by = {{.kind = "SUBMIT_AGAIN",
                        .of_request = true,
                        .text = "submit it again, with its package"}}});
  }
  if (others.empty() && !state.line().Contains(job)) {
    others.push_back({.text = state.ReasonOf(job), .lifted_by = {}});
  }
  return others;
}

// Where there is no room because nodes refuse the head.  Beside the others, as
// other changes help in spite of it; but these nodes do not come back to it.
void AddLaterStore(const ClusterState& state, const FullDiagnosis& full,
                   Explanation& explanation) {
  const auto later = state.later_store();
  if (!later.has_value()) return;
  const std::string why = LaterStoreReason(*later, state.cluster().term);
  const NamedChange head_there = OfCluster(
      "LATER_STORE", absl::StrCat("a head on the store of term ", later->term,
                                  ", or this one restored anew"));
  for (const Remedy& remedy : full.remedies.found) {
    if (remedy.kind != Remedy::Kind::kNodeReturns) continue;
    const bool refuse = std::any_of(
        remedy.nodes.begin(), remedy.nodes.end(),
        [&later](const NodeId& node) { return later->nodes.contains(node); });
    if (!refuse) continue;
    std::erase(explanation.changes, NameChange(remedy, state.nodes()));
  }
  explanation.changes.insert(explanation.changes.begin(), head_there);
  explanation.others.push_back({.kind = v1::WAIT_KIND_LATER_STORE,
                                .text = why,
                                .lifted_by = {head_there}});
}

// ---- those that do not wait ----

std::vector<std::string> NodesOf(const ClusterState& state,
                                 const JobRecord& job) {
  std::vector<std::string> names;
  const AttemptRecord* const attempt = state.attempts().LastOf(job.id);
  if (attempt == nullptr) return names;
  for (const Place& place : attempt->places) {
    const NodeRecord* const node = state.nodes().Find(place.node);
    names.push_back(node == nullptr ? place.node.ToHex() : node->name);
  }
  return names;
}

// "; n2 still prepares": for whom the others wait.
std::string Preparing(const ClusterState& state, const JobRecord& job) {
  const AttemptRecord* const attempt = state.attempts().LastOf(job.id);
  std::vector<std::string> names;
  for (const Place& place : attempt->places) {
    if (place.phase != v1::PLACE_PHASE_ASSIGNED) continue;
    const NodeRecord* const node = state.nodes().Find(place.node);
    names.push_back(node == nullptr ? place.node.ToHex() : node->name);
  }
  if (attempt->state != v1::ATTEMPT_STATE_PREPARING || names.empty()) return "";
  return absl::StrCat("; ", NamesText(names),
                      names.size() == 1 ? " still prepares" : " still prepare");
}

std::string WhatBecame(const ClusterState& state, const JobRecord& job) {
  // Nobody speaks for it yet, whatever its row says.
  if (const auto* orphan = state.orphans().KeepsBack(job)) {
    return OrphanReason(*orphan);
  }
  const AttemptRecord* const last = state.attempts().LastOf(job.id);
  if (last != nullptr && IsEndedOrphan(*last)) {
    return EndedOrphanReason(*last, state.nodes());
  }
  const bool ends = last != nullptr && last->state == v1::ATTEMPT_STATE_ENDING;
  if (ends && job.state != v1::JOB_STATE_STOPPING) {
    const std::string left = NotSaidGone(*last, state.nodes());
    return absl::StrCat("attempt ", last->number, " ends",
                        last->detail.empty() ? "" : ": ", last->detail,
                        left.empty() ? "" : "; ", left);
  }
  const std::vector<std::string> nodes = NodesOf(state, job);
  const std::string where =
      nodes.empty() ? "" : absl::StrCat(" on ", NamesText(nodes));
  switch (job.state) {
    case v1::JOB_STATE_PENDING:
      return "";
    case v1::JOB_STATE_STARTING:
      return absl::StrCat("it waits for nothing: attempt ", job.attempts,
                          " is starting", where, Preparing(state, job));
    case v1::JOB_STATE_RUNNING:
      return absl::StrCat("it waits for nothing: attempt ", job.attempts,
                          " runs", where);
    case v1::JOB_STATE_STOPPING:
      return absl::StrCat("it waits for nothing: it is being stopped", where);
    default:
      return absl::StrCat("it has ended: ", job.reason.empty()
                                                ? EnumText(job.state)
                                                : job.reason);
  }
  return "";
}

// ---- the past ----

constexpr size_t kHistoryMax = 100;

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

// Of a time of which it is not remembered what the job did.
std::string WhyOthersWaited(const WaitHistory& waits, const JobRecord& job,
                            absl::Time at) {
  const WaitReasonRecord* const reason =
      waits.At(ShapeKeyOf(RequestOf(job)), at);
  if (reason == nullptr) return "";
  return absl::StrCat("; jobs that ask for the same waited: ", reason->text);
}

std::string WhyThen(const WaitHistory& history, const JobRecord& job,
                    absl::Time at, const std::vector<PastWait>& waits) {
  if (at < job.submitted_at) {
    return absl::StrCat("it was submitted later, at ",
                        TimeText(job.submitted_at));
  }
  if (job.ended_at != absl::InfinitePast() && job.ended_at <= at) {
    return absl::StrCat("it had ended, at ", TimeText(job.ended_at));
  }
  for (const PhaseSpan& span : PhaseSpans(job)) {
    if (at < span.since || span.until <= at) continue;
    if (span.kind == v1::WAIT_KIND_NOTHING) {
      return absl::StrCat("it waited for nothing: an attempt of it had begun, ",
                          "at ", TimeText(span.since));
    }
  }
  if (waits.empty()) {
    return "it stood in line; why there was no room had not been noted yet";
  }
  if (waits.front().kind == "unknown") {
    return absl::StrCat(waits.front().text, WhyOthersWaited(history, job, at));
  }
  std::vector<std::string> texts;
  for (const PastWait& wait : waits) texts.push_back(wait.text);
  return absl::StrCat("it waited: ", absl::StrJoin(texts, "; "));
}

Explanation ExplainThen(const ClusterState& state, const WaitHistory& waits,
                        const JobRecord& job, absl::Time at) {
  Explanation explanation{
      .job = job.id, .name = job.spec->name(), .state = job.state};
  for (PastWait& wait : PastWaits(state, waits, job)) {
    if (wait.Holds(at)) explanation.history.push_back(std::move(wait));
  }
  explanation.summary = WhyThen(waits, job, at, explanation.history);
  return explanation;
}

void AddHistory(const ClusterState& state, const WaitHistory& waits,
                const JobRecord& job, Explanation& explanation) {
  explanation.history = PastWaits(state, waits, job);
  if (explanation.history.size() <= kHistoryMax) return;
  explanation.history.erase(
      explanation.history.begin(),
      explanation.history.end() - static_cast<ptrdiff_t>(kHistoryMax));
}

// Whether both ask for the same resource and some node would suit both, were it
// idle.
bool MayMeet(const PlacementIndex& nodes, const GangRequest& request,
             const GangRequest& other) {
  const bool same =
      std::any_of(request.per_worker.begin(), request.per_worker.end(),
                  [&other](const ResourceSet::Entry& need) {
                    return !other.per_worker.Get(need.first).IsZero();
                  });
  if (!same) return false;
  bool suits = false;
  for (const auto& [form, bucket] : nodes.all().buckets()) {
    if (!FormAllowsIdle(*form, request)) continue;
    for (const auto& [labels, alike] : bucket.by_labels) {
      const NodeSnapshot& node = *alike.begin()->second;
      if (!LabelsFit(node, request)) continue;
      suits = true;
      if (FormAllowsIdle(*form, other) && LabelsFit(node, other)) return true;
    }
  }
  return !suits;  // both wait for nodes that are not here yet
}

std::string Summary(const Explanation& explanation) {
  std::vector<std::string> parts;
  for (const Wait& other : explanation.others) {
    parts.push_back(other.text);
  }
  if (explanation.diagnosis.has_value()) {
    parts.push_back(explanation.diagnosis->reason);
  }
  return absl::StrJoin(parts, "; ");
}

// ---- arrays ----

// Which elements wait for what.  Costs no more than counting those that stand
// in line or back off.
class Elements {
 public:
  Elements(const ClusterState& state, const JobId& array,
           const ArrayTable::Entry& entry)
      : state_(state), entry_(entry) {
    const auto& sequences = state.jobs().by_sequence();
    any_ = state.jobs().Find(sequences.at(entry.first_sequence));
    const auto in_line = state.line().CountSome(
        RequestOf(*any_), any_->spec->priority(), entry.first_sequence,
        entry.first_sequence + static_cast<uint64_t>(entry.size));
    Add(v1::WAIT_KIND_RESOURCES, in_line.jobs, in_line.first);
    const int64_t pending = entry.CountOf(v1::JOB_STATE_PENDING);
    for (const auto& [kind, elements] :
         state.gates().ElementsOf(array, pending)) {
      Add(kind, elements.count, elements.first);
    }
    int64_t rest = pending;
    for (const WaitingElements& each : waiting_) rest -= each.count;
    rest -= AddOrphans(array, rest);
    Add(v1::WAIT_KIND_WAITS, rest, std::nullopt);
  }

  // By what they wait for.
  const std::vector<WaitingElements>& Waiting() const { return waiting_; }

  // Of those that come soonest; of an array of which none waits, its first.
  const JobRecord& FirstToWait() const {
    for (const WaitingElements& each : waiting_) {
      if (each.first.has_value()) return *state_.jobs().Find(*each.first);
    }
    if (entry_.CountOf(v1::JOB_STATE_PENDING) == 0) return *any_;
    // All wait for the same, so that any one is as good.
    const auto& sequences = state_.jobs().by_sequence();
    for (int64_t i = 0; i < entry_.size; ++i) {
      const JobRecord& job = *state_.jobs().Find(
          sequences.at(entry_.first_sequence + static_cast<uint64_t>(i)));
      if (job.state == v1::JOB_STATE_PENDING) return job;
    }
    return *any_;
  }

  std::string Summary(const std::string& of_first) const {
    std::vector<std::string> states;
    for (size_t state = 0; state < entry_.counts.size(); ++state) {
      if (entry_.counts[state] == 0) continue;
      states.push_back(absl::StrCat(entry_.counts[state], " ",
                                    EnumText(static_cast<JobState>(state))));
    }
    std::string text =
        absl::StrCat("an array of ", entry_.size,
                     entry_.size == 1 ? " element: " : " elements: ",
                     absl::StrJoin(states, ", "));
    if (entry_.at_once.has_value()) {
      absl::StrAppend(&text, ", at most ", *entry_.at_once, " at once");
    }
    if (waiting_.empty()) return text;
    return absl::StrCat(text, "; ", FirstToWait().id.ToText(), ": ", of_first);
  }

 private:
  void Add(WaitKind kind, int64_t count, std::optional<JobId> first) {
    if (count > 0) waiting_.push_back({LowerEnumText(kind), count, first});
  }

  // Of the rest, at most `most`, those that wait for an orphan of theirs.
  int64_t AddOrphans(const JobId& array, int64_t most) {
    std::set<JobId> waiting;
    for (const OrphanTable::Entry* each : state_.orphans().OfArray(array)) {
      const JobRecord* job = state_.jobs().Find(each->job);
      if (job == nullptr || job->state != v1::JOB_STATE_PENDING) continue;
      if (!job->held) waiting.insert(each->job);
    }
    const int64_t count = std::min(most, static_cast<int64_t>(waiting.size()));
    if (count == 0) return 0;
    Add(v1::WAIT_KIND_ORPHAN, count, *waiting.begin());
    return count;
  }

  const ClusterState& state_;
  const ArrayTable::Entry& entry_;
  const JobRecord* any_ = nullptr;
  std::vector<WaitingElements> waiting_;
};

}  // namespace

const FullDiagnosis& Explainer::DiagnosisOf(const ClusterState& state,
                                            const GangRequest& request) {
  if (diagnoses_.size() >= kDiagnosesMax) diagnoses_.clear();
  const auto [place, fresh] = diagnoses_.try_emplace(request);
  Diagnosed& diagnosed = place->second;
  if (fresh || diagnosed.version != state.nodes().version()) {
    diagnosed.full = DiagnoseFully(state.nodes(), state.attempts(), request);
    diagnosed.version = state.nodes().version();
  }
  return diagnosed.full;
}

Explanation Explainer::Explain(const ClusterState& state, const JobRecord& job,
                               bool read_only, const ExplainWhen& when) {
  if (when.at.has_value()) return ExplainThen(state, waits_, job, *when.at);
  Explanation explanation{.job = job.id,
                          .name = job.spec->name(),
                          .state = job.state,
                          .summary = WhatBecame(state, job)};
  if (when.history) AddHistory(state, waits_, job, explanation);
  if (job.state != v1::JOB_STATE_PENDING) return explanation;
  explanation.others = OthersOf(state, job, read_only);
  const GangRequest request = RequestOf(job);
  explanation.ahead =
      state.line().AheadOf(job, kAheadShown, [&](const GangRequest& other) {
        return MayMeet(state.nodes().index(), request, other);
      });
  const FullDiagnosis& full = DiagnosisOf(state, request);
  const bool has_room = full.diagnosis.fits;
  // Its own attempt may hold what it would need for another.
  const bool has_orphan = state.orphans().OfJob(job.id) != nullptr;
  if (!has_room && !has_orphan) explanation.diagnosis = full.diagnosis;
  Changes changes = FindChanges(state, job, explanation.others, full);
  explanation.changes = std::move(changes.found);
  explanation.changes_complete = changes.complete;
  if (!has_room) AddLaterStore(state, full, explanation);
  if (has_room && explanation.others.empty()) {
    explanation.others.push_back(
        {.kind = v1::WAIT_KIND_NOT_TRIED,
         .text = "there is room for it now: it starts when its turn comes",
         .lifted_by = {}});
  }
  explanation.summary = Summary(explanation);
  return explanation;
}

Explanation Explainer::ExplainArray(const ClusterState& state,
                                    const JobId& array, bool read_only,
                                    const ExplainWhen& when) {
  const ArrayTable::Entry& entry = *state.jobs().arrays().Find(array);
  const Elements elements(state, array, entry);
  const JobRecord& element = elements.FirstToWait();
  Explanation explanation = Explain(state, element, read_only, when);
  explanation.job = array;
  explanation.state = entry.State();
  explanation.element = element.id;
  if (when.at.has_value()) {
    explanation.summary =
        absl::StrCat("of ", element.id.ToText(), ": ", explanation.summary);
    return explanation;
  }
  explanation.elements = elements.Waiting();
  explanation.summary = elements.Summary(explanation.summary);
  return explanation;
}

}  // namespace cohort::head
