#pragma once

#include <string>

#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/desired.h"
#include "head/store/records.h"

namespace cohort::head {

// What a node should do about an attempt: a pure function of rows, so that
// every message but a reply can be computed again (RC-2).

// PREPARE, or FORGET once the place is over.  While directories of the job are
// to be removed the last attempt's place of slot 0 is kept for it.
Goal GoalOf(const JobRecord& job, const AttemptRecord& attempt,
            const Place& place);
// Of a process that has a node.
Goal GoalOf(const AttemptRecord& attempt, const Process& process);

// Why an attempt ends or has ended, for people.
std::string EndReasonOf(const AttemptRecord& attempt);

// Whether slot 0 is there.
bool HoldsRankZero(const AttemptRecord& attempt, const NodeId& node);

// The message for the node of `place`; `forgotten` are processes which it has
// and that are not the attempt's any more.  `node` (its row) and `now` are for
// the notice of a drain.
// REQUIRES: `attempt` is of `job`, `place` of `attempt`.
v1::DesiredPlace DesiredFor(const JobRecord& job, const AttemptRecord& attempt,
                            const Place& place, const Incarnations& forgotten,
                            const NodeRecord& node, absl::Time now);

// That `attempt`, of which the head may know nothing else, is to be forgotten.
v1::DesiredPlace ForgetOf(const AttemptId& attempt, const JobId& job,
                          std::string reason);

}  // namespace cohort::head
