#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/time/time.h"

#include "head/store/records.h"

// What a job did or waited for, and when.  Stateless.
namespace cohort::head {

// Of one job, the last ones: some twenty retries.
inline constexpr int kJobPhasesMax = 64;
// What lasted for less is not noted: one decision may pass through several.
inline constexpr absl::Duration kJobPhaseMin = absl::Milliseconds(10);

// `job` is in this phase from `now` on.
void NotePhase(WaitKind kind, absl::Time now, JobRecord& job);

// The time from `since` until before `until`.
struct PhaseSpan {
  std::optional<WaitKind> kind;  // nothing: it is not remembered
  absl::Time since;
  absl::Time until;  // InfiniteFuture: it goes on
};

// From its submission to its end, without gaps.
std::vector<PhaseSpan> PhaseSpans(const JobRecord& job);

}  // namespace cohort::head
