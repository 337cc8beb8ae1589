#include "head/head_metrics.h"

#include <utility>

#include "absl/strings/string_view.h"

#include "head/cluster_wire.h"

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

}  // namespace

HeadSample SampleOf(const ClusterState& state) {
  HeadSample sample;
  sample.term = state.cluster().term;
  sample.nodes_by_state = NodesByState(state);
  sample.jobs_by_state = JobsByState(state);
  sample.total = state.nodes().Total();
  sample.available = state.nodes().Available();
  sample.leases = state.nodes().HoldCount();
  sample.counters = state.counters();
  sample.waiting_by_reason = state.WaitingByReason();
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
  add(Gauge("cohort_node_streams", "Workers that are connected.",
            static_cast<double>(sample.node_streams)));
  add(ByLabel(Gauge("cohort_jobs", "Jobs that are remembered, by state."),
              "state", sample.jobs_by_state));
  add(ByLabel(
      Gauge("cohort_jobs_waiting", "PENDING jobs by what they wait for."),
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
