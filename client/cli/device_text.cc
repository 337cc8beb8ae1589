#include "client/cli/device_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "client/message_text.h"
#include "common/printable_text.h"
#include "common/resources.h"
#include "common/size_text.h"
#include "rpc/enum_text.h"

namespace cohort::cli {
namespace {

constexpr char kUnknown[] = "-";

std::string StateText(const v1::Device& device) {
  const std::string state = EnumText(device.state());
  if (device.state() == v1::DEVICE_STATE_HEALTHY || !device.has_since()) {
    return state;
  }
  return absl::StrCat(state, " since ", TimeText(device.since()));
}

// "JOB (name) ranks 0,1", with the share where it is not the whole.
std::string HolderText(const v1::DeviceHolder& holder) {
  std::string text = holder.job_id().empty()
                         ? absl::StrCat("attempt ", IdText(holder.attempt_id()))
                         : IdText(holder.job_id());
  if (!holder.job_name().empty()) {
    absl::StrAppend(&text, " (", holder.job_name(), ")");
  }
  if (!holder.ranks().empty()) {
    absl::StrAppend(&text, holder.ranks_size() == 1 ? " rank " : " ranks ",
                    absl::StrJoin(holder.ranks(), ","));
  }
  const Amount share = Amount::FromTenThousandths(holder.ten_thousandths());
  if (share < Amount::FromUnits(1)) {
    absl::StrAppend(&text, ", ", share.ToString(), " of it");
  }
  return text;
}

std::string HoldersText(const v1::Device& device) {
  return absl::StrJoin(device.holders(), "; ",
                       [](std::string* out, const v1::DeviceHolder& holder) {
                         out->append(HolderText(holder));
                       });
}

std::string MemoryText(const v1::Device& device) {
  return absl::StrCat(device.sample().has_memory_used_bytes()
                          ? SizeToText(device.sample().memory_used_bytes())
                          : kUnknown,
                      "/", SizeToText(device.memory_bytes()));
}

std::string NumberText(bool is_known, int64_t number, const char* unit) {
  return is_known ? absl::StrCat(number, unit) : kUnknown;
}

std::string PowerText(const v1::DeviceSample& sample) {
  if (!sample.has_power_milliwatts()) return kUnknown;
  return absl::StrFormat("%.0fW",
                         static_cast<double>(sample.power_milliwatts()) / 1000);
}

std::string UtilizationText(const v1::DeviceSample& sample) {
  return NumberText(sample.has_utilization_percent(),
                    sample.utilization_percent(), "%");
}

std::string TemperatureText(const v1::DeviceSample& sample) {
  return NumberText(sample.has_temperature_celsius(),
                    sample.temperature_celsius(), "C");
}

// A GPU's last samples mean little when its node is silent.
std::string NodeText(const Node& node) {
  return node.state() == v1::NODE_STATE_ALIVE
             ? node.name()
             : absl::StrCat(node.name(), " (", EnumText(node.state()), ")");
}

std::string ModelText(const v1::Device& device) {
  return absl::StrCat(device.model(), device.simulated() ? " (simulated)" : "");
}

}  // namespace

std::string DeviceLine(const v1::Device& device) {
  std::string text = absl::StrCat(device.id(), ", ", ModelText(device), ", ",
                                  StateText(device));
  if (!device.reason().empty()) absl::StrAppend(&text, ": ", device.reason());
  const std::string holders = HoldersText(device);
  if (!holders.empty()) absl::StrAppend(&text, "; held by ", holders);
  return text;
}

std::string GpusTable(const std::vector<Node>& nodes, const TableView& view) {
  Table table({"ID", "NODE", "MODEL", "STATE", "UTIL", "MEMORY USED", "POWER",
               "TEMP", "HELD BY", "REASON"});
  for (const Node& node : nodes) {
    for (const v1::Device& device : node.devices()) {
      if (device.kind() != "gpu") continue;
      const v1::DeviceSample& sample = device.sample();
      table.Add({device.id(), NodeText(node), ModelText(device),
                 EnumText(device.state()), UtilizationText(sample),
                 MemoryText(device), PowerText(sample), TemperatureText(sample),
                 device.holders().empty() ? kUnknown : HoldersText(device),
                 device.reason().empty() ? kUnknown : device.reason()});
    }
  }
  return table.ToString(view.columns);
}

std::string GpuText(const Node& node, int index) {
  const v1::Device& device = node.devices(index);
  std::string text;
  const auto add = [&text](absl::string_view key, absl::string_view value) {
    const std::string line = OneLine(value);
    if (line.empty()) return;
    absl::StrAppend(&text, key, ":", std::string(13 - key.size(), ' '), line,
                    "\n");
  };
  add("id", device.id());
  add("node", absl::StrCat(node.name(), " (", IdText(node.node_id()), "), ",
                           EnumText(node.state())));
  add("model", ModelText(device));
  add("state", StateText(device));
  add("reason", device.reason());
  add("PCI address", device.pci_bus_id());
  if (device.has_numa_node()) {
    add("NUMA node", absl::StrCat(device.numa_node()));
  }
  add("NVLink to", absl::StrJoin(device.nvlink_peers(), ", "));
  add("MIG of", device.parent());
  add("memory used", MemoryText(device));
  if (device.has_sample()) {
    const v1::DeviceSample& sample = device.sample();
    add("utilization", UtilizationText(sample));
    add("power", PowerText(sample));
    add("temperature", TemperatureText(sample));
    add("ECC errors",
        absl::StrCat(
            NumberText(sample.has_ecc_volatile(), sample.ecc_volatile(), ""),
            " uncorrectable since its driver was loaded, ",
            NumberText(sample.has_ecc_aggregate(), sample.ecc_aggregate(), ""),
            " in its life"));
    add("row remaps",
        absl::StrCat(
            NumberText(sample.has_remapped_rows(), sample.remapped_rows(), ""),
            sample.remap_pending() ? ", one waits" : "",
            sample.remap_failed() ? ", one failed" : ""));
    if (sample.last_xid() != 0) {
      add("last Xid", absl::StrCat(sample.last_xid()));
    }
  }
  for (const v1::DeviceHolder& holder : device.holders()) {
    add("held by", HolderText(holder));
  }
  return text;
}

}  // namespace cohort::cli
