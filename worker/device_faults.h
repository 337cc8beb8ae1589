#pragma once

#include <map>
#include <string>

#include "cohort/v1/node.pb.h"

namespace cohort::worker {

bool HasDevice(const v1::DesiredRank& rank, const std::string& device);

// Why devices of this node are not well, as far as ranks on them are concerned
// (DV-9).  Each answer is empty where there is nothing.
class DeviceFaults {
 public:
  // An empty reason: it has none any more.
  void Note(const std::string& device, const std::string& reason);

  std::string Of(const v1::DesiredRank& rank) const;
  // Of any of its ranks.
  std::string Of(const v1::DesiredAttempt& attempt) const;
  // Of the first rank to fail on a device that has one.  Which rank was the
  // first of all says nothing: one on a healthy device, whose collective was
  // revoked, is mostly gone before the one in whose kernel the fault is.
  std::string OfFailure(const v1::DesiredAttempt& attempt,
                        const v1::ObservedAttempt& observed) const;

 private:
  std::map<std::string, std::string> faults_;  // why, by device
};

}  // namespace cohort::worker
