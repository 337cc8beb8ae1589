#pragma once

#include "cohort/v1/node.pb.h"

// What is known of the preflight of an attempt's processes on this node
// (docs/design/0007-preflight.md).  Pure.
namespace cohort::worker {

// `process` says how it came through.  The report of a node is the first
// failure, else that of rank 0; the JSON is rank 0's.
void TakePreflight(const v1::PreflightReport& report,
                   v1::ObservedProcess& process, v1::ObservedPlace& place);

// `process` failed by itself.  When it had not come through it did so in the
// preflight: that is said for it, unless a failure is known.
void NoteEndInPreflight(const v1::ObservedProcess& process,
                        v1::ObservedPlace& place);

}  // namespace cohort::worker
