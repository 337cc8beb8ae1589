#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/job_id.h"
#include "head/placement.h"
#include "head/records.h"

namespace cohort::head {

// Jobs that wait for resources, in order of submission, grouped by what they
// ask for: equal requests share one failed attempt and one reason.
//
// A job may start before an earlier one that does not fit (there is no
// reservation yet); each release tries the line from its front.
// Thread-compatible; belongs to ClusterState, which rebuilds it from rows.
class WaitingLine {
 public:
  // REQUIRES: `job` waits nowhere.
  void Add(const JobRecord& job);
  // Nothing when it does not wait.
  void Remove(const JobRecord& job);
  size_t size() const { return size_; }

  // A pass over the line: the first job whose request has not failed since
  // resources were last freed.  None: nothing that waits can be placed.
  std::optional<JobId> Next() const;
  // The request of `job` does not fit.
  void Refuse(const JobRecord& job, Refusal refusal);
  // Resources came free: all requests may be tried again.
  void Freed();

  // Why a waiting job waits; empty before it was tried.
  std::string ReasonOf(const JobRecord& job) const;

 private:
  struct Shape {
    std::map<uint64_t, JobId> jobs;  // by sequence
    bool refused = false;
    std::string reason;
  };
  // The request as text: equal requests have equal keys.
  static std::string KeyOf(const JobSpec& spec);
  void Index(const std::string& key, const Shape& shape);
  void Unindex(const Shape& shape);

  std::map<std::string, Shape> shapes_;
  // First sequence of each shape that may be tried -> its key.
  std::map<uint64_t, std::string> heads_;
  size_t size_ = 0;
};

// What a job asks of the planner.
GangRequest RequestOf(const JobSpec& spec);

}  // namespace cohort::head
