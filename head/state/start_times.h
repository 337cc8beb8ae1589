#pragma once

#include "absl/time/time.h"

#include "common/clock.h"
#include "head/state/deadline_queue.h"
#include "head/state/job_gate.h"

namespace cohort::head {

// `--begin`: no first attempt before a time of the head's wall clock; later
// attempts do not wait for it again.  Belongs to JobGates.
class StartTimes final : public JobGate {
 public:
  // The clock outlives it.
  explicit StartTimes(const Clock& clock) : clock_(clock) {}

  WaitKind kind() const override { return v1::WAIT_KIND_START_TIME; }
  bool Pass(const JobRecord& job) override;
  void Leave(const JobRecord& job) override { waiting_.Erase(job.id); }
  std::vector<JobId> TakeDue(size_t most) override {
    return waiting_.TakeDue(clock_.Wall(), most);
  }
  bool Keeps(const JobRecord& job) const override {
    return waiting_.contains(job.id);
  }
  // "starts at 2026-11-24T10:00:00Z".
  std::optional<Wait> WaitOf(const JobRecord& job) const override;
  Elements ElementsOf(const JobId& array, int64_t /*rest*/) const override {
    return ElementsIn(waiting_.all(), array);
  }

  size_t size() const { return waiting_.size(); }

 private:
  bool IsOpen(const JobRecord& job) const;

  const Clock& clock_;
  DeadlineQueue<JobId, absl::Time> waiting_;  // that nothing before this keeps
};

}  // namespace cohort::head
