#include "head/explain/explanation.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/repeated_field.h"

#include "head/explain/changes.h"
#include "head/explain/past_waits.h"
#include "head/placement/placement.h"
#include "head/state/dependencies.h"
#include "head/state/job_phases.h"
#include "head/state/job_spec.h"
#include "head/state/job_table.h"
#include "head/state/job_warnings.h"
#include "head/state/orphan_list.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

template <typename Message>
using Repeated = google::protobuf::RepeatedPtrField<Message>;

constexpr size_t kAheadShown = 3;

// ---- what else keeps it ----

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
  if (before > 0) {
    absl::StrAppend(&wait.text, "; ", before,
                    before == 1 ? " comes before it" : " come before it");
  }
  wait.text += OrphanPlaces(
      static_cast<int64_t>(state.orphans().OfArray(job.id.array()).size()));
  // The next one, where there is room for it.
  if (before > 0) return;
  const int64_t admitted = places.AdmittedOf(job.id.array());
  const std::string& spec = job.spec->array();
  wait.lifted_by.push_back(
      {.kind = "RAISE_ARRAY_LIMIT",
       .of_request = true,
       .text = absl::StrCat(admitted + 1, " elements at once instead of ",
                            admitted),
       .how = absl::StrCat("--array ", spec.substr(0, spec.find('%')), "%",
                           admitted + 1)});
}

Wait ReadOnly() {
  return {.kind = v1::WAIT_KIND_READ_ONLY,
          .text =
              "the head cannot write to its store, and starts nothing "
              "until it can; `cohort status` says why",
          .lifted_by = {{.kind = "STORE_WRITABLE",
                         .of_request = false,
                         .text = "a store that can be written",
                         .how = ""}}};
}

std::vector<Wait> OthersOf(const ClusterState& state, const JobRecord& job,
                           bool read_only) {
  std::vector<Wait> others;
  if (read_only) others.push_back(ReadOnly());
  for (Wait& wait : state.WaitsOf(job)) {
    if (wait.kind == v1::WAIT_KIND_ARRAY) AddPlaces(state, job, wait);
    if (wait.kind == v1::WAIT_KIND_HELD) {
      absl::StrAppend(&wait.text, "; `", wait.lifted_by.front().how,
                      "` lets it go");
    }
    others.push_back(std::move(wait));
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
                        .text = "submit it again, with its package",
                        .how = ""}}});
  }
  if (others.empty() && !state.line().Contains(job)) {
    others.push_back({.text = state.ReasonOf(job), .lifted_by = {}});
  }
  return others;
}

void AddBlocker(WaitKind kind, const std::string& text,
                v1::ExplainJobResponse& out) {
  v1::Blocker& blocker = *out.add_blockers();
  blocker.set_kind(LowerEnumText(kind));
  blocker.set_text(text);
}

// ---- those that do not wait ----

std::vector<std::string> NodesOf(const ClusterState& state,
                                 const JobRecord& job) {
  std::vector<std::string> names;
  const AttemptRecord* const attempt = state.attempts().LastOf(job.id);
  if (attempt == nullptr) return names;
  for (const Place& place : attempt->places) {
    const NodeRecord* const node = state.nodes().Find(place.node);
    names.push_back(node == nullptr ? place.node.ToHex() : node->node.name());
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
    names.push_back(node == nullptr ? place.node.ToHex() : node->node.name());
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
  if (ends && job.row.state() != v1::JOB_STATE_STOPPING) {
    const std::string left = NotSaidGone(*last, state.nodes());
    return absl::StrCat("attempt ", last->number, " ends",
                        last->detail.empty() ? "" : ": ", last->detail,
                        left.empty() ? "" : "; ", left);
  }
  const std::vector<std::string> nodes = NodesOf(state, job);
  const std::string where =
      nodes.empty() ? "" : absl::StrCat(" on ", NamesText(nodes));
  const std::string lost = LostResultsText(job);
  switch (job.row.state()) {
    case v1::JOB_STATE_PENDING:
      return "";
    case v1::JOB_STATE_STARTING:
      return absl::StrCat("it waits for nothing: attempt ", job.row.attempts(),
                          " is starting", where, Preparing(state, job));
    case v1::JOB_STATE_RUNNING:
      return absl::StrCat("it waits for nothing: attempt ", job.row.attempts(),
                          " runs", where);
    case v1::JOB_STATE_STOPPING:
      return absl::StrCat("it waits for nothing: it is being stopped", where);
    default:
      return absl::StrCat(job.row.reason(),
                          job.row.reason().empty() || lost.empty() ? "" : "; ",
                          lost);
  }
  return "";
}

// Beside the others, as other changes help in spite of it.
void AddLaterStore(const ClusterState& state, v1::ExplainJobResponse& out) {
  const auto later = state.later_store();
  if (!later.has_value()) return;
  AddBlocker(v1::WAIT_KIND_LATER_STORE,
             LaterStoreReason(*later, state.cluster().term()), out);
}

// What keeps all slots of running jobs.
std::vector<Wait> OthersOfSlots(const ClusterState& state, const JobRecord& job,
                                bool read_only) {
  std::vector<Wait> others;
  if (read_only) others.push_back(ReadOnly());
  for (Wait& wait : state.WaitsOf(job)) {
    if (wait.kind == v1::WAIT_KIND_RESTORED) others.push_back(std::move(wait));
  }
  return others;
}

// Of one that runs while slots of it are empty.
void AddWaitingSlots(const ClusterState& state, const JobRecord& job,
                     bool read_only, v1::ExplainJobResponse& out) {
  const auto in_line = state.SlotsInLineOf(job.id);
  std::vector<Wait> others;
  if (!in_line.empty()) others = OthersOfSlots(state, job, read_only);
  for (const Wait& wait : others) AddBlocker(wait.kind, wait.text, out);
  NodeTrial trial(state.nodes().index());
  std::set<GangRequest> told;  // of those who ask for the same, by the first
  for (const ClusterState::SlotsInLine& each : in_line) {
    const Asked asked{.job = job,
                      .request = state.line().RequestFor(each.ask),
                      .slots = each.slots};
    if (!told.insert(asked.request).second) continue;
    const Diagnosis diagnosis = Diagnose(state.nodes(), state.attempts(),
                                         asked.request, {}, &trial, job.id);
    if (diagnosis.fits) continue;
    FindChanges(state, asked, others, diagnosis, trial, out);
    *out.add_blockers() = diagnosis.blocker;
  }
  if (!told.empty()) AddLaterStore(state, out);
  const std::string reason = state.ReasonOf(job);
  if (job.row.state() != v1::JOB_STATE_RUNNING || reason.empty()) return;
  out.set_summary(absl::StrCat(out.summary(), "; ", reason));
}

// ---- the past ----

constexpr size_t kHistoryMax = 100;

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string WhyThen(const JobRecord& job, absl::Time at,
                    const Repeated<v1::WaitReason>& waits) {
  if (at < job.submitted_at()) {
    return absl::StrCat("it was submitted later, at ",
                        TimeText(job.submitted_at()));
  }
  if (job.ended_at() != absl::InfinitePast() && job.ended_at() <= at) {
    return absl::StrCat("it had ended, at ", TimeText(job.ended_at()));
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
  const v1::Blocker& first = waits[0].blocker();
  if (first.kind() == LowerEnumText(v1::WAIT_KIND_UNKNOWN)) return first.text();
  return absl::StrCat(
      "it waited: ",
      absl::StrJoin(waits, "; ",
                    [](std::string* text, const v1::WaitReason& wait) {
                      text->append(wait.blocker().text());
                    }));
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

void AddAhead(const ClusterState& state, const JobRecord& job,
              const GangRequest& request, v1::Ahead& out) {
  const Ahead ahead =
      state.line().AheadOf(job, kAheadShown, [&](const GangRequest& other) {
        return MayMeet(state.nodes().index(), request, other);
      });
  out.set_jobs(ahead.jobs);
  out.set_more(ahead.more);
  for (const JobId& id : ahead.first) {
    const JobSpec& spec = *state.jobs().Find(id)->spec;
    v1::Ahead::First& first = *out.add_first();
    first.set_job_id(id.bytes());
    first.set_name(spec.name());
    first.set_priority(spec.priority());
  }
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
    for (const v1::WaitingElements& each : waiting_) rest -= each.count();
    rest -= AddOrphans(array, rest);
    Add(v1::WAIT_KIND_WAITS, rest, std::nullopt);
  }

  // By what they wait for.
  const Repeated<v1::WaitingElements>& waiting() const { return waiting_; }

  // Of those that come soonest; of an array of which none waits, its first.
  const JobRecord& FirstToWait() const {
    if (first_.has_value()) return *state_.jobs().Find(*first_);
    if (entry_.CountOf(v1::JOB_STATE_PENDING) == 0) return *any_;
    // All wait for the same, so that any one is as good.
    const auto& sequences = state_.jobs().by_sequence();
    for (int64_t i = 0; i < entry_.size; ++i) {
      const JobRecord& job = *state_.jobs().Find(
          sequences.at(entry_.first_sequence + static_cast<uint64_t>(i)));
      if (job.row.state() == v1::JOB_STATE_PENDING) return job;
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
  void Add(WaitKind kind, int64_t count, const std::optional<JobId>& first) {
    if (count == 0) return;
    v1::WaitingElements& waiting = *waiting_.Add();
    waiting.set_kind(LowerEnumText(kind));
    waiting.set_count(count);
    if (!first.has_value()) return;
    waiting.set_first_id(first->bytes());
    if (!first_.has_value()) first_ = first;
  }

  // Of the rest, at most `most`, those that wait for an orphan of theirs.
  int64_t AddOrphans(const JobId& array, int64_t most) {
    std::set<JobId> waiting;
    for (const OrphanTable::Entry* each : state_.orphans().OfArray(array)) {
      const JobRecord* job = state_.jobs().Find(each->job);
      if (job == nullptr || job->row.state() != v1::JOB_STATE_PENDING) continue;
      if (!job->row.held()) waiting.insert(each->job);
    }
    const int64_t count = std::min(most, static_cast<int64_t>(waiting.size()));
    if (count == 0) return 0;
    Add(v1::WAIT_KIND_ORPHAN, count, *waiting.begin());
    return count;
  }

  const ClusterState& state_;
  const ArrayTable::Entry& entry_;
  const JobRecord* any_ = nullptr;
  Repeated<v1::WaitingElements> waiting_;
  std::optional<JobId> first_;  // that is known
};

}  // namespace

const Diagnosis& Explainer::DiagnosisOf(const ClusterState& state,
                                        const GangRequest& request,
                                        NodeTrial& trial) {
  if (diagnoses_.size() >= kDiagnosesMax) diagnoses_.clear();
  const auto [place, fresh] = diagnoses_.try_emplace(request);
  Diagnosed& diagnosed = place->second;
  if (fresh || diagnosed.version != state.nodes().version()) {
    diagnosed.diagnosis =
        Diagnose(state.nodes(), state.attempts(), request, {}, &trial);
    diagnosed.version = state.nodes().version();
  }
  return diagnosed.diagnosis;
}

v1::ExplainJobResponse Explainer::Explain(const ClusterState& state,
                                          const JobRecord& job, bool read_only,
                                          const ExplainWhen& when) {
  v1::ExplainJobResponse out;
  out.set_job_id(job.id.bytes());
  out.set_name(job.spec->name());
  out.set_state(job.row.state());
  out.set_changes_complete(true);
  if (when.at.has_value() || when.history) {
    std::vector<v1::WaitReason> past = PastWaits(state, waits_, job, when.at);
    if (past.size() > kHistoryMax) {
      past.erase(past.begin(), past.end() - kHistoryMax);
    }
    out.mutable_history()->Assign(past.begin(), past.end());
  }
  if (when.at.has_value()) {
    out.set_summary(WhyThen(job, *when.at, out.history()));
    return out;
  }
  if (job.row.state() != v1::JOB_STATE_PENDING) {
    out.set_summary(WhatBecame(state, job));
    AddWaitingSlots(state, job, read_only, out);
    return out;
  }
  const std::vector<Wait> others = OthersOf(state, job, read_only);
  for (const Wait& wait : others) AddBlocker(wait.kind, wait.text, out);
  const GangRequest request = RequestOf(job);
  AddAhead(state, job, request, *out.mutable_ahead());
  NodeTrial trial(state.nodes().index());
  const Diagnosis& diagnosis = DiagnosisOf(state, request, trial);
  FindChanges(state, {.job = job, .request = request, .slots = {}}, others,
              diagnosis, trial, out);
  if (!diagnosis.fits) AddLaterStore(state, out);
  // Its own attempt may hold what it would need for another.
  if (!diagnosis.fits && state.orphans().OfJob(job.id) == nullptr) {
    *out.add_blockers() = diagnosis.blocker;
  }
  if (diagnosis.fits && others.empty()) {
    AddBlocker(v1::WAIT_KIND_NOT_TRIED,
               "there is room for it now: it starts when its turn comes", out);
  }
  out.set_summary(absl::StrJoin(
      out.blockers(), "; ", [](std::string* text, const v1::Blocker& blocker) {
        text->append(blocker.text());
      }));
  return out;
}

v1::ExplainJobResponse Explainer::ExplainArray(const ClusterState& state,
                                               const JobId& array,
                                               bool read_only,
                                               const ExplainWhen& when) {
  const ArrayTable::Entry& entry = *state.jobs().arrays().Find(array);
  const Elements elements(state, array, entry);
  const JobRecord& element = elements.FirstToWait();
  v1::ExplainJobResponse out = Explain(state, element, read_only, when);
  out.set_job_id(array.bytes());
  out.set_state(entry.State());
  out.set_element_id(element.id.bytes());
  if (when.at.has_value()) {
    out.set_summary(
        absl::StrCat("of ", element.id.ToText(), ": ", out.summary()));
    return out;
  }
  *out.mutable_elements() = elements.waiting();
  out.set_summary(elements.Summary(out.summary()));
  return out;
}

}  // namespace cohort::head
