#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

#include "common/job_id.h"
#include "head/store/records.h"

namespace cohort::head {

// What rank 0 of each job reported: the last numbers, and a curve of each
// metric that is thinned out as it grows, so that it outlives the run directory
// with every step in it.
//
//   MT-1: of one job at most kNamesMax metrics and kValuesMax values are kept;
//         the first names stay, and the newest point.
//   MT-2: steps that are done again, since the job went on from a checkpoint,
//         are kept as they were done last.
//
// A row is written with its job's row only, and once the history has grown by
// an eighth: a report costs no write of its own, and a head that is killed
// loses an eighth at most.  Thread-compatible; belongs to ClusterState.
class MetricsTable {
 public:
  static constexpr size_t kNamesMax = 32;
  static constexpr size_t kNameBytesMax = 128;
  // Steps included: about 36 KiB a job; of 7 metrics 512 points each.
  static constexpr size_t kValuesMax = 4'096;

  using Numbers = std::vector<std::pair<std::string, double>>;

  void Load(MetricsRecord record);

  // Takes a report, a JSON object; anything else is left out, and what in it is
  // not a number.  Without a "step" it is the last report, and no point.
  void Note(const JobId& job, absl::string_view json);

  // What is to be stored with the job's row now; null: nothing.
  const MetricsRecord* TakeDue(const JobId& job);
  // The job has ended: what is not stored yet, else null.
  const MetricsRecord* TakeLast(const JobId& job);
  // Whether there was a history.
  bool Remove(const JobId& job);

  // Null: it has none.
  const MetricsRecord* Find(const JobId& job) const;
  // The last report of each job that made one in this life of the head and has
  // not ended.
  const std::map<JobId, Numbers>& latest() const { return latest_; }

 private:
  struct Entry {
    MetricsRecord row;
    size_t unstored = 0;  // reports since the row was taken
  };

  static void AddPoint(Entry& entry, int64_t step, const Numbers& numbers);
  static const MetricsRecord* Take(Entry& entry);

  std::map<JobId, Entry> entries_;
  std::map<JobId, Numbers> latest_;
};

}  // namespace cohort::head
