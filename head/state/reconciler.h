#pragma once

#include <string>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/desired.h"
#include "head/store/records.h"

namespace cohort::head {

// What a node should do about an attempt: a pure function of the two rows, so
// that every message but a reply can be computed again (RC-2).

// Between SIGTERM and SIGKILL when a sibling died: the gang cannot do anything
// useful any more.  For all else it is the spec's grace: time to write a
// checkpoint.
inline constexpr absl::Duration kSiblingGrace = absl::Seconds(1);

// The goal for `part` of `attempt`; kForget once the part is over.  While
// directories of the job are to be removed the last attempt's rank 0 part is
// kept at kStop for it.
Goal GoalOf(const JobRecord& job, const AttemptRecord& attempt,
            const AttemptPart& part);

// Why an attempt ends or has ended, for people.
std::string EndReasonOf(const AttemptRecord& attempt);

// Whether rank 0 is in `part`.
bool HoldsRankZero(const AttemptPart& part);

// The message for the node of `part`.
// REQUIRES: `attempt` is of `job`, `part` of `attempt`.
DesiredAttempt DesiredFor(const JobRecord& job, const AttemptRecord& attempt,
                          const AttemptPart& part);

// That `attempt`, of which the head may know nothing else, is to be forgotten.
DesiredAttempt ForgetOf(const AttemptId& attempt, const JobId& job,
                        std::string reason);

}  // namespace cohort::head
