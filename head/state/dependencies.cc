#include "head/state/dependencies.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "head/state/job_spec.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

// Of the ids that a reason names; the rest is counted.
constexpr size_t kNamedMax = 3;

}  // namespace

std::optional<JobState> StateOf(const JobTable& jobs, const JobId& id) {
  if (const JobRecord* job = jobs.Find(id)) return job->row.state();
  if (const ArrayTable::Entry* array = jobs.arrays().Find(id)) {
    return array->State();
  }
  return std::nullopt;
}

Dependencies::Verdict Dependencies::Judge(const JobId& dependency,
                                          DependencyKind kind) const {
  const std::optional<JobState> state = StateOf(jobs_, dependency);
  if (!state.has_value()) return Verdict::kDone;
  if (!HasEnded(*state)) return Verdict::kOpen;
  const bool is_ok =
      kind == v1::DEPENDENCY_KIND_ANY || *state == v1::JOB_STATE_SUCCEEDED;
  return is_ok ? Verdict::kDone : Verdict::kBroken;
}

void Dependencies::Add(const JobId& who, const Dependencies::Named& after) {
  if (after.empty()) return;
  named_.emplace(who, after);
  for (const Dependency& dependency : after) {
    const JobId job = JobOf(dependency);
    jobs_.Pin(job);
    switch (Judge(job, dependency.kind())) {
      case Verdict::kOpen:
        waits_for_[who].emplace(job, dependency.kind());
        waited_for_by_[job].insert(who);
        break;
      case Verdict::kBroken:
        Break(who, job);
        break;
      case Verdict::kDone:
        break;
    }
  }
}

void Dependencies::Remove(const JobId& who) {
  const auto named = named_.find(who);
  if (named == named_.end()) return;
  for (const Dependency& dependency : named->second) {
    const JobId job = JobOf(dependency);
    jobs_.Unpin(job);
    const auto waiting = waited_for_by_.find(job);
    if (waiting == waited_for_by_.end()) continue;
    waiting->second.erase(who);
    if (waiting->second.empty()) waited_for_by_.erase(waiting);
  }
  waits_for_.erase(who);
  broken_.erase(who);
  to_tell_.erase(who);
  named_.erase(named);
}

void Dependencies::Break(const JobId& who, const JobId& dependency) {
  broken_.emplace(who, dependency);
  to_tell_.insert(who);
}

std::optional<Dependencies::Broken> Dependencies::TakeBroken() {
  if (to_tell_.empty()) return std::nullopt;
  const JobId who = to_tell_.extract(to_tell_.begin()).value();
  return Broken{.who = who, .dependency = broken_.at(who)};
}

void Dependencies::Added(const JobRecord& job) {
  // Of an array once, with the first element that comes.
  const JobId who = job.id.array();
  if (!named_.contains(who)) Add(who, job.spec->after());
}

bool Dependencies::Pass(const JobRecord& job) {
  const JobId who = job.id.array();
  // It could not be failed at once, because it was not waiting.
  if (broken_.contains(who)) to_tell_.insert(who);
  return !broken_.contains(who) && !waits_for_.contains(who);
}

void Dependencies::Ended(const JobRecord& job) {
  Release(job.id);
  const JobId who = job.id.array();
  const ArrayTable::Entry* array = jobs_.arrays().Find(who);
  if (array != nullptr && !array->HasEnded()) return;
  Remove(who);
  if (array != nullptr) Release(who);
}

void Dependencies::Release(const JobId& dependency) {
  const auto waiting = waited_for_by_.extract(dependency);
  if (waiting.empty()) return;
  for (const JobId& who : waiting.mapped()) {
    const auto open = waits_for_.find(who);
    const DependencyKind kind = open->second.at(dependency);
    if (Judge(dependency, kind) == Verdict::kBroken) {
      Break(who, dependency);
      continue;  // it ends, so what else it waits for does not matter
    }
    open->second.erase(dependency);
    if (!open->second.empty()) continue;
    waits_for_.erase(open);
    for (const JobId& each : jobs_.Named(who)) ready_.push_back(each);
  }
}

std::map<JobId, std::vector<JobId>> Dependencies::KeptOnlyBy(
    const std::set<JobId>& ended) const {
  std::map<JobId, std::vector<JobId>> kept;
  for (const JobId& dependency : ended) {
    const auto waiting = waited_for_by_.find(dependency);
    if (waiting == waited_for_by_.end()) continue;
    for (const JobId& who : waiting->second) {
      const auto open = waits_for_.find(who);
      const bool only = open != waits_for_.end() &&
                        std::all_of(open->second.begin(), open->second.end(),
                                    [&ended](const auto& e) {
                                      return ended.contains(e.first);
                                    });
      if (only) kept[who].push_back(dependency);
    }
  }
  return kept;
}

std::optional<Wait> Dependencies::WaitOf(const JobRecord& job) const {
  const auto open = waits_for_.find(job.id.array());
  if (open == waits_for_.end()) return std::nullopt;
  std::string text;
  size_t named = 0;
  for (const auto& [dependency, how] : open->second) {
    if (named == kNamedMax) {
      absl::StrAppend(&text, " and ", open->second.size() - named, " more");
      break;
    }
    const std::optional<JobState> state = StateOf(jobs_, dependency);
    absl::StrAppend(&text, named == 0 ? "after " : ", ", dependency.ToText(),
                    ", which is ",
                    state.has_value() ? EnumText(*state) : "gone");
    ++named;
  }
  // ":ok" is what ends it FAILED otherwise.
  std::vector<std::string> ends;
  for (const Dependency& each : job.spec->after()) {
    if (!open->second.contains(JobOf(each))) continue;
    ends.push_back(absl::StrCat(
        JobOf(each).ToText(),
        each.kind() == v1::DEPENDENCY_KIND_OK ? " succeeding" : " ending"));
  }
  Wait wait{.kind = kind(), .text = std::move(text), .lifted_by = {}};
  wait.lifted_by = {{.kind = "DEPENDENCY_ENDS",
                     .text = absl::StrCat("job ", NamesText(ends))},
                    {.kind = "DROP_DEPENDENCY",
                     .of_request = true,
                     .text = "without --after"}};
  return wait;
}

JobGate::Elements Dependencies::ElementsOf(const JobId& array,
                                           int64_t rest) const {
  return {.count = waits_for_.contains(array) ? rest : 0, .first = {}};
}

}  // namespace cohort::head
