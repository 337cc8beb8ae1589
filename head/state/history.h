#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/state/attempt_table.h"
#include "head/state/change.h"
#include "head/state/history_limits.h"
#include "head/state/history_line.h"
#include "head/state/job_table.h"
#include "head/state/metrics_table.h"
#include "head/state/node_table.h"
#include "head/state/rows.h"
#include "head/store/records.h"

namespace cohort::head {

// Forgets what is over: ended jobs with their attempts, events, dead nodes.
// (Request ids, packages and wait reasons are forgotten by their own tables, by
// the same HistoryLine.)
//
//   HI-1: after each tick each kind is within its caps, or as much of it went
//         as one decision may take.
//   HI-2: the oldest go first, in the batch of the decision that forgets them;
//         never what something living needs: a job that others wait for, a node
//         with an attempt that has not ended, an array while an element lives.
//
// An array goes from its last element to its first, over several decisions when
// it is large, and is not found by its id from the first of them on; a head
// that starts meanwhile sees it by what is missing, and goes on.
//
// Thread-compatible; belongs to ClusterState, whose tables outlive it.
class History {
 public:
  History(const HistoryLimits& limits, const Clock& clock, JobTable& jobs,
          AttemptTable& attempts, NodeTable& nodes, MetricsTable& metrics);

  // What the tables hold now.  `events`: what is stored, by number.
  void Load(const std::vector<StoredEvent>& events);

  // Forgets attempts of a job but the last ones.
  void TrimAttempts(const JobId& job, Change& change);

  // What a decision has changed, whose rows are put; `event_bytes` are of its
  // events' rows.
  void Note(const Change& change, const std::vector<size_t>& event_bytes);
  // Forgets what is beyond the caps: of each kind at most twice as many rows
  // as were noted since the last time, and `more`.
  void Trim(size_t more, Change& change);

  // Whether a job or array could be forgotten now, and that it is; of a large
  // array the rest goes with the next Trims.  REQUIRES: MayForget.
  bool MayForget(const JobId& unit) const {
    return job_line_.Contains(unit) || executor_line_.Contains(unit);
  }
  void Forget(const JobId& unit, Change& change);

  // Jobs, executors, events, nodes.
  std::vector<HistoryLevel> Levels() const;

 private:
  void LoadJobs();
  HistoryLine<JobId>& LineOf(const JobId& unit);
  // Of its row, its spec's unless it is an element, its attempts' and its
  // metrics'.
  int64_t BytesOf(const JobRecord& job) const;
  size_t RowsOf(const JobId& job) const;
  // What an ended job takes.
  void NoteJob(const JobId& id);
  // Single jobs and arrays that may be forgotten now, or may not any more.
  void NoteUnits();
  void CountElements(const JobId& unit, int64_t jobs);
  // The array that is half gone, or what a cap says; nothing otherwise.
  std::optional<JobId> NextToGo() const;
  void TrimJobs(size_t rows, Change& change);
  // Each gives how many rows went; of an array those from its end on.
  size_t ForgetArray(const JobId& array, size_t rows, Change& change);
  size_t ForgetJob(const JobId& job, Change& change);
  void ForgetAttempt(const AttemptId& attempt, Change& change);
  void TrimEvents(size_t rows, Change& change);
  void TrimNodes(size_t rows, Change& change);

  // Set in the constructor.
  const HistoryLimits limits_;
  JobTable& jobs_;
  AttemptTable& attempts_;
  NodeTable& nodes_;
  MetricsTable& metrics_;

  HistoryLine<JobId> job_line_;  // jobs and arrays, but for
  HistoryLine<JobId> executor_line_;
  std::map<JobId, int64_t> elements_;
  int64_t element_count_ = 0;
  HistoryLine<uint64_t> event_line_;
  HistoryLine<NodeId> node_line_;
  // Rows noted since the last Trim.
  size_t new_job_rows_ = 0;
  size_t new_events_ = 0;
  size_t new_nodes_ = 0;
};

}  // namespace cohort::head
