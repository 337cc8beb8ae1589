#include "client/cli/node_text.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/device_text.h"
#include "client/cli/job_text.h"
#include "client/message_text.h"
#include "common/node_labels.h"
#include "common/printable_text.h"
#include "common/size_text.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

// The state of an attempt from before a restore.
constexpr absl::string_view kOrphan = "ORPHAN";
constexpr size_t kNodeNameBytesMax = 24;
constexpr size_t kInstanceDigits = 8;

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

std::string LabelOf(const Node& node, const char* key) {
  const auto found = node.labels().find(key);
  return found == node.labels().end() ? "" : found->second;
}

// Without those that have a place of their own.
std::string LabelsText(const Node& node) {
  auto labels = node.labels();
  labels.erase(kNodeTypeLabel);
  labels.erase(kInstanceLabel);
  return SortedText(labels, ",");
}

std::string TaintsText(const Node& node) {
  return absl::StrJoin(node.taints(), ",",
                       [](std::string* out, const v1::Taint& taint) {
                         out->append(rpc::FromWire(taint).ToString());
                       });
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

std::string JobOf(const HeldAttempt& held, const TableView& view) {
  if (held.job_id().empty()) return "-";
  return view.wide ? IdText(held.job_id()) : ShortId(held.job_id());
}

std::string HeldTable(const NodeDetails& details, const TableView& view) {
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
    table.Add({JobOf(each, view), each.job_name(),
               each.number() == 0 || is_orphan ? IdText(each.attempt_id())
                                               : absl::StrCat(each.number()),
               each.state(), absl::StrJoin(ranks, ","),
               ResourcesOf(each.resources()).ToString(),
               absl::StrJoin(gpus, ",")});
  }
  std::string text = table.ToString(view.columns);
  if (any_orphan) {
    absl::StrAppend(&text,
                    "An ORPHAN started before the store was restored: `cohort "
                    "adopt ATTEMPT` goes on with\none that the backup has, "
                    "`cohort end ATTEMPT` ends it.\n");
  }
  return text;
}

std::string HistoryTable(const NodeDetails& details, const TableView& view) {
  Table table({"TIME", "EVENT", "BY", "TEXT"});
  for (const Event& event : details.history()) {
    table.Add({TimeText(event.at()), event.kind(),
               event.principal().empty() ? "head" : event.principal(),
               event.text()});
  }
  return table.ToString(view.columns);
}

}  // namespace

std::string NodesTable(const std::vector<Node>& nodes, const TableView& view) {
  // Clusters without an autoscaler have no instances.
  const bool has_instances = std::any_of(
      nodes.begin(), nodes.end(),
      [](const Node& node) { return node.labels().contains(kInstanceLabel); });
  std::vector<std::string> header = {"ID", "NAME", "STATE"};
  if (has_instances) header.insert(header.end(), {"TYPE", "INSTANCE"});
  if (view.wide) header.insert(header.end(), {"HOST", "PID"});
  header.insert(header.end(), {"CPU FREE", "GPU FREE", "MEMORY FREE", "TAINTS",
                               "CUSTOM FREE", "DEVICES", "LABELS"});
  Table table(std::move(header));
  for (const Node& node : nodes) {
    std::vector<std::string> row;
    if (view.wide) {
      row = {IdText(node.node_id()), node.name(), EnumText(node.state()),
             node.host(), absl::StrCat(node.pid())};
    } else {
      row = {ShortId(node.node_id()), Cut(node.name(), kNodeNameBytesMax),
             EnumText(node.state())};
    }
    if (has_instances) {
      const std::string instance = LabelOf(node, kInstanceLabel);
      row.insert(row.begin() + 3,
                 {LabelOf(node, kNodeTypeLabel),
                  view.wide ? instance : instance.substr(0, kInstanceDigits)});
    }
    row.insert(row.end(), {FreeOf(node, kCpu), FreeOf(node, kGpu),
                           FreeOf(node, kMemory), TaintsText(node),
                           Custom(node), DevicesText(node), LabelsText(node)});
    table.Add(std::move(row));
  }
  return table.ToString(view.columns);
}

std::string NodeText(const NodeDetails& details, const TableView& view) {
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
  add("not ready", node.not_ready());
  add("type", LabelOf(node, kNodeTypeLabel));
  add("instance", LabelOf(node, kInstanceLabel));
  add("host", node.host());
  add("pid", absl::StrCat(node.pid()));
  add("build", node.build());
  add("incarnation", absl::StrCat(node.incarnation()));
  add("resources", ResourcesOf(node.resources()).ToString());
  add("not enforced", node.unenforced());
  add("available", ResourcesOf(node.available()).ToString());
  add("taints", TaintsText(node));
  add("labels", LabelsText(node));
  for (const v1::Device& device : node.devices()) {
    add(device.kind(), DeviceLine(device));
  }
  if (!details.held().empty()) {
    absl::StrAppend(&text, "\n", HeldTable(details, view));
  }
  if (!details.history().empty()) {
    absl::StrAppend(&text, "\n", HistoryTable(details, view));
  }
  return text;
}

}  // namespace cohort::cli
