#pragma once

#include <map>
#include <string>

#include "cohort/v1/node.pb.h"

namespace cohort::worker {

bool HasDevice(const v1::DesiredProcess& process, const std::string& device);

// Why devices of this node are not well, as far as processes on them are
// concerned (DV-9).
class DeviceFaults {
 public:
  // An empty reason: it has none any more.
  void Note(const std::string& device, const std::string& reason);

  // Of any of its devices; empty where there is none.
  std::string Of(const v1::DesiredProcess& process) const;

 private:
  std::map<std::string, std::string> faults_;  // why, by device
};

}  // namespace cohort::worker
