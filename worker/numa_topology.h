#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "worker/device_source.h"

namespace cohort::worker {

// "0-3,8": ascending; nothing for what is not such a list.
std::optional<std::vector<int>> ParseCpuList(const std::string& text);

// The CPUs near each device, ascending, of those whose NUMA node and its CPUs
// are known.  `nodes` is sysfs's directory, or where a test made one.
std::map<std::string, std::vector<int>> CpusNear(
    const std::vector<Device>& devices,
    const std::string& nodes = "/sys/devices/system/node");

}  // namespace cohort::worker
