#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <vector>

#include "common/job_id.h"
#include "head/placement/gang_request.h"
#include "head/state/eligibility.h"
#include "head/state/job_table.h"
#include "head/state/waiting_line.h"
#include "head/store/records.h"

// Who may take what a change makes free, beside the job for which it is made.
namespace cohort::head {

// A job that stands in line, or comes into it once others have ended.
struct Contender {
  // What a person holds to keep it away: itself, or the array of which it is an
  // element, as another element would come in its place.
  JobId hold;
  const GangRequest* request = nullptr;
  WaitingLine::Place place;
  std::vector<JobId> after;     // that have to end before
  std::optional<size_t> array;  // of Contenders::arrays
};

struct Contenders {
  // An array that runs only so many elements at once.
  struct Array {
    JobId id;
    int64_t limit = 0;
    int64_t taken = 0;  // by elements that do not stand in line
  };

  std::vector<Contender> all;  // in the order of the line
  size_t ahead = 0;            // of these come before the job
  std::vector<Array> arrays;
  std::optional<size_t> own_array;  // the job's
  // Requests of which there are more than were looked at.
  std::set<const GangRequest*> cut;
  bool too_many = false;  // requests that differ

  std::deque<GangRequest> owned;  // of those that do not stand in line
};

// `ended`: jobs that the change ends.  Where it makes room in several steps
// those behind the job are in the way too: what one step frees may be enough
// for them and not for it.  Valid until the line changes.
Contenders FindContenders(const WaitingLine& line,
                          const Eligibility& eligibility, const JobTable& jobs,
                          const JobRecord& job, const std::set<JobId>& ended,
                          bool several_steps);

}  // namespace cohort::head
