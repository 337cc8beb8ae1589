#include "worker/device_faults.h"

#include <algorithm>
#include <utility>

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
  std::map<int, std::string> faults;  // by rank
  for (const v1::DesiredRank& rank : attempt.ranks()) {
    if (std::string fault = Of(rank); !fault.empty()) {
      faults[rank.rank()] = std::move(fault);
    }
  }
  const v1::ObservedRank* first = nullptr;
  for (const v1::ObservedRank& rank : observed.ranks()) {
    if (FailedByItself(rank) && faults.contains(rank.rank()) &&
        (first == nullptr || rank.exit_order() < first->exit_order())) {
      first = &rank;
    }
  }
  return first == nullptr ? "" : faults[first->rank()];
}

}  // namespace cohort::worker
