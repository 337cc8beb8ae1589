#include "client/cli/device_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "client/cli/table.h"
#include "client/json.h"
#include "common/printable_text.h"
#include "common/size_text.h"

namespace cohort::cli {
namespace {

constexpr char kUnknown[] = "-";

std::string StateText(const Device& device) {
  if (device.state == "HEALTHY" || !device.since.has_value()) {
    return device.state;
  }
  return absl::StrCat(device.state, " since ", TimeText(*device.since));
}

// "JOB (name) ranks 0,1", with the share where it is not the whole.
std::string HolderText(const DeviceHolder& holder) {
  std::string text = holder.job.IsNil()
                         ? absl::StrCat("attempt ", holder.attempt.ToHex())
                         : holder.job.ToText();
  if (!holder.job_name.empty()) {
    absl::StrAppend(&text, " (", holder.job_name, ")");
  }
  if (!holder.ranks.empty()) {
    absl::StrAppend(&text, holder.ranks.size() == 1 ? " rank " : " ranks ",
                    absl::StrJoin(holder.ranks, ","));
  }
  if (holder.share < Amount::FromUnits(1)) {
    absl::StrAppend(&text, ", ", holder.share.ToString(), " of it");
  }
  return text;
}

std::string HoldersText(const Device& device) {
  return absl::StrJoin(device.holders, "; ",
                       [](std::string* out, const DeviceHolder& holder) {
                         out->append(HolderText(holder));
                       });
}

std::string MemoryText(const Device& device) {
  const std::string all = SizeToText(device.memory_bytes);
  if (!device.sample.has_value() ||
      !device.sample->memory_used_bytes.has_value()) {
    return absl::StrCat(kUnknown, "/", all);
  }
  return absl::StrCat(SizeToText(*device.sample->memory_used_bytes), "/", all);
}

std::string NumberText(const std::optional<int64_t>& number, const char* unit) {
  return number.has_value() ? absl::StrCat(*number, unit) : kUnknown;
}

std::string PowerText(const std::optional<int64_t>& milliwatts) {
  if (!milliwatts.has_value()) return kUnknown;
  return absl::StrFormat("%.0fW", static_cast<double>(*milliwatts) / 1000);
}

// What a GPU said last of itself means little where its node is not heard.
std::string NodeText(const Node& node) {
  return node.state == "ALIVE" ? node.name
                               : absl::StrCat(node.name, " (", node.state, ")");
}

std::string ModelText(const Device& device) {
  return absl::StrCat(device.model, device.simulated ? " (simulated)" : "");
}

}  // namespace

std::string DeviceLine(const Device& device) {
  std::string text = absl::StrCat(device.id, ", ", ModelText(device));
  absl::StrAppend(&text, ", ", StateText(device));
  if (!device.reason.empty()) absl::StrAppend(&text, ": ", device.reason);
  const std::string holders = HoldersText(device);
  if (!holders.empty()) absl::StrAppend(&text, "; held by ", holders);
  return text;
}

std::string GpusTable(const std::vector<Node>& nodes) {
  Table table({"ID", "NODE", "MODEL", "STATE", "UTIL", "MEMORY USED", "POWER",
               "TEMP", "HELD BY", "REASON"});
  for (const Node& node : nodes) {
    for (const Device& device : node.devices) {
      if (device.kind != "gpu") continue;
      const DeviceSample sample = device.sample.value_or(DeviceSample());
      table.Add({device.id, NodeText(node), ModelText(device), device.state,
                 NumberText(sample.utilization_percent, "%"),
                 MemoryText(device), PowerText(sample.power_milliwatts),
                 NumberText(sample.temperature_celsius, "C"),
                 device.holders.empty() ? kUnknown : HoldersText(device),
                 device.reason.empty() ? kUnknown : device.reason});
    }
  }
  return table.ToString();
}

std::string GpuText(const Node& node, const Device& device) {
  std::string text;
  const auto add = [&text](absl::string_view key, absl::string_view value) {
    const std::string line = OneLine(value);
    if (line.empty()) return;
    absl::StrAppend(&text, key, ":", std::string(13 - key.size(), ' '), line,
                    "\n");
  };
  add("id", device.id);
  add("node",
      absl::StrCat(node.name, " (", node.id.ToHex(), "), ", node.state));
  add("model", ModelText(device));
  add("state", StateText(device));
  add("reason", device.reason);
  add("PCI address", device.pci_bus_id);
  if (device.numa_node.has_value()) {
    add("NUMA node", absl::StrCat(*device.numa_node));
  }
  add("NVLink to", absl::StrJoin(device.nvlink_peers, ", "));
  add("MIG of", device.parent);
  add("memory used", MemoryText(device));
  if (device.sample.has_value()) {
    const DeviceSample& sample = *device.sample;
    add("utilization", NumberText(sample.utilization_percent, "%"));
    add("power", PowerText(sample.power_milliwatts));
    add("temperature", NumberText(sample.temperature_celsius, "C"));
    add("ECC errors",
        absl::StrCat(NumberText(sample.ecc_volatile, ""),
                     " uncorrectable since its driver was loaded, ",
                     NumberText(sample.ecc_aggregate, ""), " in its life"));
    add("row remaps",
        absl::StrCat(
            NumberText(sample.remapped_rows, ""),
            sample.remap_pending.value_or(false) ? ", one waits" : "",
            sample.remap_failed.value_or(false) ? ", one failed" : ""));
    if (sample.last_xid != 0) add("last Xid", absl::StrCat(sample.last_xid));
  }
  for (const DeviceHolder& holder : device.holders) {
    add("held by", HolderText(holder));
  }
  return text;
}

}  // namespace cohort::cli
