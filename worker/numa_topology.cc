#include "worker/numa_topology.h"

#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "common/file.h"
#include "worker/keeper/spec.h"

namespace cohort::worker {

std::optional<std::vector<int>> ParseCpuList(const std::string& text) {
  std::set<int> cpus;
  const std::string list(absl::StripAsciiWhitespace(text));
  if (list.empty()) return std::vector<int>();
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last >= keeper::kCpusMax) {
      return std::nullopt;
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.insert(cpu);
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::map<std::string, std::vector<int>> CpusNear(
    const std::vector<Device>& devices, const std::string& nodes) {
  std::map<std::string, std::vector<int>> near;
  for (const Device& device : devices) {
    if (!device.has_numa_node()) continue;
    const absl::StatusOr<std::string> text =
        ReadFile(absl::StrCat(nodes, "/node", device.numa_node(), "/cpulist"));
    std::optional<std::vector<int>> cpus;
    if (text.ok()) cpus = ParseCpuList(*text);
    if (cpus.has_value() && !cpus->empty())
      near[device.id()] = *std::move(cpus);
  }
  return near;
}

}  // namespace cohort::worker
