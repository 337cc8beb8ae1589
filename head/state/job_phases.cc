#include "head/state/job_phases.h"

#include <algorithm>
#include <iterator>

namespace cohort::head {

void NotePhase(WaitKind kind, absl::Time now, JobRecord& job) {
  std::vector<JobPhase>& phases = job.phases;
  // As people are shown it, so that they can ask for it.
  absl::Time since = absl::FromUnixMillis(absl::ToUnixMillis(now));
  if (!phases.empty()) {
    if (phases.back().kind == kind) return;
    // The clock may have been set back.
    since = std::max(since, phases.back().since);
    if (since - phases.back().since < kJobPhaseMin) {
      since = phases.back().since;
      phases.pop_back();
      if (!phases.empty() && phases.back().kind == kind) return;
    }
  }
  phases.push_back({.kind = kind, .since = since});
  if (phases.size() > kJobPhasesMax) phases.erase(phases.begin());
}

std::vector<PhaseSpan> PhaseSpans(const JobRecord& job) {
  const absl::Time end = job.ended_at == absl::InfinitePast()
                             ? absl::InfiniteFuture()
                             : job.ended_at;
  std::vector<PhaseSpan> spans;
  const auto add = [&spans](std::optional<WaitKind> kind, absl::Time since,
                            absl::Time until) {
    if (since < until) spans.push_back({kind, since, until});
  };
  const std::vector<JobPhase>& phases = job.phases;
  if (phases.empty()) {
    add(std::nullopt, job.submitted_at, end);
    return spans;
  }
  if (phases.front().since - job.submitted_at >= kJobPhaseMin) {
    add(std::nullopt, job.submitted_at, phases.front().since);
  }
  for (auto phase = phases.begin(); phase != phases.end(); ++phase) {
    const auto next = std::next(phase);
    add(phase->kind, phase->since, next == phases.end() ? end : next->since);
  }
  return spans;
}

}  // namespace cohort::head
