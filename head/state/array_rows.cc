#include "head/state/array_rows.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"

#include "common/array_spec.h"
#include "common/job_id.h"

namespace cohort::head {
namespace {

void AddMissing(const ArrayRecord& array,
                const absl::flat_hash_set<JobId>& stored,
                std::vector<JobRecord>& jobs) {
  const absl::StatusOr<ArraySpec> spec = ArraySpec::Parse(array.spec->array());
  if (!spec.ok()) return;  // it was taken, so it parses
  uint64_t sequence = array.row.first_sequence();
  for (const uint32_t index : spec->indices) {
    JobRecord element = NewElement(array, index, sequence++);
    if (!stored.contains(element.id)) jobs.push_back(std::move(element));
  }
}

}  // namespace

JobRecord NewElement(const ArrayRecord& array, uint32_t index,
                     uint64_t sequence) {
  JobRecord job(array.id.Element(index));
  *job.row.mutable_origin() = array.row.origin();
  job.row.mutable_origin()->clear_request_id();  // the array's row says it
  job.spec = array.spec;
  job.row.set_sequence(sequence);
  job.row.set_num_workers(job.spec->scaling().num_workers());
  job.row.set_held(job.spec->hold());
  if (job.row.held()) job.row.set_held_by(job.row.origin().principal());
  job.row.set_submitted_at_us(array.row.submitted_at_us());
  job.behind = true;
  return job;
}

bool SetHeld(const ArrayHold& hold, JobRecord& job) {
  if (job.row.held() == hold.held() && job.row.held_by() == hold.by()) {
    return false;
  }
  job.row.set_held(hold.held());
  job.row.set_held_by(hold.by());
  // What it says now is not why it waits any more.
  if (!hold.held() && job.row.attempts() == 0) job.row.clear_reason();
  return true;
}

void CatchUp(const std::vector<ArrayRecord>& arrays,
             std::vector<JobRecord>& jobs) {
  absl::flat_hash_set<JobId> stored;
  absl::flat_hash_map<JobId, const ArrayHold*> holds;
  for (const ArrayRecord& array : arrays) {
    if (array.row.has_hold()) holds.emplace(array.id, &array.row.hold());
    if (array.row.first_sequence() == 0) continue;
    if (stored.empty()) {
      for (const JobRecord& job : jobs) stored.insert(job.id);
    }
    AddMissing(array, stored, jobs);
  }
  if (holds.empty()) return;
  for (JobRecord& job : jobs) {
    const auto found =
        job.id.IsElement() ? holds.find(job.id.array()) : holds.end();
    if (found == holds.end()) continue;
    // An element with a later event was changed by itself after the array.
    if (job.row.state() == v1::JOB_STATE_PENDING &&
        job.row.origin().cause() < found->second->cause() &&
        SetHeld(*found->second, job)) {
      job.behind = true;
    }
  }
}

}  // namespace cohort::head
