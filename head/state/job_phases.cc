#include "head/state/job_phases.h"

#include <algorithm>
#include <iterator>

namespace cohort::head {

void NotePhase(WaitKind kind, absl::Time now, JobRecord& job) {
  auto& phases = *job.row.mutable_phases();
  // As people are shown it, so that they can ask for it.
  absl::Time since = absl::FromUnixMillis(absl::ToUnixMillis(now));
  if (!phases.empty()) {
    const JobPhase& last = *phases.rbegin();
    if (last.kind() == kind) return;
    // The clock may have been set back.
    const absl::Time before = FromMicros(last.since_us());
    since = std::max(since, before);
    if (since - before < kJobPhaseMin) {
      since = before;
      phases.RemoveLast();
      if (!phases.empty() && phases.rbegin()->kind() == kind) return;
    }
  }
  JobPhase& added = *phases.Add();
  added.set_kind(kind);
  added.set_since_us(ToMicros(since));
  if (phases.size() > kJobPhasesMax) phases.erase(phases.begin());
}

std::vector<PhaseSpan> PhaseSpans(const JobRecord& job) {
  const absl::Time end = job.ended_at() == absl::InfinitePast()
                             ? absl::InfiniteFuture()
                             : job.ended_at();
  std::vector<PhaseSpan> spans;
  const auto add = [&spans](std::optional<WaitKind> kind, absl::Time since,
                            absl::Time until) {
    if (since < until) spans.push_back({kind, since, until});
  };
  const auto& phases = job.row.phases();
  if (phases.empty()) {
    add(std::nullopt, job.submitted_at(), end);
    return spans;
  }
  const absl::Time first = FromMicros(phases.begin()->since_us());
  if (first - job.submitted_at() >= kJobPhaseMin) {
    add(std::nullopt, job.submitted_at(), first);
  }
  for (auto phase = phases.begin(); phase != phases.end(); ++phase) {
    const auto next = std::next(phase);
    add(phase->kind(), FromMicros(phase->since_us()),
        next == phases.end() ? end : FromMicros(next->since_us()));
  }
  return spans;
}

}  // namespace cohort::head
