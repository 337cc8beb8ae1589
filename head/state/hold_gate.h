#pragma once

#include <map>
#include <set>

#include "head/state/job_gate.h"

namespace cohort::head {

// `--hold`, `cohort jobs hold`: until a person releases the job, who then asks
// again.
class HoldGate final : public JobGate {
 public:
  WaitKind kind() const override { return v1::WAIT_KIND_HELD; }
  void Added(const JobRecord& job) override { Note(job, job.row.held()); }
  bool Pass(const JobRecord& job) override;
  void Leave(const JobRecord& job) override { Note(job, job.row.held()); }
  void Ended(const JobRecord& job) override { Note(job, /*held=*/false); }
  bool Keeps(const JobRecord& job) const override { return job.row.held(); }
  std::optional<Wait> WaitOf(const JobRecord& job) const override;
  Elements ElementsOf(const JobId& array, int64_t rest) const override;

 private:
  void Note(const JobRecord& job, bool held);

  std::map<JobId, std::set<JobId>> held_;  // elements, by array
};

}  // namespace cohort::head
