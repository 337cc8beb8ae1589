#include "head/state/dependencies.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "head/state/job_spec.h"
#include "head/store/enum_text.h"

namespace cohort::head {
namespace {

// Of the ids that a reason names; the rest is counted.
constexpr size_t kNamedMax = 3;

}  // namespace

std::optional<JobState> StateOf(const JobTable& jobs, const JobId& id) {
  if (const JobRecord* job = jobs.Find(id)) return job->state;
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

bool Dependencies::RepeatIfBroken(const JobId& who) {
  if (!broken_.contains(who)) return false;
  to_tell_.insert(who);
  return true;
}

std::optional<Dependencies::Broken> Dependencies::TakeBroken() {
  if (to_tell_.empty()) return std::nullopt;
  const JobId who = to_tell_.extract(to_tell_.begin()).value();
  return Broken{.who = who, .dependency = broken_.at(who)};
}

std::vector<JobId> Dependencies::Ended(const JobId& dependency) {
  std::vector<JobId> ready;
  const auto waiting = waited_for_by_.extract(dependency);
  if (waiting.empty()) return ready;
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
    ready.push_back(who);
  }
  return ready;
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

std::string Dependencies::ReasonOf(const JobId& who) const {
  const auto open = waits_for_.find(who);
  if (open == waits_for_.end()) return "";
  std::string reason;
  size_t named = 0;
  for (const auto& [dependency, kind] : open->second) {
    if (named == kNamedMax) {
      absl::StrAppend(&reason, " and ", open->second.size() - named, " more");
      break;
    }
    const std::optional<JobState> state = StateOf(jobs_, dependency);
    absl::StrAppend(&reason, named == 0 ? "after " : ", ", dependency.ToText(),
                    ", which is ",
                    state.has_value() ? EnumText(*state) : "gone");
    ++named;
  }
  return reason;
}

}  // namespace cohort::head
