#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/device_text.h"
#include "client/cli/errors.h"
#include "client/json.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::cli {
namespace {

absl::StatusOr<std::vector<Node>> Nodes(const Invocation& invocation) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  return cluster->Nodes();
}

absl::StatusOr<int> ListGpus(const Invocation& invocation) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<Node> nodes, Nodes(invocation));
  COHORT_RETURN_IF_ERROR(invocation.json
                             ? Print(GpusJson(nodes))
                             : PrintRaw(GpusTable(nodes, ViewFor(invocation))));
  return kExitOk;
}

struct FoundGpu {
  const Node* node = nullptr;
  int index = 0;  // of its device
};

// The GPU whose id is `text`, or the only one whose id begins so.
absl::StatusOr<FoundGpu> FindGpu(const std::vector<Node>& nodes,
                                 const std::string& text) {
  std::vector<FoundGpu> found;
  std::set<std::string> ids;
  for (const Node& node : nodes) {
    for (int i = 0; i < node.devices_size(); ++i) {
      const v1::Device& device = node.devices(i);
      if (device.kind() != "gpu") continue;
      // A node that came back under a new id left its old record behind.
      if (device.id() == text && node.state() != v1::NODE_STATE_DEAD) {
        return FoundGpu{&node, i};
      }
      if (!absl::StartsWith(device.id(), text)) continue;
      ids.insert(device.id());
      found.push_back({&node, i});
    }
  }
  if (found.empty() || text.empty()) {
    return SetReason(
        absl::NotFoundError(absl::StrCat("there is no GPU ", Shown(text),
                                         ": `cohort gpus` shows their ids")),
        "unknown_gpu");
  }
  if (ids.size() > 1) {
    return SetReason(absl::InvalidArgumentError(
                         absl::StrCat(ids.size(), " GPUs' ids begin with ",
                                      Shown(text), ": give more of it")),
                     "ambiguous_gpu");
  }
  return found.back();
}

absl::StatusOr<int> GetGpu(const Invocation& invocation,
                           const std::string& text) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<Node> nodes, Nodes(invocation));
  COHORT_ASSIGN_OR_RETURN(const FoundGpu gpu, FindGpu(nodes, text));
  COHORT_RETURN_IF_ERROR(invocation.json
                             ? Print(GpuJson(*gpu.node, gpu.index))
                             : PrintRaw(GpuText(*gpu.node, gpu.index)));
  return kExitOk;
}

}  // namespace

void AddGpus(CLI::App& cohort, Invocation& invocation) {
  const auto list = [&invocation] { return ListGpus(invocation); };
  CLI::App* gpus =
      AddCommand(cohort, "gpus",
                 "List GPUs, their state and the jobs that hold them; "
                 "show one",
                 invocation, list);
  AddOutputFlags(*gpus, invocation);
  // Runs after those of its commands, whose word holds.
  gpus->callback([&invocation, gpus, list] {
    if (gpus->get_subcommands().empty()) invocation.run = list;
  });
  AddOutputFlags(
      *AddCommand(*gpus, "list", "As `cohort gpus`", invocation, list),
      invocation);
  auto gpu = std::make_shared<std::string>();
  CLI::App* get = AddCommand(
      *gpus, "get", "Show one GPU: its state and why, its samples, its holders",
      invocation, [&invocation, gpu] { return GetGpu(invocation, *gpu); });
  get->add_option("GPU", *gpu, "Its id, or the beginning of its id")
      ->required();
  AddJsonFlag(*get, invocation);
}

}  // namespace cohort::cli
