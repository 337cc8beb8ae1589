#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/strong_id.h"
#include "head/store/records.h"

namespace cohort::head {

// Why an attempt ends, as one node or a person says it.
struct EndReason {
  AttemptCause cause = v1::ATTEMPT_CAUSE_NONE;
  std::string detail;
  std::vector<std::string> facts;  // for the chain of causes
  NodeId node;                     // where it comes from; nil: no node
};

// Gives `attempt` a reason to end; false when that changes nothing.
//
// The first one stays, except that ranks of a gang fail when a sibling is taken
// from them, and their report may come first: the loss of another node, keeper
// or daemon, or the time limit there, is the cause then.  What failed by itself
// on the same node did so before its keeper ended; only a machine that dies may
// take a rank first.  Ranks that fail in a preflight do so by it.  Pure.
bool GiveReason(EndReason reason, AttemptRecord& attempt);

// Of a gang of which some ranks ended with 0 a while before `now` and others
// still run, which may wait for them for ever: who, since when.  Else empty.
std::string EarlyExitText(const AttemptRecord& attempt, absl::Time now);

}  // namespace cohort::head
