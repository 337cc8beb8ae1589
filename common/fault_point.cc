#include "common/fault_point.h"

namespace cohort {

void FaultPoints::Arm(absl::string_view name, int64_t skip, int64_t times) {
  MutexLock lock(mutex_);
  Fault& fault = faults_[name];
  fault.skip = skip;
  fault.times = times;
  in_use_ = true;
}

void FaultPoints::Disarm(absl::string_view name) { Arm(name, 0, 0); }

bool FaultPoints::Fires(absl::string_view name) {
  if (!in_use_.load(std::memory_order_relaxed)) return false;
  MutexLock lock(mutex_);
  Fault& fault = faults_[name];
  ++fault.asked;
  if (fault.skip > 0) {
    --fault.skip;
    return false;
  }
  if (fault.times <= 0) return false;
  --fault.times;
  ++fault.fired;
  return true;
}

int64_t FaultPoints::fired(absl::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = faults_.find(name);
  return found == faults_.end() ? 0 : found->second.fired;
}

int64_t FaultPoints::asked(absl::string_view name) const {
  MutexLock lock(mutex_);
  const auto found = faults_.find(name);
  return found == faults_.end() ? 0 : found->second.asked;
}

}  // namespace cohort
