#include "bench/placement_quality.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

#include "bench/planner_load.h"
#include "common/check.h"
#include "common/random.h"
#include "head/placement/placement.h"
#include "head/state/node_table.h"
#include "head/state/waiting_line.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"

namespace cohort::bench {
namespace {

using head::GangRequest;
using head::JobRecord;
using head::NodeRecord;
using head::NodeTable;
using head::Placement;
using head::Plan;

// Everything here is counted in quarters of a GPU.
constexpr int kWhole = 4;

struct Gang {
  int members = 1;
  int quarters = kWhole;  // of a GPU, each
  double duration = 0;

  int total() const { return members * quarters; }
};

GangRequest RequestOf(const Gang& gang) {
  GangRequest request;
  request.num_workers = gang.members;
  request.per_worker.Set(kGpu, Amount::FromTenThousandths(
                                   gang.quarters * Amount::kScale / kWhole));
  return request;
}

std::optional<Plan> PlanFor(const NodeTable& nodes, const Gang& gang) {
  Placement placement = head::PlaceGang(nodes.index(), RequestOf(gang));
  if (auto* plan = std::get_if<Plan>(&placement)) return std::move(*plan);
  return std::nullopt;
}

// ---- small: every way ----

constexpr int kSmallNodes = 3;
constexpr int kSmallGpus = 4;

Gang SmallGang(Random& random) {
  constexpr Gang kGangs[] = {{1, 1}, {1, 2}, {1, 4}, {1, 8},  {2, 2},
                             {2, 4}, {2, 8}, {3, 4}, {1, 16}, {2, 12}};
  return kGangs[random.Below(10)];
}

// What is left of each GPU of each node; nodes and GPUs in order of what is
// left, since those are alike.
using Left = std::vector<std::vector<int>>;

// Every state that placing `members` more of the gang can lead to.
void PlaceEveryWay(const Left& left, const Gang& gang, int members,
                   std::set<Left>& results) {
  if (members == 0) {
    Left sorted = left;
    for (std::vector<int>& node : sorted) std::sort(node.begin(), node.end());
    std::sort(sorted.begin(), sorted.end());
    results.insert(std::move(sorted));
    return;
  }
  const int whole = gang.quarters / kWhole;
  for (size_t n = 0; n < left.size(); ++n) {
    Left next = left;
    if (whole > 0) {
      int taken = 0;
      for (int& gpu : next[n]) {
        if (taken < whole && gpu == kWhole) {
          gpu = 0;
          ++taken;
        }
      }
      if (taken == whole) PlaceEveryWay(next, gang, members - 1, results);
      continue;
    }
    for (size_t g = 0; g < left[n].size(); ++g) {
      if (left[n][g] < gang.quarters) continue;
      next[n][g] -= gang.quarters;
      PlaceEveryWay(next, gang, members - 1, results);
      next[n][g] += gang.quarters;
    }
  }
}

struct BestOfAll {
  int quarters = 0;
  int gangs = 0;
};

// The best that can be done with the gangs in their order; those that fit are
// all taken unless `may_skip`.
BestOfAll TryEverything(const std::vector<Gang>& gangs, bool may_skip) {
  using Done = std::pair<int, int>;  // quarters, gangs
  std::map<Left, std::set<Done>> states;
  states[Left(kSmallNodes, std::vector<int>(kSmallGpus, kWhole))] = {{0, 0}};
  for (const Gang& gang : gangs) {
    std::map<Left, std::set<Done>> next;
    for (const auto& [left, done] : states) {
      std::set<Left> results;
      PlaceEveryWay(left, gang, gang.members, results);
      if (may_skip || results.empty()) {
        next[left].insert(done.begin(), done.end());
      }
      for (const Left& result : results) {
        for (const auto& [quarters, count] : done) {
          next[result].insert({quarters + gang.total(), count + 1});
        }
      }
    }
    states = std::move(next);
  }
  BestOfAll best;
  for (const auto& [left, done] : states) {
    for (const auto& [quarters, count] : done) {
      best.quarters = std::max(best.quarters, quarters);
      best.gangs = std::max(best.gangs, count);
    }
  }
  return best;
}

BestOfAll PlaceInOrder(const std::vector<Gang>& gangs) {
  SeededRandom random(1);
  NodeTable nodes;
  for (int n = 0; n < kSmallNodes; ++n) {
    NodeRecord node;
    node.id = NodeId::New(random);
    node.node.set_name(absl::StrCat("n", n));
    head::SetResource(node.node, kGpu, Amount::FromUnits(kSmallGpus));
    for (int g = 0; g < kSmallGpus; ++g) {
      head::AddDevice(node.node, {.id = absl::StrCat("g", g), .kind = "gpu"});
    }
    const NodeId id = node.id;
    nodes.Put(std::move(node));
    nodes.Offer(id);
  }
  BestOfAll done;
  for (const Gang& gang : gangs) {
    const std::optional<Plan> plan = PlanFor(nodes, gang);
    if (!plan.has_value()) continue;
    Hold(nodes, AttemptId::New(random), RequestOf(gang).per_worker, *plan);
    done.quarters += gang.total();
    done.gangs += 1;
  }
  return done;
}

// ---- large: as time goes by ----

// Of 20: 2 a quarter, 2 a half, 6 one GPU, 2 two on one node, 2 four on one
// node, 3 a whole node, 2 two whole nodes, 1 eight of them (bench/README.md).
Gang MixedGang(Random& random) {
  constexpr Gang kGangs[] = {{1, 1},  {1, 1},  {1, 2},  {1, 2},  {1, 4},
                             {1, 4},  {1, 4},  {1, 4},  {1, 4},  {1, 4},
                             {1, 8},  {1, 8},  {1, 16}, {1, 16}, {1, 32},
                             {1, 32}, {1, 32}, {2, 32}, {2, 32}, {8, 32}};
  Gang gang = kGangs[random.Below(20)];
  gang.duration = -std::log(1 - random.Double());
  return gang;
}

// Decides what of the waiting gangs begins and where.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void Add(int job, const Gang& gang) = 0;
  virtual void End(int job) = 0;
  // The jobs that begin now.
  virtual std::vector<int> Pass() = 0;
};

class Ours final : public Scheduler {
 public:
  explicit Ours(int nodes) {
    for (int n = 0; n < nodes; ++n) {
      const NodeId id = NodeId::New(random_);
      nodes_.Put(GpuNode(id, n));
      nodes_.Offer(id);
    }
  }
  void Add(int job, const Gang& gang) override {
    JobRecord record(JobId::New(random_));
    record.row.set_sequence(static_cast<uint64_t>(job));
    record.spec.Own().mutable_scaling()->set_num_workers(gang.members);
    head::SetResources(record.spec.Own(), RequestOf(gang).per_worker);
    line_.Add(record);
    waiting_.emplace(record.id, std::move(record));
  }
  void End(int job) override {
    const auto ended = running_.find(job);
    Release(nodes_, ended->second.first, ended->second.second);
    running_.erase(ended);
  }
  std::vector<int> Pass() override {
    std::vector<int> begun;
    line_.Freed(nodes_.TakeGains(), nodes_.index());
    while (const auto next = line_.Next()) {
      const JobRecord job = waiting_.at(next->job);
      Placement placement =
          head::PlaceGang(nodes_.index(), head::RequestOf(job));
      if (auto* refusal = std::get_if<head::Refusal>(&placement)) {
        line_.Refuse(*next, std::move(*refusal));
        continue;
      }
      const Plan& plan = std::get<Plan>(placement);
      const AttemptId attempt = AttemptId::New(random_);
      running_[static_cast<int>(job.row.sequence())] = {
          attempt,
          Hold(nodes_, attempt, head::ResourcesPerWorker(*job.spec), plan)};
      begun.push_back(static_cast<int>(job.row.sequence()));
      line_.Remove(job);
      waiting_.erase(job.id);
    }
    return begun;
  }

 private:
  SeededRandom random_{2};
  NodeTable nodes_;
  head::WaitingLine line_;
  std::map<JobId, JobRecord> waiting_;
  std::map<int, std::pair<AttemptId, Held>> running_;
};

class BestFitDecreasing final : public Scheduler {
 public:
  explicit BestFitDecreasing(int nodes)
      : left_(static_cast<size_t>(nodes), std::vector<int>(8, kWhole)) {}

  void Add(int job, const Gang& gang) override {
    waiting_.emplace(std::make_pair(-gang.total(), job), gang);
  }
  void End(int job) override {
    for (const auto& [node, gpu, quarters] : held_.at(job)) {
      left_[node][gpu] += quarters;
    }
    held_.erase(job);
  }
  std::vector<int> Pass() override {
    std::vector<int> begun;
    std::set<std::pair<int, int>> failed;  // members, quarters
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const Gang& gang = at->second;
      const int job = at->first.second;
      if (failed.contains({gang.members, gang.quarters})) {
        ++at;
      } else if (Place(job, gang)) {
        begun.push_back(job);
        at = waiting_.erase(at);
      } else {
        failed.insert({gang.members, gang.quarters});
        ++at;
      }
    }
    return begun;
  }

 private:
  struct Share {
    size_t node;
    size_t gpu;
    int quarters;
  };

  // The fullest node that takes one member; on it the fullest GPU.
  bool PlaceMember(const Gang& gang, std::vector<Share>& shares) {
    std::optional<size_t> best;
    int best_left = 0;
    for (size_t n = 0; n < left_.size(); ++n) {
      int whole = 0;
      int sum = 0;
      bool part_fits = false;
      for (const int gpu : left_[n]) {
        whole += gpu == kWhole;
        sum += gpu;
        part_fits = part_fits || gpu >= gang.quarters;
      }
      const bool fits =
          gang.quarters >= kWhole ? whole * kWhole >= gang.quarters : part_fits;
      if (fits && (!best.has_value() || sum < best_left)) {
        best = n;
        best_left = sum;
      }
    }
    if (!best.has_value()) return false;
    Take(*best, gang.quarters, shares);
    return true;
  }

  void Take(size_t node, int quarters, std::vector<Share>& shares) {
    std::vector<int>& gpus = left_[node];
    while (quarters > 0) {
      const int need = std::min(quarters, kWhole);
      size_t best = gpus.size();
      for (size_t g = 0; g < gpus.size(); ++g) {
        if (gpus[g] >= need && (best == gpus.size() || gpus[g] < gpus[best])) {
          best = g;
        }
      }
      COHORT_CHECK(best < gpus.size());
      gpus[best] -= need;
      shares.push_back({node, best, need});
      quarters -= need;
    }
  }

  bool Place(int job, const Gang& gang) {
    std::vector<Share> shares;
    for (int m = 0; m < gang.members; ++m) {
      if (PlaceMember(gang, shares)) continue;
      for (const Share& share : shares) {
        left_[share.node][share.gpu] += share.quarters;
      }
      return false;
    }
    held_.emplace(job, std::move(shares));
    return true;
  }

  std::vector<std::vector<int>> left_;
  std::map<std::pair<int, int>, Gang> waiting_;  // by (-GPUs, order)
  std::map<int, std::vector<Share>> held_;
};

struct Load {
  std::vector<Gang> gangs;
  std::vector<double> arrivals;
};

Load MakeLoad(int nodes, int jobs, uint64_t seed) {
  SeededRandom random(seed);
  Load load;
  double work = 0;
  for (int j = 0; j < jobs; ++j) {
    load.gangs.push_back(MixedGang(random));
    work += load.gangs.back().total() * load.gangs.back().duration;
  }
  // 5% more than the cluster can run.
  const double span = work / (nodes * 8 * kWhole) / 1.05;
  for (int j = 0; j < jobs; ++j) {
    load.arrivals.push_back(span * j / jobs);
  }
  return load;
}

// Runs the load until the last gang came.
Quality RunLoad(Scheduler& scheduler, const Load& load, int nodes) {
  using End = std::pair<double, int>;
  std::priority_queue<End, std::vector<End>, std::greater<>> ends;
  const double all = nodes * 8.0 * kWhole;
  double now = 0;
  double held = 0;
  double waiting = 0;
  double stranded = 0;
  int begun = 0;
  const auto advance = [&](double to) {
    stranded += std::min(all - held, waiting) * (to - now);
    now = to;
  };
  const auto pass = [&] {
    for (const int job : scheduler.Pass()) {
      const Gang& gang = load.gangs[static_cast<size_t>(job)];
      held += gang.total();
      waiting -= gang.total();
      ends.push({now + gang.duration, job});
      ++begun;
    }
  };
  for (size_t j = 0; j < load.gangs.size(); ++j) {
    while (!ends.empty() && ends.top().first <= load.arrivals[j]) {
      const auto [at, job] = ends.top();
      ends.pop();
      advance(at);
      scheduler.End(job);
      held -= load.gangs[static_cast<size_t>(job)].total();
      pass();
    }
    advance(load.arrivals[j]);
    scheduler.Add(static_cast<int>(j), load.gangs[j]);
    waiting += load.gangs[j].total();
    pass();
  }
  return {.placed = begun / static_cast<double>(load.gangs.size()),
          .stranded = stranded / (all * now)};
}

}  // namespace

ComparedWithAll CompareWithExhaustive(int clusters, uint64_t seed) {
  SeededRandom random(seed);
  BestOfAll sums[3];
  int offered = 0;
  int useful = 0;  // quarters that all the gangs together could use
  for (int c = 0; c < clusters; ++c) {
    std::vector<Gang> gangs;
    int wanted = 0;
    for (int g = 0; g < 6; ++g) {
      gangs.push_back(SmallGang(random));
      wanted += gangs.back().total();
    }
    const BestOfAll results[3] = {PlaceInOrder(gangs),
                                  TryEverything(gangs, /*may_skip=*/false),
                                  TryEverything(gangs, /*may_skip=*/true)};
    for (int i = 0; i < 3; ++i) {
      sums[i].quarters += results[i].quarters;
      sums[i].gangs += results[i].gangs;
      COHORT_CHECK(i == 0 || results[i - 1].quarters <= results[i].quarters);
    }
    offered += static_cast<int>(gangs.size());
    useful += std::min(wanted, kSmallNodes * kSmallGpus * kWhole);
  }
  const auto quality = [&](const BestOfAll& done) {
    return Quality{
        .placed = done.gangs / static_cast<double>(offered),
        .stranded = (useful - done.quarters) / static_cast<double>(useful)};
  };
  return {quality(sums[0]), quality(sums[1]), quality(sums[2])};
}

Compared CompareWithBestFitDecreasing(int nodes, int jobs, uint64_t seed) {
  const Load load = MakeLoad(nodes, jobs, seed);
  Ours ours(nodes);
  BestFitDecreasing other(nodes);
  return {RunLoad(ours, load, nodes), RunLoad(other, load, nodes)};
}

}  // namespace cohort::bench
