#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

#include "client/job.h"
#include "client/node.h"

namespace cohort {

// What is known of a job's past.
struct JobPast {
  Job job;
  std::vector<Event> events;     // its own, in order; older ones may be missing
  Explanation waits;             // with its history
  std::vector<RankCalls> calls;  // of an actor's ranks that have a process
};

// The past as a trace in Chrome's format, which Perfetto and chrome://tracing
// open: a track for the job's states, one for what it waited for, one for each
// attempt, and below each node of the last attempt one for each of its ranks,
// which lasts as long as the attempt ran.  Each process of an actor has a track
// for as many calls as it ran at once.  What goes on lasts until `now`.
// Times are microseconds since 1970 by the head's clock.
std::string TraceJson(const JobPast& past, absl::Time now);

}  // namespace cohort
