#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/build_info.h"
#include "common/resources.h"
#include "head/metrics/device_metrics.h"
#include "head/metrics/metric_family.h"
#include "head/state/cluster_state.h"

namespace cohort::head {

// A number of the last report of a job that runs.  A value.
struct JobNumber {
  std::string job;
  std::string job_name;
  std::string metric;
  double value = 0;
};

// Numbers beyond it are left out: those of the jobs with the highest ids.
inline constexpr size_t kJobNumbersMax = 4'096;

// What a head's metrics are made of, taken on its strand.  A value.
struct HeadSample {
  uint64_t term = 0;
  bool read_only = false;
  std::map<std::string, int64_t> nodes_by_state;
  std::map<std::string, int64_t> jobs_by_state;
  ResourceSet total;
  ResourceSet available;
  int64_t leases = 0;
  ClusterState::Counters counters;
  std::map<std::string, int64_t> waiting_by_reason;
  std::vector<HistoryLevel> history;
  uint64_t transitions = 0;
  size_t pending_transitions = 0;
  size_t pending_bytes = 0;
  size_t node_streams = 0;
  std::map<std::string, int64_t> gpus_by_state;
  std::vector<DeviceRow> devices;
  std::vector<JobNumber> job_numbers;
  std::map<std::string, int64_t> instances_by_state;
};

// What of it the cluster's state knows.
HeadSample SampleOf(const ClusterState& state);

std::vector<MetricFamily> HeadMetrics(const HeadSample& sample);
std::vector<MetricFamily> BuildMetrics(const BuildInfo& build);

}  // namespace cohort::head
