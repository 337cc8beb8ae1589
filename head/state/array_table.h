#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "head/store/records.h"

namespace cohort::head {

// Arrays of jobs, and in which states their elements are.
//
// Thread-compatible; belongs to JobTable, which tells it of every element.
class ArrayTable {
 public:
  struct Entry {
    ArrayRecord record;
    // How many elements may run at once; none: any number.
    std::optional<int> at_once;
    std::array<int64_t, 8> counts{};  // by JobState
    int64_t size = 0;
    uint64_t first_sequence = 0;  // its elements' sequences have no holes
    int64_t elements = 0;         // that it was made of
    int64_t row_bytes = 0;        // of its own rows
    int64_t bytes = 0;            // of its ended elements' rows
    absl::Time ended_at = absl::InfinitePast();  // the last of these
    // The first of its elements; InfinitePast: none has.
    absl::Time started_at = absl::InfinitePast();
    bool is_going = false;  // elements are being forgotten
    uint64_t end_from = 0;  // sequence: those before are told of the end
    uint64_t row_from = 0;  // and the rows of those before are not behind
    std::optional<uint64_t> first_failed;  // the lowest FAILED one's sequence

    int64_t CountOf(JobState state) const {
      return counts[static_cast<size_t>(state)];
    }
    int64_t ended_count() const {
      return CountOf(v1::JOB_STATE_SUCCEEDED) + CountOf(v1::JOB_STATE_FAILED) +
             CountOf(v1::JOB_STATE_STOPPED);
    }
    int64_t live_count() const { return size - ended_count(); }
    bool HasEnded() const { return live_count() == 0; }
    // What the array is as a whole: once all elements have ended FAILED when
    // one did, else STOPPED when one was, else SUCCEEDED; before that RUNNING,
    // STARTING or STOPPING when any element is, else PENDING.
    JobState State() const;
  };

  // REQUIRES: its id is new.
  void Put(ArrayRecord record);
  // REQUIRES: it has no elements any more.
  void Remove(const JobId& array);

  // For elements; nothing for other jobs.  REQUIRES: the array is here.
  void Added(const JobRecord& element);
  void Moved(const JobRecord& element, JobState from);
  void Removed(const JobRecord& element);
  // The rows of an ended element are by so much larger.
  void Grow(const JobRecord& element, int64_t delta);
  // Replaces how its elements are to end, all of which are to be told; none:
  // all were.  REQUIRES: it is here.
  void SetEnd(const JobId& array, std::optional<ArrayEnd> end);
  // Those before the sequence `from` were told.  REQUIRES: it has an end.
  void SetEndFrom(const JobId& array, uint64_t from);
  // Those with elements to be told.
  const std::set<JobId>& ending() const { return ending_; }
  // Replaces how its elements are held, whose rows are behind from now on.
  // REQUIRES: it is here.
  void SetHold(const JobId& array, ArrayHold hold);
  // The rows of those before the sequence `from` are not behind.
  void SetRowFrom(const JobId& array, uint64_t from);
  // No element's row is.
  void CaughtUp(const JobId& array);
  // Those with elements whose rows may be.
  const std::set<JobId>& behind() const { return behind_; }
  // REQUIRES: it is here, and all of its elements have ended.
  void BeginToForget(const JobId& array);

  // Null when there is none, or when it is being forgotten.
  const Entry* Find(const JobId& array) const;
  // Those that are being forgotten too.
  const std::map<JobId, Entry>& all() const { return arrays_; }
  // One that is being forgotten, if any.
  std::optional<JobId> Going() const;

 private:
  Entry* OfElement(const JobRecord& element);
  static void Note(const JobRecord& element, Entry& entry);

  std::map<JobId, Entry> arrays_;
  std::set<JobId> going_;
  std::set<JobId> ending_;
  std::set<JobId> behind_;
};

}  // namespace cohort::head
