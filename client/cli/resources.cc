#include <memory>
#include <set>
#include <string>

#include "client/cli/command.h"
#include "client/cli/table.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/resource_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

std::string ResourcesTable(const ClusterResources& resources) {
  Table table({"RESOURCE", "TOTAL", "AVAILABLE"});
  std::set<std::string> names = {kCpu, kGpu, kMemory};
  const ResourceSet total = ResourcesOf(resources.total());
  const ResourceSet available = ResourcesOf(resources.available());
  for (const auto& [name, amount] : total) names.insert(name);
  for (const std::string& name : names) {
    table.Add({name, AmountText(name, total.Get(name)),
               AmountText(name, available.Get(name))});
  }
  return table.ToString();
}

absl::StatusOr<int> RunResources(const Invocation& invocation) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const ClusterResources resources,
                          cluster->Resources());
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(ToJson(resources))
                                         : PrintRaw(ResourcesTable(resources)));
  return kExitOk;
}

}  // namespace

void AddResources(CLI::App& cohort, Invocation& invocation) {
  CLI::App* resources = AddCommand(
      cohort, "resources",
      "Show the total resources of the nodes that are "
      "alive",
      invocation, [&invocation] { return RunResources(invocation); });
  AddJsonFlag(*resources, invocation);
}

}  // namespace cohort::cli
