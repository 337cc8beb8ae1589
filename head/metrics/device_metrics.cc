#include "head/metrics/device_metrics.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace cohort::head {
namespace {

constexpr double kMebibyte = 1 << 20;

const char* StateLabel(DeviceState state) {
  switch (state) {
    case v1::DEVICE_STATE_HEALTHY:
      return "healthy";
    case v1::DEVICE_STATE_SUSPECT:
      return "suspect";
    case v1::DEVICE_STATE_FENCED:
      return "fenced";
    default:
      return "unknown";
  }
}

std::string JobOf(const ClusterState& state, const NodeId& node,
                  const std::string& device) {
  for (const auto& [id, amount] : state.nodes().HoldersOf(node, device)) {
    const AttemptRecord* const attempt = state.attempts().Find(id);
    if (attempt != nullptr) return attempt->job.ToText();
  }
  return "";
}

template <typename Visit>
void ForEachGpu(const ClusterState& state, Visit visit) {
  for (const auto& [id, node] : state.nodes().records()) {
    if (node.state == v1::NODE_STATE_DEAD) continue;
    int index = -1;
    std::string parent;
    for (const Device& device : node.node.devices()) {
      if (device.kind() != "gpu") continue;
      if (device.parent().empty() || device.parent() != parent) ++index;
      parent = device.parent();
      visit(node, device, index);
    }
  }
}

// As dcgm-exporter writes them; `job` is what Prometheus calls the scrape
// itself.
MetricLabels LabelsOf(const DeviceRow& row) {
  MetricLabels labels = {{"gpu", absl::StrCat(row.index)}, {"UUID", row.id}};
  if (!row.bus_id.empty()) {
    labels.emplace_back("pci_bus_id", absl::AsciiStrToUpper(row.bus_id));
  }
  labels.emplace_back("device", absl::StrCat("nvidia", row.index));
  labels.emplace_back("modelName", row.model);
  labels.emplace_back("Hostname", row.node);
  if (!row.job.empty()) labels.emplace_back("job_id", row.job);
  return labels;
}

}  // namespace

std::vector<DeviceRow> DeviceRowsOf(const ClusterState& state) {
  std::vector<DeviceRow> rows;
  ForEachGpu(
      state, [&](const NodeRecord& node, const Device& device, int index) {
        if (rows.size() == kDeviceRowsMax) return;
        const auto* const sample = state.nodes().SampleOf(node.id, device.id());
        rows.push_back(
            {.index = index,
             .id = device.id(),
             .bus_id = device.pci_bus_id(),
             .model = device.model(),
             .node = node.node.name(),
             .job = JobOf(state, node.id, device.id()),
             .memory_bytes = device.memory_bytes(),
             .state = device.state(),
             .sample = sample == nullptr ? v1::DeviceSample() : *sample});
      });
  return rows;
}

std::map<std::string, int64_t> GpusByState(const ClusterState& state) {
  std::map<std::string, int64_t> counts = {
      {"healthy", 0}, {"suspect", 0}, {"fenced", 0}};
  ForEachGpu(state, [&](const NodeRecord&, const Device& device, int) {
    ++counts[StateLabel(device.state())];
  });
  return counts;
}

std::vector<MetricFamily> DeviceMetrics(const std::vector<DeviceRow>& rows) {
  MetricFamily states = Gauge("cohort_gpu_state",
                              "1 with the state of a GPU that a node offers.");
  MetricFamily utilization =
      Gauge("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).");
  MetricFamily used =
      Gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).");
  MetricFamily reserved =
      Gauge("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).");
  MetricFamily free =
      Gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).");
  MetricFamily power = Gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).");
  MetricFamily temperature =
      Gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).");
  MetricFamily xid = Gauge("DCGM_FI_DEV_XID_ERRORS",
                           "Value of the last XID error encountered.");
  MetricFamily ecc_volatile =
      Gauge("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
            "Uncorrectable ECC errors since the driver was loaded.");
  MetricFamily ecc_aggregate =
      Gauge("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
            "Uncorrectable ECC errors in the life of the GPU.");
  MetricFamily remapped =
      Gauge("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
            "Number of remapped rows for uncorrectable errors.");
  MetricFamily pending = Gauge("DCGM_FI_DEV_ROW_REMAP_PENDING",
                               "Whether remapping of rows waits for a reset.");
  MetricFamily failed = Gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE",
                              "Whether remapping of rows has failed.");
  for (const DeviceRow& row : rows) {
    const MetricLabels labels = LabelsOf(row);
    const auto add = [&labels](MetricFamily& family, bool is_said, auto value,
                               double unit = 1) {
      if (is_said) family.Add(labels, static_cast<double>(value) / unit);
    };
    MetricLabels with_state = labels;
    with_state.emplace_back("state", StateLabel(row.state));
    states.Add(std::move(with_state), 1);
    const v1::DeviceSample& sample = row.sample;
    add(utilization, sample.has_utilization_percent(),
        sample.utilization_percent());
    add(used, sample.has_memory_used_bytes(), sample.memory_used_bytes(),
        kMebibyte);
    add(reserved, sample.has_memory_reserved_bytes(),
        sample.memory_reserved_bytes(), kMebibyte);
    if (sample.has_memory_used_bytes()) {
      const int64_t taken =
          sample.memory_used_bytes() + sample.memory_reserved_bytes();
      free.Add(labels, (static_cast<double>(row.memory_bytes) -
                        static_cast<double>(taken)) /
                           kMebibyte);
    }
    add(power, sample.has_power_milliwatts(), sample.power_milliwatts(), 1'000);
    add(temperature, sample.has_temperature_celsius(),
        sample.temperature_celsius());
    xid.Add(labels, static_cast<double>(sample.last_xid()));
    add(ecc_volatile, sample.has_ecc_volatile(), sample.ecc_volatile());
    add(ecc_aggregate, sample.has_ecc_aggregate(), sample.ecc_aggregate());
    add(remapped, sample.has_remapped_rows(), sample.remapped_rows());
    add(pending, sample.has_remap_pending(), sample.remap_pending());
    add(failed, sample.has_remap_failed(), sample.remap_failed());
  }
  std::vector<MetricFamily> families;
  for (MetricFamily* family :
       {&states, &utilization, &used, &reserved, &free, &power, &temperature,
        &xid, &ecc_volatile, &ecc_aggregate, &remapped, &pending, &failed}) {
    families.push_back(std::move(*family));
  }
  return families;
}

}  // namespace cohort::head
