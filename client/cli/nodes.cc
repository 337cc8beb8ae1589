#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/table.h"
#include "client/json.h"
#include "common/exit_code.h"
#include "common/size_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

// "1.5/4": what is free of what there is.
std::string FreeOf(const Node& node, const char* name) {
  const Amount total = node.resources.Get(name);
  if (total.IsZero()) return "-";
  const Amount free = node.available.Get(name);
  if (name == absl::string_view(kMemory)) {
    return absl::StrCat(SizeToText(free.WholeUnits()), "/",
                        SizeToText(total.WholeUnits()));
  }
  return absl::StrCat(free.ToString(), "/", total.ToString());
}

std::string Custom(const Node& node) {
  std::vector<std::string> parts;
  for (const auto& [name, amount] : node.resources) {
    if (name == kCpu || name == kGpu || name == kMemory) continue;
    parts.push_back(absl::StrCat(name, " ", FreeOf(node, name.c_str())));
  }
  return absl::StrJoin(parts, ", ");
}

// "8 x NVIDIA H100, 2 x fake (simulated)".
std::string DevicesText(const std::vector<Device>& devices) {
  std::map<std::string, int> counts;
  for (const Device& device : devices) {
    ++counts[absl::StrCat(device.model.empty() ? device.kind : device.model,
                          device.simulated ? " (simulated)" : "")];
  }
  std::vector<std::string> parts;
  for (const auto& [model, count] : counts) {
    parts.push_back(absl::StrCat(count, " x ", model));
  }
  return absl::StrJoin(parts, ", ");
}

std::string NodesTable(const std::vector<Node>& nodes) {
  Table table({"ID", "NAME", "STATE", "PID", "CPU FREE", "GPU FREE",
               "MEMORY FREE", "CUSTOM FREE", "LABELS", "DEVICES"});
  for (const Node& node : nodes) {
    table.Add({node.id.ToHex(), node.name, node.state, absl::StrCat(node.pid),
               FreeOf(node, kCpu), FreeOf(node, kGpu), FreeOf(node, kMemory),
               Custom(node),
               absl::StrJoin(node.labels, ",", absl::PairFormatter("=")),
               DevicesText(node.devices)});
  }
  return table.ToString();
}

absl::StatusOr<int> RunNodes(const Invocation& invocation) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<Node> nodes, cluster->Nodes());
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(NodesJson(nodes))
                                         : PrintRaw(NodesTable(nodes)));
  return kExitOk;
}

}  // namespace

void AddNodes(CLI::App& cohort, Invocation& invocation) {
  CLI::App* nodes = AddCommand(
      cohort, "nodes", "List nodes, what they offer and what is free",
      invocation, [&invocation] { return RunNodes(invocation); });
  AddJsonFlag(*nodes, invocation);
}

}  // namespace cohort::cli
