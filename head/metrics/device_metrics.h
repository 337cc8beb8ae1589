#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "head/metrics/metric_family.h"
#include "head/state/cluster_state.h"

// GPUs as Prometheus is told of them: rows and labels have the names of
// NVIDIA's dcgm-exporter where it has one, so that its dashboards show them.
namespace cohort::head {

// One GPU, of whatever it said last.  A value.
struct DeviceRow {
  int index = 0;  // of the GPU on its node; instances of one have the same
  std::string id;
  std::string bus_id;  // empty: not known
  std::string model;
  std::string node;
  std::string job;  // that holds it, the first by id; empty: none
  int64_t memory_bytes = 0;
  DeviceState state = v1::DEVICE_STATE_HEALTHY;
  v1::DeviceSample sample;
};

// Of a larger cluster only so many are told one by one: a scrape of more would
// take seconds.
inline constexpr size_t kDeviceRowsMax = 4'096;

std::vector<DeviceRow> DeviceRowsOf(const ClusterState& state);
// All of them: "healthy", "suspect", "fenced".
std::map<std::string, int64_t> GpusByState(const ClusterState& state);

std::vector<MetricFamily> DeviceMetrics(const std::vector<DeviceRow>& rows);

}  // namespace cohort::head
