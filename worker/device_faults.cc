#include "worker/device_faults.h"

#include <algorithm>

#include "worker/rank_end.h"

namespace cohort::worker {

bool HasDevice(const v1::DesiredRank& rank, const std::string& device) {
  return std::find(rank.gpu_ids().begin(), rank.gpu_ids().end(), device) !=
         rank.gpu_ids().end();
}

void DeviceFaults::Note(const std::string& device, const std::string& reason) {
  if (reason.empty()) {
    faults_.erase(device);
  } else {
    faults_[device] = reason;
  }
}

std::string DeviceFaults::Of(const v1::DesiredRank& rank) const {
  for (const auto& [device, reason] : faults_) {
    if (HasDevice(rank, device)) return reason;
  }
  return "";
}

std::string DeviceFaults::Of(const v1::DesiredAttempt& attempt) const {
  for (const v1::DesiredRank& rank : attempt.ranks()) {
    if (std::string fault = Of(rank); !fault.empty()) return fault;
  }
  return "";
}

std::string DeviceFaults::OfFailure(const v1::DesiredAttempt& attempt,
                                    const v1::ObservedAttempt& observed) const {
  const v1::ObservedRank* const failed = FirstToFail(observed);
  if (failed == nullptr) return "";
  for (const v1::DesiredRank& rank : attempt.ranks()) {
    if (rank.rank() == failed->rank()) return Of(rank);
  }
  return "";
}

}  // namespace cohort::worker
