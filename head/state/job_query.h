#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "cohort/v1/cluster.pb.h"
#include "common/job_id.h"
#include "head/state/job_table.h"
#include "head/store/records.h"

namespace cohort::head {

// Which jobs a list shows; everything that is said must hold.
struct JobQuery {
  std::set<JobState> states;  // empty: any
  std::map<std::string, std::string> labels;
  std::string name_space;            // empty: any
  std::vector<std::string> granted;  // namespaces; empty: any
  JobId array;                       // its elements; nil: all jobs
  std::string name;                  // empty: any
  std::string id_prefix;             // the hex digits that an id begins with
  // An array is listed in place of its elements, and chosen by its own state.
  bool fold_arrays = false;
  std::set<v1::JobKind> kinds;  // empty: any
  // Only those that were submitted before the one with this sequence: where the
  // page before ended.
  std::optional<uint64_t> before;
};

v1::JobKind KindOf(const JobSpec& spec);

// NotFound or InvalidArgument, with the fix, when `query.array` is not an
// array.
absl::Status ValidateJobQuery(const JobTable& jobs, const JobQuery& query);

// A part of a list, newest first.
struct JobPage {
  struct Item {
    const JobRecord* job;                      // of an array its last element
    const ArrayTable::Entry* array = nullptr;  // set: it is meant, not `job`
  };
  std::vector<Item> jobs;
  // Where the next page begins; none: there is nothing more.
  std::optional<uint64_t> next;
};

// Up to `size` jobs that match, looking at no more than `looked_max`, so that
// no list holds up the head: a page may be short, even empty, and go on.  Jobs
// that are added meanwhile neither shift nor double what later pages show.
JobPage FindJobs(const JobTable& jobs, const JobQuery& query, size_t size,
                 size_t looked_max);

}  // namespace cohort::head
