#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/device_text.h"
#include "client/cli/errors.h"
#include "client/cli/table.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/size_text.h"
#include "common/status_macros.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

// The state of an attempt of before a restore.
constexpr absl::string_view kOrphan = "ORPHAN";

// "1.5/4": what is free of what there is.
std::string FreeOf(const Node& node, const char* name) {
  const Amount total = ResourcesOf(node.resources()).Get(name);
  if (total.IsZero()) return "-";
  const Amount free = ResourcesOf(node.available()).Get(name);
  if (name == absl::string_view(kMemory)) {
    return absl::StrCat(SizeToText(free.WholeUnits()), "/",
                        SizeToText(total.WholeUnits()));
  }
  return absl::StrCat(free.ToString(), "/", total.ToString());
}

std::string Custom(const Node& node) {
  std::vector<std::string> parts;
  for (const auto& [name, amount] : ResourcesOf(node.resources())) {
    if (name == kCpu || name == kGpu || name == kMemory) continue;
    parts.push_back(absl::StrCat(name, " ", FreeOf(node, name.c_str())));
  }
  return absl::StrJoin(parts, ", ");
}

// "8 x NVIDIA H100, 2 x fake (simulated)".
std::string DevicesText(const Node& node) {
  std::map<std::string, int> counts;
  for (const v1::Device& device : node.devices()) {
    ++counts[absl::StrCat(
        device.model().empty() ? device.kind() : device.model(),
        device.simulated() ? " (simulated)" : "")];
  }
  std::vector<std::string> parts;
  for (const auto& [model, count] : counts) {
    parts.push_back(absl::StrCat(count, " x ", model));
  }
  return absl::StrJoin(parts, ", ");
}

std::string TaintsText(const Node& node) {
  return absl::StrJoin(node.taints(), ",",
                       [](std::string* out, const v1::Taint& taint) {
                         out->append(rpc::FromWire(taint).ToString());
                       });
}

std::string NodesTable(const std::vector<Node>& nodes) {
  Table table({"ID", "NAME", "STATE", "PID", "CPU FREE", "GPU FREE",
               "MEMORY FREE", "CUSTOM FREE", "LABELS", "TAINTS", "DEVICES"});
  for (const Node& node : nodes) {
    table.Add({IdText(node.node_id()), node.name(), EnumText(node.state()),
               absl::StrCat(node.pid()), FreeOf(node, kCpu), FreeOf(node, kGpu),
               FreeOf(node, kMemory), Custom(node),
               SortedText(node.labels(), ","), TaintsText(node),
               DevicesText(node)});
  }
  return table.ToString();
}

// "by ann at 2026-11-21T10:00:00.000Z: fan".
std::string DrainText(const v1::Drain& drain) {
  std::string text = absl::StrCat("by ", drain.principal());
  if (drain.has_asked_at()) {
    absl::StrAppend(&text, " at ", TimeText(drain.asked_at()));
  }
  if (drain.has_deadline()) {
    absl::StrAppend(&text, ", what runs is moved at ",
                    TimeText(drain.deadline()));
  }
  if (!drain.reason().empty()) absl::StrAppend(&text, ": ", drain.reason());
  return text;
}

std::string HeldTable(const NodeDetails& details) {
  Table table({"JOB", "NAME", "ATTEMPT", "STATE", "RANKS", "HOLDS", "GPUS"});
  bool any_orphan = false;
  for (const HeldAttempt& each : details.held()) {
    const bool is_orphan = each.state() == kOrphan;
    any_orphan = any_orphan || is_orphan;
    std::vector<int> ranks;
    std::vector<std::string> gpus;
    for (const Rank& rank : each.ranks()) {
      ranks.push_back(rank.rank());
      gpus.insert(gpus.end(), rank.gpu_ids().begin(), rank.gpu_ids().end());
    }
    table.Add(
        {each.job_id().empty() ? "-" : IdText(each.job_id()), each.job_name(),
         each.number() == 0 || is_orphan ? IdText(each.attempt_id())
                                         : absl::StrCat(each.number()),
         each.state(), absl::StrJoin(ranks, ","),
         ResourcesOf(each.resources()).ToString(), absl::StrJoin(gpus, ",")});
  }
  std::string text = table.ToString();
  if (any_orphan) {
    absl::StrAppend(&text,
                    "An ORPHAN is of before the store was restored: `cohort "
                    "adopt ATTEMPT` goes on with\none that the backup has, "
                    "`cohort end ATTEMPT` ends it.\n");
  }
  return text;
}

std::string HistoryTable(const NodeDetails& details) {
  Table table({"TIME", "EVENT", "BY", "TEXT"});
  for (const Event& event : details.history()) {
    table.Add({TimeText(event.at()), event.kind(),
               event.principal().empty() ? "head" : event.principal(),
               event.text()});
  }
  return table.ToString();
}

// "key: value" lines, then what the node has and what happened to it.
std::string NodeText(const NodeDetails& details) {
  const Node& node = details.node();
  std::string text;
  const auto add = [&text](absl::string_view key, absl::string_view value) {
    const std::string line = OneLine(value);
    if (line.empty()) return;
    absl::StrAppend(&text, key, ":", std::string(13 - key.size(), ' '), line,
                    "\n");
  };
  add("id", IdText(node.node_id()));
  add("name", node.name());
  const std::string state = EnumText(node.state());
  add("state", node.has_since()
                   ? absl::StrCat(state, " since ", TimeText(node.since()))
                   : state);
  if (node.has_drain()) add("drained", DrainText(node.drain()));
  add("unfit", node.unfit());
  add("host", node.host());
  add("pid", absl::StrCat(node.pid()));
  add("build", node.build());
  add("incarnation", absl::StrCat(node.incarnation()));
  add("resources", ResourcesOf(node.resources()).ToString());
  add("available", ResourcesOf(node.available()).ToString());
  add("taints", TaintsText(node));
  add("labels", SortedText(node.labels(), ","));
  for (const v1::Device& device : node.devices()) {
    add(device.kind(), DeviceLine(device));
  }
  if (!details.held().empty()) {
    absl::StrAppend(&text, "\n", HeldTable(details));
  }
  if (!details.history().empty()) {
    absl::StrAppend(&text, "\n", HistoryTable(details));
  }
  return text;
}

absl::StatusOr<int> GetNode(const Invocation& invocation,
                            const std::string& node) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const NodeDetails details, cluster->GetNode(node));
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(ToJson(details))
                                         : PrintRaw(NodeText(details)));
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
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(NodesJson(nodes))
                                         : PrintRaw(NodesTable(nodes)));
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
  AddJsonFlag(*nodes, invocation);
  // Runs after those of its commands, whose word holds.
  nodes->callback([&invocation, nodes, list] {
    if (nodes->get_subcommands().empty()) invocation.run = list;
  });
  AddJsonFlag(
      *AddCommand(*nodes, "list", "As `cohort nodes`", invocation, list),
      invocation);
  auto node = std::make_shared<std::string>();
  CLI::App* get = AddCommand(
      *nodes, "get",
      "Show one node: its state, drain, devices, what it has, its history",
      invocation, [&invocation, node] { return GetNode(invocation, *node); });
  AddNodeArgument(*get, *node);
  AddJsonFlag(*get, invocation);
}

void AddDrain(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<DrainFlags>();
  CLI::App* drain = AddCommand(
      cohort, "drain", "Let a node take no new work until it is undrained",
      invocation,
      [&invocation, flags] { return RunDrain(invocation, *flags); });
  AddNodeArgument(*drain, flags->node);
  drain
      ->add_option("--reason", flags->reason,
                   "Why, for whoever looks at the node later")
      ->option_text("TEXT");
  drain
      ->add_option("--deadline", flags->deadline,
                   "How long what runs there may go on, as 90s or 5m; then it "
                   "is ended, without charge, and starts again elsewhere "
                   "(default: until it ends)")
      ->option_text("T");
  AddJsonFlag(*drain, invocation);
  drain->footer(
      "The node is DRAINING while something is left there, then DRAINED.  It\n"
      "stays so through restarts of the head and of its worker.  Draining it\n"
      "again replaces reason and deadline.");

  auto node = std::make_shared<std::string>();
  CLI::App* undrain = AddCommand(
      cohort, "undrain", "Let a drained node take work again", invocation,
      [&invocation, node] { return RunUndrain(invocation, *node); });
  AddNodeArgument(*undrain, *node);
  AddJsonFlag(*undrain, invocation);
}

}  // namespace cohort::cli
