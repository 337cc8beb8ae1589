#include "head/autoscaler/scale_input.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "common/strong_id.h"
#include "head/state/job_spec.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

// Asks of one plan, and of equal ones: so none of one kind keeps others off.
constexpr size_t kAsksMax = 10'000;
constexpr size_t kEqualAsksMax = 1'000;

using Releases = std::map<NodeId, std::vector<ScaleNode::Release>>;

void NoteReleases(const ClusterState& state, const AttemptRecord& attempt,
                  absl::Time now, Releases& releases) {
  const JobRecord* const job = state.jobs().Find(attempt.job);
  if (job == nullptr || attempt.state != v1::ATTEMPT_STATE_RUNNING ||
      job->row.phases().empty()) {
    return;
  }
  const absl::Duration limit = TimeLimitOf(*job->spec);
  const JobPhase& phase = *job->row.phases().rbegin();
  if (limit == absl::InfiniteDuration() ||
      phase.kind() != v1::WAIT_KIND_NOTHING) {
    return;
  }
  const absl::Time end =
      FromMicros(phase.since_us()) + limit - job->ran() + GraceOf(*job->spec);
  for (const Process& process : attempt.processes) {
    if (!HoldsRoom(attempt, process)) continue;
    releases[process.node].push_back(
        {.in = end - now,
         .job = NameOfJob(state, attempt.job),
         .resources = ResourcesPerWorker(*job->spec),
         .devices = process.devices});
  }
}

}  // namespace

std::string NameOfJob(const ClusterState& state, const JobId& id) {
  const JobRecord* const job = state.jobs().Find(id);
  return job == nullptr || job->spec->name().empty() ? id.ToText()
                                                     : job->spec->name();
}

void AddInstances(const ClusterState& state, ScaleInput& input) {
  for (const auto& [id, instance] : state.fleet().instances()) {
    const std::string& name = instance.node_type();
    const auto type = std::find_if(
        input.types.begin(), input.types.end(),
        [&name](const ScaleType& each) { return each.type->name() == name; });
    if (type == input.types.end()) continue;
    if (instance.state() > v1::INSTANCE_STATE_JOINED) ++type->ending;
    if (!IsLaunching(instance)) continue;
    input.nodes.push_back(
        {.node = std::make_shared<const NodeSnapshot>(NodeOfType(
             *type->type, *NodeId::FromBytes(instance.instance_id()))),
         .type = instance.node_type(),
         .is_launching = true,
         .may_go = instance.state() == v1::INSTANCE_STATE_QUEUED});
  }
}

void AddDemand(const ClusterState& state, ScaleInput& input) {
  const auto last = WaitingLine::Place(INT64_MAX, true, UINT64_MAX, INT32_MAX);
  const std::vector<WaitingLine::Waiting> first = state.line().FirstAheadOf(
      last, kEqualAsksMax, [](const GangRequest&) { return true; }, kAsksMax);
  absl::flat_hash_map<const GangRequest*, std::shared_ptr<const GangRequest>>
      copies;
  input.asks.reserve(first.size());
  for (const WaitingLine::Waiting& each : first) {
    std::shared_ptr<const GangRequest>& copy = copies[each.request];
    if (copy == nullptr) {
      copy = std::make_shared<const GangRequest>(*each.request);
    }
    input.asks.push_back({each.job, std::get<3>(each.place), copy});
  }
  for (const auto& [key, capacity] : state.fleet().capacity()) {
    for (const auto& bundle : capacity.bundles()) {
      input.wanted.push_back(
          {TextOf(key),
           rpc::FromWire(bundle.resources()).value_or(ResourceSet()),
           bundle.count()});
    }
  }
}

void AddReleases(const ClusterState& state, absl::Time now, ScaleInput& input) {
  Releases releases;
  std::set<AttemptId> seen;
  for (const ScaleNode& node : input.nodes) {
    for (const AttemptId& id : state.attempts().OnNode(node.node->id)) {
      if (seen.insert(id).second) {
        NoteReleases(state, *state.attempts().Find(id), now, releases);
      }
    }
  }
  for (ScaleNode& node : input.nodes) {
    const auto found = releases.find(node.node->id);
    if (found != releases.end()) node.releases = std::move(found->second);
  }
}

}  // namespace cohort::head
