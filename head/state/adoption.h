#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/strong_id.h"
#include "head/state/observed.h"
#include "head/state/unclaimed.h"
#include "head/store/records.h"

// What `cohort adopt` makes of an unclaimed attempt: rows, of what its nodes
// say of it.  They are not believed further than they agree.
namespace cohort::head {

// FailedPrecondition when `attempt`, which `entry` is of, may have begun and
// ended since the backup: going on with it would begin it again.
absl::Status CheckNotOver(const UnclaimedTable::Entry& entry,
                          const AttemptRecord& attempt);

// What an attempt holds of a node, by what was wanted of it there.
AttemptPart PartOf(const NodeId& node, const DesiredAttempt& wanted);

// The row of an attempt without one, as its nodes describe it.
// FailedPrecondition, saying what is missing or cannot be, unless each of its
// nodes has and they agree.
absl::StatusOr<AttemptRecord> RecordOf(const UnclaimedTable::Entry& entry);

// The row of its job, as far as its nodes know it: what it runs, its grace, and
// what was left of its time limit when the attempt began, but nothing of where
// and when it may run, nor by what it is known.  REQUIRES: RecordOf gave a row.
JobRecord JobOf(const UnclaimedTable::Entry& entry);

}  // namespace cohort::head
