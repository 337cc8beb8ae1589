#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/device_source.h"

namespace cohort::worker {

// Which CPUs belong to which NUMA node, as sysfs says.  Stateless.
class NumaTopology {
 public:
  // Or where a test made one.
  explicit NumaTopology(std::string directory = "/sys/devices/system/node")
      : directory_(std::move(directory)) {}

  // Ascending; empty where the node is not known or has none.
  std::vector<int> CpusOf(int node) const;

 private:
  const std::string directory_;
};

// "0-3,8": ascending; nothing for what is no such list.
std::optional<std::vector<int>> ParseCpuList(const std::string& text);

// The CPUs near each device, of those whose node and CPUs are known.
std::map<std::string, std::vector<int>> CpusNear(
    const std::vector<Device>& devices, const NumaTopology& topology);

}  // namespace cohort::worker
