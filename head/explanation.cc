#include "head/explanation.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "head/dependencies.h"
#include "head/job_table.h"

namespace cohort::head {
namespace {

using Kind = OtherBlocker::Kind;

constexpr size_t kAheadShown = 3;
// Of an explanation's lists of names.
constexpr size_t kNamesShown = 3;

// "a", "a and b", "a, b and c", "a, b, c and 2 more".
std::string Names(const std::vector<std::string>& names) {
  if (names.size() > kNamesShown) {
    const std::vector<std::string> shown(names.begin(),
                                         names.begin() + kNamesShown);
    return absl::StrCat(absl::StrJoin(shown, ", "), " and ",
                        names.size() - kNamesShown, " more");
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    const bool last = i + 1 == names.size();
    absl::StrAppend(&text, i == 0 ? "" : last ? " and " : ", ", names[i]);
  }
  return text;
}

std::string Count(int64_t n, const char* noun) {
  return absl::StrCat(n, " ", noun, n == 1 ? "" : "s");
}

// "4", "64GiB": of a resource whose name is said beside it.
std::string Only(const std::string& resource, Amount amount) {
  if (amount.IsZero()) return "0";
  ResourceSet set;
  set.Set(resource, amount);
  return set.ToString().substr(resource.size() + 1);
}

// The flag of `cohort submit` for an amount of a resource.
std::string FlagFor(const std::string& resource, Amount amount) {
  if (resource == kCpu) return absl::StrCat("--cpus ", amount.ToString());
  if (resource == kGpu) return absl::StrCat("--gpus ", amount.ToString());
  if (resource == kMemory) {
    // Whole MiB, which reads back as it is; sizes for people are rounded.
    return absl::StrCat("--memory ", amount.WholeUnits() >> 20, "MiB");
  }
  return absl::StrCat("--resources ", resource, "=", amount.ToString());
}

// ---- changes in words ----

class Wording {
 public:
  explicit Wording(const ClusterState& state) : state_(state) {}

  NamedRemedy Of(const Remedy& remedy) const {
    NamedRemedy named{.remedy = remedy, .text = Text(remedy), .how = ""};
    named.how = How(remedy);
    return named;
  }

 private:
  std::vector<std::string> NodeNames(const Remedy& remedy) const {
    std::vector<std::string> names;
    for (const NodeId& node : remedy.nodes) {
      names.push_back(state_.nodes().Find(node)->name);
    }
    return names;
  }

  static std::vector<std::string> JobNames(const Remedy& remedy) {
    std::vector<std::string> names;
    for (const JobId& job : remedy.jobs) names.push_back(job.ToText());
    return names;
  }

  std::string Text(const Remedy& remedy) const {
    switch (remedy.kind) {
      case Remedy::Kind::kPreferTopology:
        return absl::StrCat("prefer one ", remedy.subject,
                            " instead of requiring it");
      case Remedy::Kind::kOtherStrategy:
        return absl::StrCat("strategy ", remedy.subject);
      case Remedy::Kind::kTolerateTaint:
        return absl::StrCat("tolerate the taint ", remedy.subject);
      case Remedy::Kind::kDropSelector:
        return absl::StrCat("without the selector ", remedy.subject);
      case Remedy::Kind::kAnyAccelerator:
        return absl::StrCat("any accelerator instead of ", remedy.subject);
      case Remedy::Kind::kLessOfResource:
        return absl::StrCat(
            remedy.subject, " ", Only(remedy.subject, remedy.to),
            " a worker instead of ", Only(remedy.subject, remedy.from));
      case Remedy::Kind::kFewerWorkers:
        return absl::StrCat(Count(remedy.to.WholeUnits(), "worker"),
                            " instead of ", remedy.from.WholeUnits());
      case Remedy::Kind::kNodeReturns:
        return absl::StrCat(Names(NodeNames(remedy)), " coming back");
      case Remedy::Kind::kUndrain:
        return absl::StrCat("undrain ", Names(NodeNames(remedy)));
      case Remedy::Kind::kJobEnds:
        return absl::StrCat(remedy.jobs.size() == 1 ? "the end of job "
                                                    : "the end of all of jobs ",
                            Names(JobNames(remedy)));
      case Remedy::Kind::kMoreNodes:
        return absl::StrCat(remedy.count, " more ",
                            remedy.count == 1 ? "node" : "nodes", " like ",
                            remedy.subject, " (", remedy.form.ToString(), ")");
    }
    return RemedyName(remedy.kind);
  }

  std::string How(const Remedy& remedy) const {
    switch (remedy.kind) {
      case Remedy::Kind::kPreferTopology:
        return absl::StrCat("--prefer-same ", remedy.subject);
      case Remedy::Kind::kOtherStrategy:
        return absl::StrCat("--strategy ", remedy.subject);
      case Remedy::Kind::kTolerateTaint:
        return absl::StrCat("--tolerate '", remedy.subject, "'");
      case Remedy::Kind::kLessOfResource:
        return FlagFor(remedy.subject, remedy.to);
      case Remedy::Kind::kFewerWorkers:
        return absl::StrCat("--num-workers ", remedy.to.WholeUnits());
      case Remedy::Kind::kUndrain:
        if (remedy.nodes.size() > 1) return "";
        return absl::StrCat("cohort undrain ", NodeNames(remedy).front());
      case Remedy::Kind::kDropSelector:
      case Remedy::Kind::kAnyAccelerator:
      case Remedy::Kind::kNodeReturns:
      case Remedy::Kind::kJobEnds:
      case Remedy::Kind::kMoreNodes:
        return "";
    }
    return "";
  }

  const ClusterState& state_;
};

// ---- what else keeps it ----

bool WaitsForOthers(const ClusterState& state, const JobRecord& job) {
  const auto& after = job.spec->after;
  return std::any_of(after.begin(), after.end(), [&](const Dependency& each) {
    const std::optional<JobState> first = StateOf(state.jobs(), each.job);
    return first.has_value() && !HasEnded(*first);
  });
}

// Held, others first, an array's limit, a back-off: one of them at a time.
std::optional<OtherBlocker> KeptBy(const ClusterState& state,
                                   const JobRecord& job) {
  const std::string kept = state.eligibility().ReasonOf(job);
  if (kept.empty()) {
    const std::string pause = state.backoff().ReasonOf(job);
    if (pause.empty()) return std::nullopt;
    return OtherBlocker{Kind::kBackOff, pause};
  }
  if (job.held) {
    return OtherBlocker{Kind::kHeld,
                        absl::StrCat(kept, "; `cohort jobs release ",
                                     job.id.ToText(), "` lets it go")};
  }
  return OtherBlocker{WaitsForOthers(state, job) ? Kind::kAfter : Kind::kArray,
                      kept};
}

std::vector<OtherBlocker> OthersOf(const ClusterState& state,
                                   const JobRecord& job, bool read_only) {
  std::vector<OtherBlocker> others;
  if (read_only) {
    others.push_back({Kind::kReadOnly,
                      "the head cannot write to its store, and starts nothing "
                      "until it can; `cohort status` says why"});
  }
  if (std::optional<OtherBlocker> kept = KeptBy(state, job)) {
    others.push_back(*std::move(kept));
  }
  const std::string& package = job.spec->package_hash;
  if (!package.empty() && state.packages().Find(package) == nullptr) {
    others.push_back(
        {Kind::kPackage,
         absl::StrCat("its package ", absl::BytesToHexString(package),
                      " is not at the head any more: submit "
                      "it again")});
  }
  if (others.empty() && !state.line().Contains(job)) {
    others.push_back({Kind::kOther, state.ReasonOf(job)});
  }
  return others;
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

std::string WhatBecame(const ClusterState& state, const JobRecord& job) {
  const std::vector<std::string> nodes = NodesOf(state, job);
  const std::string where =
      nodes.empty() ? "" : absl::StrCat(" on ", Names(nodes));
  switch (job.state) {
    case JobState::kPending:
      return "";
    case JobState::kStarting:
      return absl::StrCat("it waits for nothing: attempt ", job.attempts,
                          " is starting", where);
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

std::string WhyThen(const JobRecord& job, absl::Time at,
                    const WaitReasonRecord* reason) {
  if (at < job.submitted_at) {
    return absl::StrCat("it was submitted later, at ",
                        TimeText(job.submitted_at));
  }
  if (job.ended_at != absl::InfinitePast() && job.ended_at <= at) {
    return absl::StrCat("it had ended, at ", TimeText(job.ended_at));
  }
  const bool started =
      job.started_at != absl::InfinitePast() && job.started_at <= at;
  std::string text;
  if (started) {
    absl::StrAppend(&text, "it had started, at ", TimeText(job.started_at));
  }
  if (reason != nullptr) {
    absl::StrAppend(
        &text,
        started ? "; jobs that ask for the same waited: " : "it waited: ",
        reason->text);
  } else if (!started) {
    absl::StrAppend(&text,
                    "no reason is remembered of then: it waited for something "
                    "else than room, or for less than a second, or it is "
                    "longer ago than reasons are kept");
  }
  return text;
}

Explanation ExplainThen(const ClusterState& state, const JobRecord& job,
                        absl::Time at) {
  Explanation explanation{
      .job = job.id, .name = job.spec->name, .state = job.state};
  const WaitReasonRecord* const reason =
      state.wait_history().At(ShapeKeyOf(RequestOf(*job.spec)), at);
  explanation.summary = WhyThen(job, at, reason);
  const bool waited =
      at >= job.submitted_at &&
      (job.ended_at == absl::InfinitePast() || at < job.ended_at);
  if (reason != nullptr && waited) explanation.history.push_back(*reason);
  return explanation;
}

void AddHistory(const ClusterState& state, const JobRecord& job,
                Explanation& explanation) {
  const absl::Time end = job.ended_at == absl::InfinitePast()
                             ? absl::InfiniteFuture()
                             : job.ended_at;
  for (const WaitReasonRecord* const reason :
       state.wait_history().Between(ShapeKeyOf(RequestOf(*job.spec)),
                                    job.submitted_at, end, kHistoryMax)) {
    explanation.history.push_back(*reason);
  }
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
  explanation.ahead = state.line().AheadOf(job, kAheadShown);
  const FullDiagnosis& full = state.DiagnosisOf(RequestOf(*job.spec));
  if (!full.diagnosis.fits) {
    explanation.diagnosis = full.diagnosis;
    explanation.changes_complete = full.remedies.complete;
    const Wording wording(state);
    for (const Remedy& remedy : full.remedies.found) {
      explanation.changes.push_back(wording.Of(remedy));
    }
  } else if (explanation.others.empty()) {
    explanation.others.push_back(
        {Kind::kNotTried,
         "there is room for it now: it starts when its turn "
         "comes"});
  }
  explanation.summary = Summary(explanation);
  return explanation;
}

}  // namespace cohort::head
