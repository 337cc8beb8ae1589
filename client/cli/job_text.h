#pragma once

#include <string>
#include <vector>

#include "client/job.h"

// Jobs as people read them.
namespace cohort::cli {

// A line a job, as wide as the terminal; `wide`: with whole ids, times and
// reasons.
std::string JobsTable(const std::vector<Job>& jobs, bool wide);

// What the rank that failed first wrote last, each line set in; empty when
// nothing is known of it.
std::string TailText(const Job& job);

// Fields, then ranks, then what the failed rank wrote last.
std::string JobText(const Job& job);

}  // namespace cohort::cli
