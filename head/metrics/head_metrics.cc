#include "head/metrics/head_metrics.h"

#include <utility>

#include "absl/strings/string_view.h"

namespace cohort::head {
namespace {

// Nodes may make up names of resources: a scraper sees this many of them.
constexpr size_t kResourceNamesMax = 64;

std::string Text(absl::string_view text) {
  return std::string(text.data(), text.size());
}

template <typename Count>
MetricFamily ByLabel(MetricFamily family, const char* label,
                     const std::map<std::string, Count>& counts) {
  for (const auto& [value, count] : counts) {
    family.Add({{label, value}}, static_cast<double>(count));
  }
  return family;
}

MetricFamily Amounts(MetricFamily family, const ResourceSet& resources,
                     const ResourceSet& all) {
  for (const char* name : {kCpu, kGpu, kMemory}) {
    family.Add({{"resource", name}}, resources.Get(name).ToDouble());
  }
  for (const auto& [name, amount] : all) {
    if (name == kCpu || name == kGpu || name == kMemory) continue;
    if (family.samples.size() >= kResourceNamesMax) break;
    family.Add({{"resource", name}}, resources.Get(name).ToDouble());
  }
  return family;
}

// What is remembered of what is over, against its caps (HI-1).
std::vector<MetricFamily> HistoryMetrics(
    const std::vector<HistoryLevel>& history) {
  MetricFamily entries = Gauge("cohort_history_entries",
                               "What is remembered of what is over, by kind.");
  MetricFamily bytes =
      Gauge("cohort_history_bytes",
            "Its size: of its rows, of packages that of their files.");
  MetricFamily entries_limit = Gauge("cohort_history_entries_limit",
                                     "Beyond it the oldest are forgotten.");
  MetricFamily bytes_limit = Gauge("cohort_history_bytes_limit",
                                   "Beyond it the oldest are forgotten.");
  MetricFamily age_limit =
      Gauge("cohort_history_age_limit_seconds", "What is older is forgotten.");
  MetricFamily trimmed =
      Counter("cohort_history_trimmed_total",
              "What was forgotten since the state was loaded.");
  for (const HistoryLevel& level : history) {
    const MetricLabels kind = {{"kind", level.kind}};
    entries.Add(kind, static_cast<double>(level.count));
    bytes.Add(kind, static_cast<double>(level.bytes));
    entries_limit.Add(kind, static_cast<double>(level.caps.count_max));
    bytes_limit.Add(kind, static_cast<double>(level.caps.bytes_max));
    age_limit.Add(kind, absl::ToDoubleSeconds(level.caps.age_max));
    trimmed.Add(kind, static_cast<double>(level.trimmed));
  }
  return {std::move(entries),       std::move(bytes),
          std::move(entries_limit), std::move(bytes_limit),
          std::move(age_limit),     std::move(trimmed)};
}

std::vector<JobNumber> JobNumbersOf(const ClusterState& state) {
  std::vector<JobNumber> numbers;
  for (const auto& [id, reported] : state.metrics().latest()) {
    const JobRecord* const job = state.jobs().Find(id);
    if (job == nullptr || job->row.state() != v1::JOB_STATE_RUNNING) continue;
    for (const auto& [name, value] : reported) {
      if (numbers.size() == kJobNumbersMax) return numbers;
      numbers.push_back({.job = id.ToText(),
                         .job_name = job->spec->name(),
                         .metric = name,
                         .value = value});
    }
  }
  return numbers;
}

}  // namespace

HeadSample SampleOf(const ClusterState& state) {
  HeadSample sample;
  sample.term = state.cluster().term();
  sample.nodes_by_state = state.nodes().CountsByState();
  sample.jobs_by_state = state.jobs().CountsByState();
  sample.total = state.nodes().Total();
  sample.available = state.nodes().Available();
  sample.leases = state.nodes().HoldCount();
  sample.counters = state.counters();
  sample.waiting_by_reason = state.WaitingByReason();
  sample.history = state.HistoryLevels();
  sample.gpus_by_state = GpusByState(state);
  sample.devices = DeviceRowsOf(state);
  sample.job_numbers = JobNumbersOf(state);
  for (const auto& [id, instance] : state.fleet().instances()) {
    ++sample.instances_by_state[LowerEnumText(instance.state())];
  }
  return sample;
}

std::vector<MetricFamily> HeadMetrics(const HeadSample& sample) {
  std::vector<MetricFamily> families;
  const auto add = [&families](MetricFamily family) {
    families.push_back(std::move(family));
  };
  add(Gauge("cohort_head_term", "Number of this life of the cluster's head.",
            static_cast<double>(sample.term)));
  add(Gauge("cohort_head_read_only",
            "1 while the store refuses writes, else 0.",
            sample.read_only ? 1 : 0));
  add(ByLabel(Gauge("cohort_nodes", "Nodes by state."), "state",
              sample.nodes_by_state));
  add(ByLabel(
      Gauge("cohort_instances", "Nodes that a provider launches, by state."),
      "state", sample.instances_by_state));
  add(Gauge("cohort_node_streams", "Workers that are connected.",
            static_cast<double>(sample.node_streams)));
  add(ByLabel(Gauge("cohort_jobs", "Jobs that are remembered, by state."),
              "state", sample.jobs_by_state));
  add(ByLabel(
      Gauge("cohort_jobs_waiting",
            "PENDING jobs, and slots of running ones, by what keeps them."),
      "reason", sample.waiting_by_reason));
  add(Counter("cohort_placements_total", "Gangs that were placed.",
              static_cast<double>(sample.counters.placements)));
  add(ByLabel(Counter("cohort_attempts_ended_total",
                      "Attempts that ended, by failure class or how else."),
              "class", sample.counters.attempts_ended));
  add(Gauge("cohort_leases", "Parts of attempts that hold resources on a node.",
            static_cast<double>(sample.leases)));
  add(Amounts(Gauge("cohort_resource_capacity",
                    "What the nodes that are alive have; memory in bytes."),
              sample.total, sample.total));
  add(Amounts(Gauge("cohort_resource_available",
                    "What of it is free; memory in bytes."),
              sample.available, sample.total));
  add(ByLabel(Counter("cohort_events_total",
                      "Events since the state was loaded, by kind."),
              "kind", sample.counters.events_by_kind));
  add(ByLabel(
      Gauge("cohort_gpus", "GPUs of nodes that are not dead, by their state."),
      "state", sample.gpus_by_state));
  for (MetricFamily& family : DeviceMetrics(sample.devices)) {
    add(std::move(family));
  }
  MetricFamily reported = Gauge(
      "cohort_job_metric", "Numbers that rank 0 of a running job reported.");
  for (const JobNumber& each : sample.job_numbers) {
    reported.Add({{"job_id", each.job},
                  {"job_name", each.job_name},
                  {"metric", each.metric}},
                 each.value);
  }
  add(std::move(reported));
  for (MetricFamily& family : HistoryMetrics(sample.history)) {
    add(std::move(family));
  }
  add(Counter("cohort_commit_transitions_total",
              "Changes of the state that were made durable.",
              static_cast<double>(sample.transitions)));
  add(Gauge("cohort_commit_pending_transitions",
            "Changes that wait to become durable.",
            static_cast<double>(sample.pending_transitions)));
  add(Gauge("cohort_commit_pending_bytes", "The size of their rows.",
            static_cast<double>(sample.pending_bytes)));
  return families;
}

std::vector<MetricFamily> BuildMetrics(const BuildInfo& build) {
  MetricFamily family = Gauge("cohort_build_info", "1; what this head is.");
  family.Add({{"version", Text(build.version)},
              {"commit", Text(build.commit)},
              {"build", Text(build.build)}},
             1);
  return {std::move(family)};
}

}  // namespace cohort::head
