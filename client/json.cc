#include "client/json.h"

#include <initializer_list>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"

#include "client/json_value.h"
#include "common/duration_text.h"

namespace cohort {
namespace {

std::string Text(absl::string_view text) {
  return std::string(text.data(), text.size());
}

// Bytes that are no UTF-8 become U+FFFD rather than an exception.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false,
                   Json::error_handler_t::replace);
}

std::string Pretty(const Json& json) { return Dump(json, 2); }
std::string OnOneLine(const Json& json) { return Dump(json, -1); }

Json TimeJson(const std::optional<absl::Time>& time) {
  return time.has_value() ? Json(TimeText(*time)) : Json(nullptr);
}

// What every node has is always named, and what `all` names.
Json ResourcesObject(const ResourceSet& resources, const ResourceSet& all) {
  Json json = Json::object();
  for (const char* name : {kCpu, kGpu, kMemory}) {
    json[name] = AmountJson(resources.Get(name));
  }
  for (const auto& [name, amount] : all) {
    json[name] = AmountJson(resources.Get(name));
  }
  return json;
}

// A process ended by a signal has no exit code, and the other way round.
void PutExit(const std::optional<ExitStatus>& exit, Json& json) {
  json["exit_code"] = nullptr;
  json["signal"] = nullptr;
  if (!exit.has_value()) return;
  if (exit->signal != 0) {
    json["signal"] = exit->signal;
  } else {
    json["exit_code"] = exit->code;
  }
}

// What a rank wrote as JSON; null when it is none.
Json ParsedJson(const std::string& text) {
  if (text.empty()) return nullptr;
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? Json(nullptr) : parsed;
}

Json CheckpointJson(const std::optional<Checkpoint>& checkpoint) {
  if (!checkpoint.has_value()) return nullptr;
  return {{"path", checkpoint->path},
          {"step", checkpoint->step},
          {"epoch", checkpoint->epoch}};
}

Json RankJson(const Rank& rank) {
  Json json;
  json["rank"] = rank.rank;
  json["local_rank"] = rank.local_rank;
  json["node"] = rank.node.IsNil() ? Json(nullptr) : Json(rank.node.ToHex());
  json["pid"] = OrNull(rank.pid);
  json["state"] = RankStateName(rank.state);
  PutExit(rank.exit, json);
  json["incarnation"] =
      rank.incarnation == 0 ? Json(nullptr) : Json(rank.incarnation);
  json["failures"] = rank.failures;
  json["gpu_ids"] = rank.gpu_ids;
  return json;
}

Json DurationJson(absl::Duration duration) {
  if (duration == absl::InfiniteDuration()) return nullptr;
  return DurationToText(duration);
}

Json JobObject(const Job& job) {
  Json json;
  json["id"] = job.id.ToText();
  json["name"] = job.name;
  json["state"] = JobStateName(job.state);
  json["reason"] = OrNull(job.reason);
  json["attempt"] = job.attempt;
  json["failures"] = job.failures;
  PutExit(job.exit, json);
  json["submitted_at"] = TimeJson(job.submitted_at);
  json["started_at"] = TimeJson(job.started_at);
  json["ended_at"] = TimeJson(job.ended_at);
  json["ran"] = job.ran.has_value() ? DurationJson(*job.ran) : Json(nullptr);
  json["metrics"] = ParsedJson(job.metrics_json);
  json["checkpoint"] = CheckpointJson(job.checkpoint);
  json["namespace"] = job.name_space;
  json["labels"] = job.labels;
  json["priority"] = job.priority;
  json["held"] = job.held;
  json["class"] = job.failure_class.has_value()
                      ? Json(FailureClassName(*job.failure_class))
                      : Json(nullptr);
  return json;
}

Json AfterJson(const std::vector<Dependency>& after) {
  Json json = Json::array();
  for (const Dependency& each : after) {
    json.push_back(
        {{"job", each.job.ToText()},
         {"kind", each.kind == DependencyKind::kAny ? "any" : "ok"}});
  }
  return json;
}

Json ArrayObject(const ArrayStatus& array) {
  Json json;
  json["size"] = array.size;
  json["at_once"] = OrNull(array.at_once);
  json["states"] = Json::object();
  for (const auto& [state, count] : array.counts) {
    json["states"][JobStateName(state)] = count;
  }
  return json;
}

// Null for a job without one; of an attempt that has not come so far only that
// it is wanted.
Json PreflightJson(const Job& job) {
  if (!job.preflight_wanted && !job.preflight.has_value()) return nullptr;
  const Preflight preflight = job.preflight.value_or(Preflight());
  return {{"attempt", preflight.attempt},
          {"verdict", job.preflight.has_value()
                          ? Json(PreflightVerdictName(preflight.verdict))
                          : Json(nullptr)},
          {"summary", OrNull(preflight.summary)},
          {"at", TimeJson(preflight.at)},
          {"report", ParsedJson(preflight.json)}};
}

// What `jobs get` says of a job beyond what lists do.
void PutDetails(const Job& job, Json& json) {
  json["epoch"] = job.epoch;
  json["num_workers"] = job.num_workers;
  json["restart"] = RestartPolicyName(job.restart);
  json["causes"] = job.causes;
  json["stderr_tail"] = OrNull(job.stderr_tail);
  json["failures_by_class"] = Json::object();
  for (const auto& [failure_class, count] : job.failures_by_class) {
    json["failures_by_class"][FailureClassName(failure_class)] = count;
  }
  json["time_limit"] = DurationJson(job.time_limit);
  json["grace"] = DurationJson(job.grace);
  json["retry_delay"] = DurationJson(job.retry_delay);
  json["selectors"] = job.selectors;
  json["tolerations"] = Json::array();
  for (const Toleration& each : job.tolerations) {
    json["tolerations"].push_back(each.ToString());
  }
  json["accelerator_type"] = OrNull(job.accelerator_type);
  json["topology"] = job.topology.level.empty()
                         ? Json(nullptr)
                         : Json({{"level", job.topology.level},
                                 {"required", job.topology.required}});
  json["after"] = AfterJson(job.after);
  json["comment"] = OrNull(job.comment);
  json["begin"] = TimeJson(job.begin);
  json["array_spec"] = OrNull(job.array_spec);
  json["array"] =
      job.array.has_value() ? ArrayObject(*job.array) : Json(nullptr);
  json["preflight"] = PreflightJson(job);
}

Json DrainObject(const std::optional<Drain>& drain) {
  if (!drain.has_value()) return nullptr;
  return {{"reason", OrNull(drain->reason)},
          {"principal", OrNull(drain->principal)},
          {"asked_at", TimeJson(drain->asked_at)},
          {"deadline", TimeJson(drain->deadline)}};
}

template <typename Value>
Json OptionalJson(const std::optional<Value>& value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json SampleObject(const std::optional<DeviceSample>& sample) {
  if (!sample.has_value()) return nullptr;
  return {
      {"utilization_percent", OptionalJson(sample->utilization_percent)},
      {"memory_used_bytes", OptionalJson(sample->memory_used_bytes)},
      {"memory_reserved_bytes", OptionalJson(sample->memory_reserved_bytes)},
      {"power_milliwatts", OptionalJson(sample->power_milliwatts)},
      {"temperature_celsius", OptionalJson(sample->temperature_celsius)},
      {"ecc_volatile", OptionalJson(sample->ecc_volatile)},
      {"ecc_aggregate", OptionalJson(sample->ecc_aggregate)},
      {"remapped_rows", OptionalJson(sample->remapped_rows)},
      {"remap_pending", OptionalJson(sample->remap_pending)},
      {"remap_failed", OptionalJson(sample->remap_failed)},
      {"last_xid",
       sample->last_xid == 0 ? Json(nullptr) : Json(sample->last_xid)}};
}

Json DeviceObject(const Device& device) {
  Json json = {{"id", device.id},
               {"kind", device.kind},
               {"model", device.model},
               {"simulated", device.simulated},
               {"memory_bytes", device.memory_bytes},
               {"state", device.state},
               {"reason", OrNull(device.reason)},
               {"since", TimeJson(device.since)},
               {"pci_bus_id", OrNull(device.pci_bus_id)},
               {"numa_node", OptionalJson(device.numa_node)},
               {"nvlink_peers", device.nvlink_peers},
               {"parent", OrNull(device.parent)},
               {"sample", SampleObject(device.sample)}};
  json["holders"] = Json::array();
  for (const DeviceHolder& holder : device.holders) {
    json["holders"].push_back(
        {{"job",
          holder.job.IsNil() ? Json(nullptr) : Json(holder.job.ToText())},
         {"name", OrNull(holder.job_name)},
         {"attempt", holder.attempt.ToHex()},
         {"share", holder.share.ToDouble()},
         {"ranks", holder.ranks}});
  }
  return json;
}

// A device, and whose it is.
Json GpuObject(const Node& node, const Device& device) {
  Json json = DeviceObject(device);
  json["node"] = node.name;
  json["node_id"] = node.id.ToHex();
  json["node_state"] = node.state;
  return json;
}

Json NodeObject(const Node& node) {
  Json json;
  json["id"] = node.id.ToHex();
  json["name"] = node.name;
  json["state"] = node.state;
  json["incarnation"] = node.incarnation;
  json["pid"] = node.pid == 0 ? Json(nullptr) : Json(node.pid);
  json["resources"] = ResourcesObject(node.resources, node.resources);
  json["available"] = ResourcesObject(node.available, node.resources);
  json["labels"] = node.labels;
  json["devices"] = Json::array();
  for (const Device& device : node.devices) {
    json["devices"].push_back(DeviceObject(device));
  }
  json["since"] = TimeJson(node.since);
  json["taints"] = Json::array();
  for (const Taint& taint : node.taints) {
    json["taints"].push_back({{"key", taint.key}, {"value", taint.value}});
  }
  json["drain"] = DrainObject(node.drain);
  json["unfit"] = OrNull(node.unfit);
  json["host"] = OrNull(node.host);
  json["build"] = OrNull(node.build);
  return json;
}

Json EventObject(const Event& event) {
  Json json;
  json["number"] = event.number;
  json["time"] = TimeJson(event.at);
  json["kind"] = event.kind;
  json["job"] =
      event.job.has_value() ? Json(event.job->ToText()) : Json(nullptr);
  json["attempt"] =
      event.attempt.has_value() ? Json(event.attempt->ToHex()) : Json(nullptr);
  json["node"] =
      event.node.has_value() ? Json(event.node->ToHex()) : Json(nullptr);
  json["node_name"] = OrNull(event.node_name);
  json["principal"] = OrNull(event.principal);
  json["namespace"] = OrNull(event.name_space);
  json["request_id"] = OrNull(event.request_id);
  json["cause"] = event.cause == 0 ? Json(nullptr) : Json(event.cause);
  json["text"] = event.text;
  return json;
}

Json HeldObject(const HeldAttempt& held) {
  Json json;
  json["attempt_id"] = held.attempt.ToHex();
  json["job_id"] = held.job.IsNil() ? Json(nullptr) : Json(held.job.ToText());
  json["job_name"] = OrNull(held.job_name);
  json["attempt"] = held.number;
  json["state"] = held.state;
  json["resources"] = ResourcesObject(held.resources, held.resources);
  json["ranks"] = Json::array();
  for (const Rank& rank : held.ranks) json["ranks"].push_back(RankJson(rank));
  return json;
}

// Every state that there is, those without anybody too, and what a newer head
// adds.
Json Counts(std::initializer_list<const char*> states,
            const std::map<std::string, int64_t>& counts) {
  Json json = Json::object();
  for (const char* state : states) json[state] = 0;
  for (const auto& [state, count] : counts) json[state] = count;
  return json;
}

}  // namespace

std::string JobJson(const Job& job) {
  Json json = JobObject(job);
  json["never_fits"] = job.never_fits;
  PutDetails(job, json);
  json["ranks"] = Json::array();
  for (const Rank& rank : job.ranks) json["ranks"].push_back(RankJson(rank));
  return Pretty(json);
}

std::string JobsJson(const std::vector<Job>& jobs) {
  Json json = Json::array();
  for (const Job& job : jobs) json.push_back(JobObject(job));
  return Pretty(json);
}

std::string NodeJson(const Node& node) { return Pretty(NodeObject(node)); }

std::string NodeDetailsJson(const NodeDetails& details) {
  Json json = NodeObject(details.node);
  json["held"] = Json::array();
  for (const HeldAttempt& held : details.held) {
    json["held"].push_back(HeldObject(held));
  }
  json["history"] = Json::array();
  for (const Event& event : details.history) {
    json["history"].push_back(EventObject(event));
  }
  return Pretty(json);
}

std::string GpuJson(const Node& node, const Device& device) {
  return Pretty(GpuObject(node, device));
}

std::string GpusJson(const std::vector<Node>& nodes) {
  Json json = Json::array();
  for (const Node& node : nodes) {
    for (const Device& device : node.devices) {
      if (device.kind == "gpu") json.push_back(GpuObject(node, device));
    }
  }
  return Pretty(json);
}

std::string NodesJson(const std::vector<Node>& nodes) {
  Json json = Json::array();
  for (const Node& node : nodes) json.push_back(NodeObject(node));
  return Pretty(json);
}

std::string ResourcesJson(const ClusterResources& resources) {
  return Pretty(
      {{"total", ResourcesObject(resources.total, resources.total)},
       {"available", ResourcesObject(resources.available, resources.total)}});
}

std::string StatusJson(const ClusterStatus& status) {
  Json json;
  json["cluster_id"] = status.cluster_id.ToHex();
  json["address"] = status.address;
  json["http_address"] = OrNull(status.http_address);
  json["head_pid"] = status.head_pid;
  json["term"] = status.term;
  json["nodes"] = Counts(
      {"ALIVE", "UNFIT", "ABSENT", "SUSPECT", "DRAINING", "DRAINED", "DEAD"},
      status.nodes_by_state);
  json["jobs"] = Counts({"PENDING", "STARTING", "RUNNING", "STOPPING",
                         "SUCCEEDED", "FAILED", "STOPPED"},
                        status.jobs_by_state);
  json["read_only"] = status.read_only;
  json["read_only_why"] = OrNull(status.read_only_why);
  json["settling"] = status.settling;
  json["later_store"] = nullptr;
  if (!status.later_store_nodes.empty()) {
    json["later_store"] = {{"term", status.later_store_term},
                           {"nodes", status.later_store_nodes},
                           {"why", Text(status.later_store_why)}};
  }
  json["orphans"] = Json::array();
  for (const OrphanAttempt& each : status.orphans) {
    Json one;
    one["attempt"] = each.attempt.ToHex();
    one["job"] = each.job.ToText();
    one["nodes"] = each.nodes;
    one["state"] = each.state;
    one["since"] =
        each.since.has_value() ? Json(TimeText(*each.since)) : Json(nullptr);
    json["orphans"].push_back(std::move(one));
  }
  json["orphan_count"] = status.orphan_count;
  return Pretty(json);
}

std::string BackupJson(const std::string& directory,
                       const BackupSummary& summary) {
  Json json;
  json["directory"] = directory;
  json["files"] = summary.files;
  json["size_bytes"] = summary.size_bytes;
  json["missing_packages"] = summary.missing_packages;
  return Pretty(json);
}

std::string VersionJson(const BuildInfo& build) {
  return Pretty({{"version", Text(build.version)},
                 {"commit", Text(build.commit)},
                 {"build", Text(build.build)}});
}

std::string EventJson(const Event& event) {
  return OnOneLine(EventObject(event));
}

std::string IdJson(const JobId& job) {
  Json json;
  json["id"] = job.ToText();
  return OnOneLine(json);
}

std::string AdoptionJson(const Adoption& adoption) {
  Json json;
  json["id"] = adoption.job.ToText();
  json["lost_nodes"] = adoption.lost_nodes;
  return OnOneLine(json);
}

std::string ErrorJson(absl::string_view code, absl::string_view reason,
                      absl::string_view message) {
  return OnOneLine({{"code", Text(code)},
                    {"reason", Text(reason)},
                    {"message", Text(message)}});
}

std::string LogLineJson(int attempt, int rank, absl::string_view stream,
                        absl::string_view line) {
  return OnOneLine({{"attempt", attempt},
                    {"rank", rank},
                    {"stream", Text(stream)},
                    {"line", Text(line)}});
}

std::string TimeText(absl::Time time) {
  const absl::Time cut = absl::FromUnixMillis(absl::ToUnixMillis(time));
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", cut, absl::UTCTimeZone());
}

}  // namespace cohort
