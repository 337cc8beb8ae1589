#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/node_text.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/status_macros.h"
#include "rpc/enum_text.h"

namespace cohort::cli {
namespace {

absl::StatusOr<int> GetNode(const Invocation& invocation,
                            const std::string& node) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const NodeDetails details, cluster->GetNode(node));
  COHORT_RETURN_IF_ERROR(
      invocation.json ? Print(ToJson(details))
                      : PrintRaw(NodeText(details, ViewFor(invocation))));
  return kExitOk;
}

struct DrainFlags {
  std::string node;
  std::string reason;
  std::string deadline;
};

absl::StatusOr<int> RunDrain(const Invocation& invocation,
                             const DrainFlags& flags) {
  DrainOptions options{.reason = flags.reason};
  if (!flags.deadline.empty()) {
    const auto deadline = ParseDuration(flags.deadline);
    if (!deadline.ok()) {
      return FlagError("--deadline", deadline.status());
    }
    options.deadline = *deadline;
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(const Node node, cluster->Drain(flags.node, options));
  COHORT_RETURN_IF_ERROR(
      Print(invocation.json
                ? ToJson(node)
                : absl::StrCat(node.name(), " is ", EnumText(node.state()))));
  return kExitOk;
}

absl::StatusOr<int> RunUndrain(const Invocation& invocation,
                               const std::string& name) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(const Node node, cluster->Undrain(name));
  COHORT_RETURN_IF_ERROR(
      Print(invocation.json
                ? ToJson(node)
                : absl::StrCat(node.name(), " is ", EnumText(node.state()))));
  return kExitOk;
}

absl::StatusOr<int> RunNodes(const Invocation& invocation) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<Node> nodes, cluster->Nodes());
  COHORT_RETURN_IF_ERROR(
      invocation.json ? Print(NodesJson(nodes))
                      : PrintRaw(NodesTable(nodes, ViewFor(invocation))));
  return kExitOk;
}

void AddNodeArgument(CLI::App& command, std::string& node) {
  command
      .add_option("NODE", node, "Its id, the beginning of its id, or its name")
      ->required();
}

}  // namespace

void AddNodes(CLI::App& cohort, Invocation& invocation) {
  const auto list = [&invocation] { return RunNodes(invocation); };
  CLI::App* nodes = AddCommand(
      cohort, "nodes", "List nodes, what they offer and what is free; show one",
      invocation, list);
  AddOutputFlags(*nodes, invocation);
  // Runs after those of its commands, whose word holds.
  nodes->callback([&invocation, nodes, list] {
    if (nodes->get_subcommands().empty()) invocation.run = list;
  });
  AddOutputFlags(
      *AddCommand(*nodes, "list", "As `cohort nodes`", invocation, list),
      invocation);
  auto node = std::make_shared<std::string>();
  CLI::App* get = AddCommand(
      *nodes, "get",
      "Show one node: its state, drain, devices, what it has, its history",
      invocation, [&invocation, node] { return GetNode(invocation, *node); });
  AddNodeArgument(*get, *node);
  AddOutputFlags(*get, invocation);
}

void AddDrain(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<DrainFlags>();
  CLI::App* drain = AddCommand(
      cohort, "drain", "Place no new work on a node until it is undrained",
      invocation,
      [&invocation, flags] { return RunDrain(invocation, *flags); });
  AddNodeArgument(*drain, flags->node);
  drain
      ->add_option("--reason", flags->reason, "The reason, shown with the node")
      ->option_text("TEXT");
  drain
      ->add_option("--deadline", flags->deadline,
                   "How long running work may continue, as 90s or 5m; then it "
                   "is stopped, uncharged, and starts again elsewhere "
                   "(default: until it ends)")
      ->option_text("T");
  AddJsonFlag(*drain, invocation);
  drain->footer(
      "The node is DRAINING while something runs there, then DRAINED.  It "
      "stays drained when the head or its worker restarts.  Draining it again "
      "replaces reason and deadline.");

  auto node = std::make_shared<std::string>();
  CLI::App* undrain = AddCommand(
      cohort, "undrain", "Allow work on a drained node again", invocation,
      [&invocation, node] { return RunUndrain(invocation, *node); });
  AddNodeArgument(*undrain, *node);
  AddJsonFlag(*undrain, invocation);
}

}  // namespace cohort::cli
