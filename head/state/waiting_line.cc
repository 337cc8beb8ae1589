#include "head/state/waiting_line.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"

#include "common/check.h"
#include "common/label_selector.h"
#include "head/state/job_spec.h"

namespace cohort::head {
namespace {

// Gains that no request can tell apart, but by the nodes' names.
struct Alike {
  const Gain* gain;
  const NodeSnapshot* node;
  int64_t count = 0;
};

std::vector<Alike> Group(const Gains& gains, const PlacementIndex& nodes) {
  std::map<std::tuple<const NodeForm*, const NodeForm*, Labels>, Alike> groups;
  for (const Gain& gain : gains.gains) {
    const NodeSnapshot* const node = nodes.Find(gain.node);
    if (node == nullptr) continue;  // died since
    groups
        .try_emplace({gain.before.get(), gain.after.get(), node->labels},
                     Alike{&gain, node})
        .first->second.count += 1;
  }
  std::vector<Alike> alike;
  for (auto& [key, group] : groups) alike.push_back(group);
  return alike;
}

// One by one, for requests that select by name.
std::vector<Alike> Apart(const Gains& gains, const PlacementIndex& nodes) {
  std::vector<Alike> apart;
  for (const Gain& gain : gains.gains) {
    const NodeSnapshot* const node = nodes.Find(gain.node);
    if (node != nullptr) apart.push_back({&gain, node, 1});
  }
  return apart;
}

// Workers of `request` that found room, as soon as they are `enough`.
int64_t Gained(const GangRequest& request, const std::vector<Alike>& gains,
               int64_t enough) {
  int64_t workers = 0;
  for (const Alike& alike : gains) {
    const int64_t each = GainedWorkers(
        request, *alike.node, alike.gain->before.get(), *alike.gain->after);
    if (each >= enough) return enough;
    workers += each * alike.count;
    if (workers >= enough) return enough;
  }
  return workers;
}

}  // namespace

WaitingLine::Place WaitingLine::PlaceOf(const JobRecord& job, int first) {
  return {-int64_t{job.spec->priority()}, first < 0, job.row.sequence(), first};
}

void WaitingLine::Add(const JobRecord& job) {
  Add(AskId{job.id}, PlaceOf(job), RequestOf(job));
}

void WaitingLine::AddSlots(const JobRecord& job, int first,
                           GangRequest request) {
  Add(AskId{job.id, first}, PlaceOf(job, first), std::move(request));
}

void WaitingLine::Add(const AskId& ask, const Place& place,
                      GangRequest request) {
  ++arrivals_;
  const auto found = shapes_.try_emplace(std::move(request)).first;
  Shape& shape = found->second;
  Unindex(shape);
  COHORT_CHECK(shapes_of_.emplace(ask, found).second) << ask.job;
  shape.asks.emplace(place, ask);
  Index(shape);
}

void WaitingLine::Remove(const JobRecord& job, int first) {
  const auto waits = shapes_of_.extract(AskId{job.id, first});
  if (waits.empty()) return;
  const Shapes::iterator found = waits.mapped();
  Shape& shape = found->second;
  Unindex(shape);
  shape.asks.erase(PlaceOf(job, first));
  if (shape.asks.empty()) {
    shapes_.erase(found);
  } else {
    Index(shape);
  }
}

void WaitingLine::Index(const Shape& shape) {
  if (!shape.refused) heads_.emplace(shape.asks.begin()->first, &shape);
}

void WaitingLine::Unindex(const Shape& shape) {
  if (!shape.asks.empty()) heads_.erase(shape.asks.begin()->first);
}

std::optional<AskId> WaitingLine::Next() const {
  if (heads_.empty()) return std::nullopt;
  return heads_.begin()->second->asks.begin()->second;
}

void WaitingLine::Refuse(const AskId& ask, Refusal refusal) {
  Shape& shape = shapes_of_.at(ask)->second;
  Unindex(shape);
  shape.refused = true;
  shape.never_fits = refusal.never_fits_known_nodes;
  shape.missing = refusal.missing;
  shape.reason = std::move(refusal.reason);
  shape.reason_version = 0;
}

void WaitingLine::TryAgain(Shape& shape) {
  shape.refused = false;
  Index(shape);
}

void WaitingLine::Freed(const Gains& gains, const PlacementIndex& nodes) {
  if (!gains.lost && gains.gains.empty()) return;
  const std::vector<Alike> grouped = Group(gains, nodes);
  std::vector<Alike> apart;
  for (auto& [request, shape] : shapes_) {
    if (!shape.refused) continue;
    if (gains.lost) {
      TryAgain(shape);
      continue;
    }
    const bool by_name = SelectsByName(request.selector);
    if (by_name && apart.empty()) apart = Apart(gains, nodes);
    shape.missing -= Gained(request, by_name ? apart : grouped, shape.missing);
    if (shape.missing <= 0) TryAgain(shape);
  }
}

std::vector<const GangRequest*> WaitingLine::Requests(size_t most) const {
  std::vector<const GangRequest*> requests;
  for (const auto& [request, shape] : shapes_) {
    if (requests.size() == most) break;
    requests.push_back(&request);
  }
  return requests;
}

const GangRequest* WaitingLine::NextRefused(const GangRequest* request) const {
  auto at =
      request == nullptr ? shapes_.begin() : shapes_.upper_bound(*request);
  while (at != shapes_.end() && !at->second.refused) ++at;
  return at == shapes_.end() ? nullptr : &at->first;
}

std::vector<WaitingLine::Waiting> WaitingLine::FirstAheadOf(const Place& own,
                                                            size_t most_each,
                                                            Competes competes,
                                                            size_t most) const {
  // Of each request the next one, and how many may follow.
  struct Next {
    std::map<Place, AskId>::const_iterator at, end;
    const GangRequest* request;
    size_t left;
  };
  const auto later = [](const Next& a, const Next& b) {
    return b.at->first < a.at->first;
  };
  std::vector<Next> nexts;
  for (const auto& [request, shape] : shapes_) {
    if (most_each == 0 || !(shape.asks.begin()->first < own) ||
        !competes(request)) {
      continue;
    }
    nexts.push_back(
        {shape.asks.begin(), shape.asks.end(), &request, most_each});
  }
  std::make_heap(nexts.begin(), nexts.end(), later);
  std::vector<Waiting> first;
  while (!nexts.empty() && first.size() < most) {
    std::pop_heap(nexts.begin(), nexts.end(), later);
    Next& next = nexts.back();
    first.push_back({next.at->second.job, next.request, next.at->first});
    ++next.at;
    if (--next.left == 0 || next.at == next.end || !(next.at->first < own)) {
      nexts.pop_back();
    } else {
      std::push_heap(nexts.begin(), nexts.end(), later);
    }
  }
  return first;
}

Ahead WaitingLine::AheadOf(const JobRecord& job, size_t shown,
                           Competes competes) const {
  const Place own = PlaceOf(job);
  Ahead ahead;
  // Before all others the first ones of each shape, so that they are right
  // also where there are more jobs than are counted.
  std::set<const GangRequest*> counted;
  for (const Waiting& first :
       FirstAheadOf(own, shown, [&](const GangRequest& request) {
         return competes(request) && counted.insert(&request).second;
       })) {
    if (ahead.first.size() < shown) ahead.first.push_back(first.job);
  }
  for (const GangRequest* const request : counted) {
    for (const auto& [place, ask] : shapes_.at(*request).asks) {
      if (!(place < own)) break;
      if (ahead.jobs == kCountedMax) {
        ahead.more = true;
        return ahead;
      }
      ++ahead.jobs;
    }
  }
  return ahead;
}

WaitingLine::Some WaitingLine::CountSome(const GangRequest& request,
                                         int priority, uint64_t from,
                                         uint64_t to) const {
  Some some;
  const auto found = shapes_.find(request);
  if (found == shapes_.end()) return some;
  const auto& asks = found->second.asks;
  const auto begin = asks.lower_bound({-int64_t{priority}, true, from, -1});
  const auto end = asks.lower_bound({-int64_t{priority}, true, to, -1});
  if (begin == end) return some;
  some.first = begin->second.job;
  some.jobs = std::distance(begin, end);
  return some;
}

const WaitingLine::Shape* WaitingLine::Refreshed(
    Shapes::const_iterator found, const PlacementIndex& nodes) const {
  if (found == shapes_.end()) return nullptr;
  const Shape& shape = found->second;
  // A shape with a new reason has been tried against the nodes of then.
  if (shape.refused && shape.reason_version != nodes.version()) {
    Refusal now = WhyNotNow(nodes, found->first);
    shape.reason = std::move(now.reason);
    shape.never_fits = now.never_fits_known_nodes;
    shape.reason_version = nodes.version();
  }
  return &shape;
}

const WaitingLine::Shape* WaitingLine::Refreshed(
    const JobRecord& job, const PlacementIndex& nodes) const {
  const auto waits = shapes_of_.find(AskId{job.id});
  return Refreshed(waits != shapes_of_.end()
                       ? Shapes::const_iterator(waits->second)
                       : shapes_.find(RequestOf(job)),
                   nodes);
}

std::string WaitingLine::ReasonOf(const AskId& slots,
                                  const PlacementIndex& nodes) const {
  const auto waits = shapes_of_.find(slots);
  if (waits == shapes_of_.end()) return "";
  return Refreshed(Shapes::const_iterator(waits->second), nodes)->reason;
}

bool WaitingLine::NeverFits(const JobRecord& job,
                            const PlacementIndex& nodes) const {
  if (nodes.size() == 0) return false;
  const Shape* const shape = Refreshed(job, nodes);
  if (shape == nullptr) {
    return WhyNotNow(nodes, RequestOf(job)).never_fits_known_nodes;
  }
  return shape->refused && shape->never_fits;
}

bool WaitingLine::WantsRoom(
    const PlacementIndex& nodes,
    absl::FunctionRef<bool(const JobId& job)> counts) const {
  int looked = 0;
  for (auto shape = shapes_.begin();
       shape != shapes_.end() && looked < kLookedAtMax; ++shape, ++looked) {
    if (!shape->second.refused) continue;
    int asked = 0;
    bool any = false;
    for (auto ask = shape->second.asks.begin();
         !any && ask != shape->second.asks.end() && asked < kLookedAtMax;
         ++ask, ++asked) {
      any = counts(ask->second.job);
    }
    // Last, since it may cost a plan.
    if (any && !Refreshed(shape, nodes)->never_fits) return true;
  }
  return false;
}

std::string WaitingLine::ReasonOf(const JobRecord& job,
                                  const PlacementIndex& nodes) const {
  const Shape* const shape = Refreshed(job, nodes);
  return shape == nullptr ? "" : shape->reason;
}

GangRequest RequestOf(const JobRecord& job) {
  GangRequest request = RequestOf(*job.spec);
  if (job.row.num_workers() > 0) request.num_workers = job.row.num_workers();
  return request;
}

GangRequest RequestOf(const JobSpec& spec) {
  GangRequest request;
  request.num_workers = spec.scaling().num_workers();
  if (spec.run().restart() > v1::RESTART_POLICY_ALL) {
    request.ranks_per_node_max = kProcessesPerNodeMax;  // there is no arena
  }
  request.workers_per_node = spec.scaling().workers_per_node();
  request.per_worker = ResourcesPerWorker(spec);
  request.strategy = spec.scaling().placement_strategy();
  absl::StatusOr<LabelSelector> selector =
      LabelSelector::ParseAll(SelectorsOf(spec));
  if (selector.ok()) {
    request.selector = *std::move(selector);
  } else {
    request.fault = std::string(selector.status().message());
  }
  request.tolerations = TolerationsOf(spec);
  std::sort(request.tolerations.begin(), request.tolerations.end());
  request.accelerator_type = spec.scaling().accelerator_type();
  request.topology = {.level = spec.scaling().topology_level(),
                      .required = spec.scaling().topology_required()};
  return request;
}

}  // namespace cohort::head
