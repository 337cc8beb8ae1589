#include "head/explain/line_trial.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "common/check.h"
#include "head/placement/placement.h"

namespace cohort::head {
namespace {

// Jobs of one request that are looked at, and of all.
constexpr size_t kOfEachRequest = 32;
constexpr size_t kContendersMax = 256;

void Take(const PlannedPart& part, NodeTrial& nodes) {
  NodeSnapshot node = *nodes.nodes().Find(part.node);
  COHORT_CHECK(node.available.Take(part.resources)) << part.node;
  for (DeviceShare& device : node.devices) {
    const auto taken = part.devices.find(device.id);
    if (taken != part.devices.end()) device.free -= taken->second;
  }
  nodes.Put(std::move(node));
}

}  // namespace

LineTrial::LineTrial(const ClusterState& state, const JobRecord& job)
    : state_(state), job_(job) {
  const std::vector<WaitingLine::Waiting> ahead = state.line().FirstAheadOf(
      job, kOfEachRequest, [](const GangRequest&) { return true; });
  std::map<const GangRequest*, size_t> of_each;
  for (const WaitingLine::Waiting& each : ahead) {
    ahead_.push_back({.place = each.place,
                      .request = *each.request,
                      .is_last = ++of_each[each.request] == kOfEachRequest});
  }
}

NodeTrial& LineTrial::Nodes() {
  if (!nodes_.has_value()) nodes_.emplace(state_.nodes().index()).CopyAll();
  return *nodes_;
}

std::vector<NodeSnapshot> LineTrial::NodesWithout(const JobId& job) const {
  std::vector<NodeSnapshot> nodes;
  const AttemptRecord* const attempt = state_.attempts().LastOf(job);
  if (attempt == nullptr) return nodes;
  for (const AttemptPart& part : attempt->parts) {
    const NodeSnapshot* const node = state_.nodes().index().Find(part.node);
    if (IsOver(part) || node == nullptr || node->gate != NodeGate::kOpen) {
      continue;
    }
    nodes.push_back(state_.nodes().Imagine(part.node, {attempt->id}));
  }
  return nodes;
}

void LineTrial::AddReleased(const std::set<JobId>& ended,
                            std::vector<Contender>& contenders) const {
  std::vector<JobId> released;
  for (const auto& [id, by] : state_.gates().after().KeptOnlyBy(ended)) {
    for (const JobId& job : state_.jobs().Named(id)) {
      if (released.size() > kContendersMax) break;
      released.push_back(job);
    }
  }
  for (const JobId& job : ended) {
    if (!job.IsElement()) continue;
    const std::vector<JobId> next =
        state_.gates().array().NextOf(job.array(), kOfEachRequest);
    released.insert(released.end(), next.begin(), next.end());
  }
  for (const JobId& id : released) {
    const JobRecord& job = *state_.jobs().Find(id);
    if (job.state != v1::JOB_STATE_PENDING || id == job_.id) continue;
    if (job.held || state_.gates().start_times().WaitOf(job)) continue;
    contenders.push_back(
        {.place = WaitingLine::PlaceOf(job), .request = RequestOf(*job.spec)});
  }
}

std::optional<bool> LineTrial::Starts(const std::vector<NodeSnapshot>& changed,
                                      const std::set<JobId>& ended) {
  std::vector<Contender> contenders = ahead_;
  AddReleased(ended, contenders);
  const WaitingLine::Place own = WaitingLine::PlaceOf(job_);
  std::erase_if(contenders,
                [&own](const Contender& each) { return !(each.place < own); });
  if (contenders.size() > kContendersMax) return std::nullopt;
  std::sort(
      contenders.begin(), contenders.end(),
      [](const Contender& a, const Contender& b) { return a.place < b.place; });
  Nodes().Put(changed);
  const std::optional<bool> starts = Walk(contenders);
  Nodes().Undo();
  return starts;
}

std::optional<bool> LineTrial::HasNoRival(
    const std::vector<NodeSnapshot>& changed) {
  const std::vector<const GangRequest*> requests =
      state_.line().Requests(kContendersMax);
  if (requests.size() == kContendersMax) return std::nullopt;
  // One that asks for the same and is behind starts no sooner.
  const GangRequest own = RequestOf(*job_.spec);
  const bool is_first =
      state_.line().Contains(job_) &&
      std::none_of(ahead_.begin(), ahead_.end(), [&own](const Contender& each) {
        return each.request == own;
      });
  Nodes().Put(changed);
  const bool rival = std::any_of(requests.begin(), requests.end(),
                                 [&](const GangRequest* request) {
                                   return (!is_first || *request != own) &&
                                          Fits(Nodes().nodes(), *request);
                                 });
  Nodes().Undo();
  return !rival;
}

std::optional<bool> LineTrial::Walk(const std::vector<Contender>& contenders) {
  NodeTrial& trial = Nodes();
  std::set<GangRequest> refused;  // nothing comes free on the way
  for (const Contender& each : contenders) {
    if (refused.contains(each.request)) continue;
    const Placement placement = PlaceGang(trial.nodes(), each.request);
    if (std::holds_alternative<Refusal>(placement)) {
      refused.insert(each.request);
      continue;
    }
    if (each.is_last) return std::nullopt;
    for (const PlannedPart& part : std::get<Plan>(placement).parts) {
      Take(part, trial);
    }
  }
  return Fits(trial.nodes(), RequestOf(*job_.spec));
}

}  // namespace cohort::head
