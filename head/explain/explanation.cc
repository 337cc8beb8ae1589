#include "head/explain/explanation.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "head/explain/changes.h"
#include "head/explain/competition.h"
#include "head/placement/placement.h"
#include "head/state/dependencies.h"
#include "head/state/job_phases.h"
#include "head/state/job_table.h"
#include "head/state/unclaimed_list.h"

namespace cohort::head {
namespace {

using Kind = OtherBlocker::Kind;

constexpr size_t kAheadShown = 3;
constexpr size_t kUnclaimedShown = 3;  // of those that have places of an array

// ---- what else keeps it ----

NamedChange OfCluster(const char* kind, std::string text,
                      std::string how = "") {
  return {.kind = kind,
          .of_request = false,
          .text = std::move(text),
          .how = std::move(how)};
}

OtherBlocker HeldBlocker(const JobRecord& job) {
  const std::string release =
      absl::StrCat("cohort jobs release ", job.id.ToText());
  return {Kind::kHeld,
          absl::StrCat("held by ", job.held_by, "; `", release, "` lets it go"),
          {OfCluster("RELEASE_HOLD", "release it", release)}};
}

// ":ok" is what ends it FAILED otherwise.
OtherBlocker AfterBlocker(const ClusterState& state, const JobRecord& job,
                          const std::string& why) {
  std::vector<std::string> ends;
  for (const Dependency& each : job.spec->after) {
    const std::optional<JobState> first = StateOf(state.jobs(), each.job);
    if (!first.has_value() || HasEnded(*first)) continue;
    ends.push_back(absl::StrCat(
        each.job.ToText(),
        each.kind == DependencyKind::kOk ? " succeeding" : " ending"));
  }
  return {Kind::kAfter,
          why,
          {OfCluster("DEPENDENCY_ENDS", absl::StrCat("job ", NamesText(ends))),
           {.kind = "DROP_DEPENDENCY",
            .of_request = true,
            .text = "without --after",
            .how = ""}}};
}

// Which attempt, and what a person may say of it.
OtherBlocker UnclaimedBlocker(const UnclaimedTable::Entry& entry) {
  // A person has spoken.
  if (entry.ending) return {Kind::kUnclaimed, UnclaimedReason(entry), {}};
  const std::string id = entry.attempt.ToHex();
  return {Kind::kUnclaimed,
          UnclaimedReason(entry),
          {OfCluster("ADOPT_ATTEMPT", absl::StrCat("adopt attempt ", id),
                     absl::StrCat("cohort adopt ", id)),
           OfCluster("END_ATTEMPT", absl::StrCat("end attempt ", id),
                     absl::StrCat("cohort end ", id))}};
}

// Elements of an array that all find room now: `most` of them, or fewer.
bool HasRoomFor(const ClusterState& state, const JobRecord& job,
                int64_t elements) {
  // Their workers together: a stricter thing than one after the other, and one
  // question to the planner.
  constexpr int64_t kElementsTried = 64;
  if (elements > kElementsTried) return false;
  GangRequest request = RequestOf(*job.spec);
  if (elements == 1) return Fits(state.nodes().index(), request);
  if (request.strategy == PlacementStrategy::kStrictPack ||
      request.strategy == PlacementStrategy::kStrictSpread ||
      !request.topology.level.empty()) {
    return false;
  }
  request.num_workers *= static_cast<int>(elements);
  return Fits(state.nodes().index(), request);
}

// "; of these 2 are unclaimed ...": places that nobody has spoken for.
std::string UnclaimedPlaces(
    const std::vector<const UnclaimedTable::Entry*>& unclaimed) {
  if (unclaimed.empty()) return "";
  std::vector<std::string> first;
  for (const UnclaimedTable::Entry* entry : unclaimed) {
    if (first.size() == kUnclaimedShown) break;
    first.push_back(absl::StrCat(entry->job.ToText(), " (attempt ",
                                 entry->attempt.ToHex(), ")"));
  }
  return absl::StrCat(
      "; of these ", unclaimed.size(), unclaimed.size() == 1 ? " is" : " are",
      " unclaimed since the store was restored",
      unclaimed.size() > first.size() ? ", first " : ": ", NamesText(first));
}

// A person speaks for what has a place; then its end comes as any other's.
void AddUnclaimedPlaces(
    const std::vector<const UnclaimedTable::Entry*>& unclaimed,
    std::vector<NamedChange>& changes) {
  size_t shown = 0;
  for (const UnclaimedTable::Entry* entry : unclaimed) {
    if (entry->ending) continue;  // a person has spoken
    if (++shown > kUnclaimedShown) return;
    const std::string id = entry->attempt.ToHex();
    const std::string element = entry->job.ToText();
    changes.push_back(OfCluster(
        "ADOPT_ATTEMPT",
        absl::StrCat("adopt attempt ", id, ", and the end of ", element),
        absl::StrCat("cohort adopt ", id)));
    changes.push_back(
        OfCluster("END_ATTEMPT",
                  absl::StrCat("end attempt ", id, ", after which ", element,
                               " starts again, and the end of that"),
                  absl::StrCat("cohort end ", id)));
  }
}

OtherBlocker ArrayBlocker(const ClusterState& state, const JobRecord& job,
                          const Eligibility::Kept& kept) {
  const int64_t more = kept.before + 1;
  const std::vector<const UnclaimedTable::Entry*> unclaimed =
      state.unclaimed().OfArray(job.id.array());
  OtherBlocker blocker{
      Kind::kArray,
      absl::StrCat(kept.admitted,
                   kept.admitted == 1 ? " element of " : " elements of ",
                   job.id.array().ToText(),
                   kept.admitted == 1 ? " runs or is about to, its limit"
                                      : " run or are about to, its limit",
                   kept.before == 0 ? ""
                   : kept.before == 1
                       ? "; 1 comes before it"
                       : absl::StrCat("; ", kept.before, " come before it"),
                   UnclaimedPlaces(unclaimed)),
      {}};
  const int64_t limit = kept.admitted + more;
  const std::string& spec = job.spec->array;
  if (HasRoomFor(state, job, more)) {
    blocker.lifted_by.push_back(
        {.kind = "RAISE_ARRAY_LIMIT",
         .of_request = true,
         .text = absl::StrCat(limit, " elements at once instead of ",
                              kept.admitted),
         .how = absl::StrCat("--array ", spec.substr(0, spec.find('%')), "%",
                             limit)});
  }
  AddUnclaimedPlaces(unclaimed, blocker.lifted_by);
  // Those of which somebody knows the end.
  const int64_t claimed =
      kept.admitted - static_cast<int64_t>(unclaimed.size());
  if (claimed < more && !unclaimed.empty()) return blocker;
  blocker.lifted_by.push_back(OfCluster(
      "ELEMENT_ENDS", more == 1
                          ? "the end of one of the elements that run"
                          : absl::StrCat("the end of ", more, " elements")));
  return blocker;
}

// Held, others first, an array's limit, a back-off: as many as there are.
void AddWhatKeeps(const ClusterState& state, const JobRecord& job,
                  std::vector<OtherBlocker>& others) {
  const Eligibility::Kept kept = state.eligibility().KeptBy(job);
  if (!kept.held.empty()) others.push_back(HeldBlocker(job));
  if (!kept.after.empty()) {
    others.push_back(AfterBlocker(state, job, kept.after));
  }
  if (kept.at_limit) others.push_back(ArrayBlocker(state, job, kept));
  const std::string pause = state.backoff().ReasonOf(job);
  if (!pause.empty()) {
    others.push_back(
        {Kind::kBackOff,
         pause,
         {OfCluster("BACK_OFF_ENDS", absl::StrCat("time: ", pause))}});
  }
}

std::vector<OtherBlocker> OthersOf(const ClusterState& state,
                                   const JobRecord& job, bool read_only) {
  std::vector<OtherBlocker> others;
  if (read_only) {
    others.push_back(
        {Kind::kReadOnly,
         "the head cannot write to its store, and starts nothing until it "
         "can; `cohort status` says why",
         {OfCluster("STORE_WRITABLE", "a store that can be written")}});
  }
  if (const auto* unclaimed = state.unclaimed().OfJob(job.id)) {
    others.push_back(UnclaimedBlocker(*unclaimed));
    return others;
  }
  if (state.cluster().settling) {
    others.push_back(
        {Kind::kRestored,
         "the store was restored: nothing starts before its nodes were heard "
         "of, or are dead",
         {OfCluster("NODES_HEARD_OF", "its nodes heard of, or dead")}});
  }
  AddWhatKeeps(state, job, others);
  const std::string& package = job.spec->package_hash;
  if (!package.empty() && !state.packages().IsWhole(package)) {
    others.push_back(
        {Kind::kPackage,
         absl::StrCat("its package ", absl::BytesToHexString(package),
                      " is lost at the head: no attempt can start without "
                      "it; submit it again, which uploads it"),
         {{.kind = "SUBMIT_AGAIN",
           .of_request = true,
           .text = "submit it again, with its package",
           .how = ""}}});
  }
  if (others.empty() && !state.line().Contains(job)) {
    others.push_back({Kind::kOther, state.ReasonOf(job), {}});
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
  explanation.others.push_back({Kind::kLaterStore, why, {head_there}});
}

// ---- those that do not wait ----

std::vector<std::string> NodesOf(const ClusterState& state,
                                 const JobRecord& job) {
  std::vector<std::string> names;
  const AttemptRecord* const attempt = state.attempts().LastOf(job.id);
  if (attempt == nullptr) return names;
  for (const AttemptPart& part : attempt->parts) {
    const NodeRecord* const node = state.nodes().Find(part.node);
    names.push_back(node == nullptr ? part.node.ToHex() : node->name);
  }
  return names;
}

// "; n2 still prepares": for whom the others wait.
std::string Preparing(const ClusterState& state, const JobRecord& job) {
  const AttemptRecord* const attempt = state.attempts().LastOf(job.id);
  std::vector<std::string> names;
  for (const AttemptPart& part : attempt->parts) {
    if (part.phase != PartPhase::kAssigned) continue;
    const NodeRecord* const node = state.nodes().Find(part.node);
    names.push_back(node == nullptr ? part.node.ToHex() : node->name);
  }
  if (attempt->state != AttemptState::kPreparing || names.empty()) return "";
  return absl::StrCat("; ", NamesText(names),
                      names.size() == 1 ? " still prepares" : " still prepare");
}

std::string WhatBecame(const ClusterState& state, const JobRecord& job) {
  // Nobody speaks for it yet, whatever its row says.
  if (const auto* unclaimed = state.unclaimed().KeepsBack(job)) {
    return UnclaimedReason(*unclaimed);
  }
  const AttemptRecord* const last = state.attempts().LastOf(job.id);
  if (last != nullptr && IsEndedUnclaimed(*last)) {
    return EndedUnclaimedReason(*last, state.nodes());
  }
  const bool ends = last != nullptr && last->state == AttemptState::kEnding;
  if (ends && job.state != JobState::kStopping) {
    const std::string left = NotSaidGone(*last, state.nodes());
    return absl::StrCat("attempt ", last->number, " ends",
                        last->detail.empty() ? "" : ": ", last->detail,
                        left.empty() ? "" : "; ", left);
  }
  const std::vector<std::string> nodes = NodesOf(state, job);
  const std::string where =
      nodes.empty() ? "" : absl::StrCat(" on ", NamesText(nodes));
  switch (job.state) {
    case JobState::kPending:
      return "";
    case JobState::kStarting:
      return absl::StrCat("it waits for nothing: attempt ", job.attempts,
                          " is starting", where, Preparing(state, job));
    case JobState::kRunning:
      return absl::StrCat("it waits for nothing: attempt ", job.attempts,
                          " runs", where);
    case JobState::kStopping:
      return absl::StrCat("it waits for nothing: it is being stopped", where);
    case JobState::kSucceeded:
    case JobState::kFailed:
    case JobState::kStopped:
      return absl::StrCat("it has ended: ", job.reason.empty()
                                                ? JobStateName(job.state)
                                                : job.reason.c_str());
  }
  return "";
}

// ---- the past ----

constexpr size_t kHistoryMax = 100;

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

// Of a time of which it is not remembered what the job did.
std::string WhyOthersWaited(const ClusterState& state, const JobRecord& job,
                            absl::Time at) {
  const WaitReasonRecord* const reason =
      state.wait_history().At(ShapeKeyOf(RequestOf(*job.spec)), at);
  if (reason == nullptr) return "";
  return absl::StrCat("; jobs that ask for the same waited: ", reason->text);
}

std::string WhyThen(const ClusterState& state, const JobRecord& job,
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
    if (span.kind == JobPhase::Kind::kAttempt) {
      return absl::StrCat("it waited for nothing: an attempt of it had begun, ",
                          "at ", TimeText(span.since));
    }
  }
  if (waits.empty()) {
    return "it stood in line; why there was no room had not been noted yet";
  }
  if (waits.front().kind == "unknown") {
    return absl::StrCat(waits.front().text, WhyOthersWaited(state, job, at));
  }
  std::vector<std::string> texts;
  for (const PastWait& wait : waits) texts.push_back(wait.text);
  return absl::StrCat("it waited: ", absl::StrJoin(texts, "; "));
}

Explanation ExplainThen(const ClusterState& state, const JobRecord& job,
                        absl::Time at) {
  Explanation explanation{
      .job = job.id, .name = job.spec->name, .state = job.state};
  for (PastWait& wait : PastWaits(state, job)) {
    if (wait.Holds(at)) explanation.history.push_back(std::move(wait));
  }
  explanation.summary = WhyThen(state, job, at, explanation.history);
  return explanation;
}

void AddHistory(const ClusterState& state, const JobRecord& job,
                Explanation& explanation) {
  explanation.history = PastWaits(state, job);
  if (explanation.history.size() <= kHistoryMax) return;
  explanation.history.erase(
      explanation.history.begin(),
      explanation.history.end() - static_cast<ptrdiff_t>(kHistoryMax));
}

std::string Summary(const Explanation& explanation) {
  std::vector<std::string> parts;
  for (const OtherBlocker& other : explanation.others) {
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
    const auto id_of = [&sequences](std::optional<uint64_t> sequence) {
      return sequence.has_value()
                 ? std::optional<JobId>(sequences.at(*sequence))
                 : std::nullopt;
    };
    any_ = state.jobs().Find(sequences.at(entry.first_sequence));
    const auto in_line = state.line().CountSome(
        RequestOf(*any_->spec), any_->spec->priority, entry.first_sequence,
        entry.first_sequence + static_cast<uint64_t>(entry.size));
    Add("resources", in_line.jobs, in_line.first);
    const auto pauses = state.backoff().ElementsOf(array);
    Add(BlockerName(Kind::kBackOff), pauses.count, pauses.first);
    const auto kept = state.eligibility().KeptOf(array);
    Add(BlockerName(Kind::kArray), kept.at_limit, id_of(kept.first_at_limit));
    Add(BlockerName(Kind::kAfter), kept.after, std::nullopt);
    Add(BlockerName(Kind::kHeld), kept.held, id_of(kept.first_held));
    int64_t rest = entry.CountOf(JobState::kPending);
    for (const WaitingElements& each : waiting_) rest -= each.count;
    rest -= AddUnclaimed(array, rest);
    Add(BlockerName(Kind::kOther), rest, std::nullopt);
  }

  // By what they wait for.
  const std::vector<WaitingElements>& Waiting() const { return waiting_; }

  // Of those that come soonest; of an array of which none waits, its first.
  const JobRecord& FirstToWait() const {
    for (const WaitingElements& each : waiting_) {
      if (each.first.has_value()) return *state_.jobs().Find(*each.first);
    }
    if (entry_.CountOf(JobState::kPending) == 0) return *any_;
    // All wait for the same, so that any one is as good.
    const auto& sequences = state_.jobs().by_sequence();
    for (int64_t i = 0; i < entry_.size; ++i) {
      const JobRecord& job = *state_.jobs().Find(
          sequences.at(entry_.first_sequence + static_cast<uint64_t>(i)));
      if (job.state == JobState::kPending) return job;
    }
    return *any_;
  }

  std::string Summary(const std::string& of_first) const {
    std::vector<std::string> states;
    for (size_t state = 0; state < entry_.counts.size(); ++state) {
      if (entry_.counts[state] == 0) continue;
      states.push_back(
          absl::StrCat(entry_.counts[state], " ",
                       JobStateName(static_cast<JobState>(state))));
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
  void Add(const char* kind, int64_t count, std::optional<JobId> first) {
    if (count > 0) waiting_.push_back({kind, count, first});
  }

  // Of the rest, at most `most`, those that wait for what is unclaimed of them.
  int64_t AddUnclaimed(const JobId& array, int64_t most) {
    std::set<JobId> waiting;
    for (const UnclaimedTable::Entry* each :
         state_.unclaimed().OfArray(array)) {
      const JobRecord* job = state_.jobs().Find(each->job);
      if (job == nullptr || job->state != JobState::kPending) continue;
      if (!job->held) waiting.insert(each->job);
    }
    const int64_t count = std::min(most, static_cast<int64_t>(waiting.size()));
    if (count == 0) return 0;
    Add(BlockerName(Kind::kUnclaimed), count, *waiting.begin());
    return count;
  }

  const ClusterState& state_;
  const ArrayTable::Entry& entry_;
  const JobRecord* any_ = nullptr;
  std::vector<WaitingElements> waiting_;
};

}  // namespace

const char* BlockerName(OtherBlocker::Kind kind) {
  switch (kind) {
    case Kind::kHeld:
      return "held";
    case Kind::kAfter:
      return "after";
    case Kind::kArray:
      return "array";
    case Kind::kBackOff:
      return "back_off";
    case Kind::kPackage:
      return "package";
    case Kind::kReadOnly:
      return "read_only";
    case Kind::kRestored:
      return "restored";
    case Kind::kUnclaimed:
      return "unclaimed";
    case Kind::kLaterStore:
      return "later_store";
    case Kind::kNotTried:
      return "not_tried";
    case Kind::kOther:
      return "waits";
  }
  return "waits";
}

Explanation Explain(const ClusterState& state, const JobRecord& job,
                    bool read_only, const ExplainWhen& when) {
  if (when.at.has_value()) return ExplainThen(state, job, *when.at);
  Explanation explanation{.job = job.id,
                          .name = job.spec->name,
                          .state = job.state,
                          .summary = WhatBecame(state, job)};
  if (when.history) AddHistory(state, job, explanation);
  if (job.state != JobState::kPending) return explanation;
  explanation.others = OthersOf(state, job, read_only);
  const GangRequest request = RequestOf(*job.spec);
  Competition competition(state.nodes().index(), request);
  explanation.ahead = state.line().AheadOf(
      job, kAheadShown, [&competition](const GangRequest& other) {
        return competition.With(other);
      });
  const FullDiagnosis& full = state.DiagnosisOf(request);
  const bool has_room = full.diagnosis.fits;
  // Its own attempt may hold what it would need for another.
  const bool unclaimed = state.unclaimed().OfJob(job.id) != nullptr;
  if (!has_room && !unclaimed) explanation.diagnosis = full.diagnosis;
  Changes changes = FindChanges(state, job, explanation.others, full);
  explanation.changes = std::move(changes.found);
  explanation.changes_complete = changes.complete;
  if (!has_room) AddLaterStore(state, full, explanation);
  if (has_room && explanation.others.empty()) {
    explanation.others.push_back(
        {Kind::kNotTried,
         "there is room for it now: it starts when its turn comes",
         {}});
  }
  explanation.summary = Summary(explanation);
  return explanation;
}

Explanation ExplainArray(const ClusterState& state, const JobId& array,
                         bool read_only, const ExplainWhen& when) {
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
