#pragma once

#include "absl/time/time.h"

#include "common/clock.h"
#include "head/state/deadlines.h"
#include "head/state/job_gate.h"

namespace cohort::head {

// `--begin`: no first attempt before a time of the head's wall clock; later
// attempts do not wait for it again.  Belongs to JobGates.
class StartTimes final : public JobGate {
 public:
  // Both outlive it.
  StartTimes(Deadlines& deadlines, const Clock& clock)
      : deadlines_(deadlines), clock_(clock) {}

  WaitKind kind() const override { return v1::WAIT_KIND_START_TIME; }
  bool Pass(const JobRecord& job) override;
  void Leave(const JobRecord& job) override { deadlines_.Erase(DueOf(job)); }
  bool Keeps(const JobRecord& job) const override {
    return deadlines_.Contains(DueOf(job));
  }
  // "starts at 2026-11-24T10:00:00Z".
  std::optional<Wait> WaitOf(const JobRecord& job) const override;
  Elements ElementsOf(const JobId& array, int64_t /*rest*/) const override {
    return ElementsIn(deadlines_, DueKind::kStartTime, array);
  }

 private:
  static Due DueOf(const JobRecord& job) {
    return {DueKind::kStartTime, AskId{job.id}};
  }
  bool IsOpen(const JobRecord& job) const;

  Deadlines& deadlines_;
  const Clock& clock_;
};

}  // namespace cohort::head
