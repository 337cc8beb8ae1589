// Random nodes and requests: placement against brute force, and against itself.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/resources.h"
#include "common/testing/seed.h"
#include "head/placement/placement.h"
#include "head/placement/testing/placement_fixture.h"

namespace cohort::head {
namespace {

struct Case {
  std::vector<NodeSnapshot> nodes;
  GangRequest request;
};

// Labels, taints, a GPU model and a gate, each on some nodes.
void AddFeatures(Random& random, NodeSnapshot& node) {
  const char* const racks[] = {"", "r1", "r2"};
  const std::string rack = racks[random.Below(3)];
  if (!rack.empty()) node.labels["rack"] = rack;
  if (random.Below(2) == 0) node.labels["zone"] = "a";
  if (random.Below(4) == 0) node.taints.push_back({"team", "vision"});
  if (!node.devices.empty() && random.Below(2) == 0) {
    node.accelerator = "NVIDIA H100 80GB";
  }
  if (random.Below(8) == 0) {
    node.gate = static_cast<NodeGate>(1 + random.Below(3));
  }
}

void AddWishes(Random& random, GangRequest& request) {
  const char* const selectors[] = {
      "zone=a",  "zone!=a",         "rack exists",       "rack in (r1,r3)",
      "host=n1", "host!=n2,zone=a", "host in (n1,n2,n9)"};
  if (random.Below(3) == 0) {
    request.selector = *LabelSelector::Parse(selectors[random.Below(7)]);
  }
  if (random.Below(2) == 0) request.tolerations = {*Toleration::Parse("team")};
  if (random.Below(8) == 0) request.accelerator_type = "h100";
  const char* const levels[] = {"host", "rack", "zone", "row"};
  if (random.Below(3) == 0) {
    request.topology = {.level = levels[random.Below(4)],
                        .required = random.Below(2) == 0};
  }
}

Case RandomCase(Random& random) {
  Case c;
  const int nodes = static_cast<int>(random.Below(5));
  for (int n = 0; n < nodes; ++n) {
    ResourceSet total;
    total.Set(kCpu, Amount::FromUnits(static_cast<int64_t>(random.Below(5))));
    total.Set(kGpu, Amount::FromUnits(static_cast<int64_t>(random.Below(4))));
    total.Set("license",
              Amount::FromUnits(static_cast<int64_t>(random.Below(3))));
    NodeSnapshot node = Node(n + 1, "");
    node.total = node.available = total;
    for (int64_t g = 0; g < total.Get(kGpu).WholeUnits(); ++g) {
      node.devices.push_back(
          {.id = absl::StrCat(node.name, "-g", g), .free = Units(1)});
      if (random.Below(3) == 0) {
        Use(node, node.devices.size() - 1,
            0.25 * static_cast<double>(1 + random.Below(4)));
      }
    }
    c.nodes.push_back(std::move(node));
  }
  std::reverse(c.nodes.begin(), c.nodes.end());
  for (NodeSnapshot& node : c.nodes) AddFeatures(random, node);
  const double gpus[] = {0, 0.25, 0.3, 0.5, 0.75, 1, 2};
  c.request.num_workers = static_cast<int>(1 + random.Below(5));
  if (random.Below(4) == 0) {
    c.request.workers_per_node = static_cast<int>(1 + random.Below(3));
    c.request.num_workers =
        c.request.workers_per_node * static_cast<int>(1 + random.Below(2));
  }
  c.request.per_worker.Set(kCpu,
                           Units(0.5 * static_cast<double>(random.Below(4))));
  c.request.per_worker.Set(kGpu, Units(gpus[random.Below(7)]));
  if (random.Below(3) == 0) c.request.per_worker.Set("license", Units(1));
  c.request.strategy = static_cast<PlacementStrategy>(1 + random.Below(4));
  AddWishes(random, c.request);
  return c;
}

// Workers that fit on a node, by trying: take one after another in every way.
int TryAll(NodeSnapshot node, const ResourceSet& need, int most) {
  if (most == 0 || !node.available.Fits(need)) return 0;
  const Amount gpus = need.Get(kGpu);
  int best = 0;
  const auto with = [&](const std::vector<size_t>& devices, Amount each) {
    NodeSnapshot left = node;
    if (!left.available.Take(need)) return;
    for (const size_t d : devices) left.devices[d].free -= each;
    best = std::max(best, 1 + TryAll(std::move(left), need, most - 1));
  };
  if (gpus.IsZero()) {
    with({}, Amount());
  } else if (gpus < Units(1)) {
    for (size_t d = 0; d < node.devices.size(); ++d) {
      if (node.devices[d].free >= gpus) with({d}, gpus);
    }
  } else {
    std::vector<size_t> whole;
    for (size_t d = 0; d < node.devices.size(); ++d) {
      if (node.devices[d].free == Units(1)) whole.push_back(d);
    }
    if (static_cast<int64_t>(whole.size()) >= gpus.WholeUnits()) {
      whole.resize(static_cast<size_t>(gpus.WholeUnits()));
      with(whole, Units(1));
    }
  }
  return best;
}

// Calls `visit` with every way to deal the workers to the nodes.
void ForEachDeal(const std::vector<int>& capacities, int workers,
                 const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> deal(capacities.size(), 0);
  const std::function<void(size_t, int)> go = [&](size_t node, int left) {
    if (node == capacities.size()) {
      if (left == 0) visit(deal);
      return;
    }
    for (int n = 0; n <= std::min(left, capacities[node]); ++n) {
      deal[node] = n;
      go(node + 1, left - n);
    }
    deal[node] = 0;
  };
  go(0, workers);
}

bool Allowed(const std::vector<int>& deal, const GangRequest& request) {
  const int each = request.workers_per_node;
  if (each > 0 && std::any_of(deal.begin(), deal.end(),
                              [each](int n) { return n != 0 && n != each; })) {
    return false;
  }
  const int most =
      deal.empty() ? 0 : *std::max_element(deal.begin(), deal.end());
  if (request.strategy == v1::PLACEMENT_STRATEGY_STRICT_PACK) {
    return most == request.num_workers;
  }
  if (request.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD)
    return most <= 1;
  return true;
}

size_t NodesUsed(const std::vector<int>& deal) {
  return static_cast<size_t>(
      std::count_if(deal.begin(), deal.end(), [](int n) { return n > 0; }));
}

// Sum of squares: least for the most even deal.
int Unevenness(const std::vector<int>& deal) {
  int sum = 0;
  for (const int n : deal) sum += n * n;
  return sum;
}

std::vector<int> DealOf(const Plan& plan,
                        const std::vector<NodeSnapshot>& nodes) {
  std::vector<int> deal;
  for (const NodeSnapshot& node : nodes) {
    int workers = 0;
    for (const PlannedPart& part : plan.parts) {
      if (part.node == node.id) workers = static_cast<int>(part.ranks.size());
    }
    deal.push_back(workers);
  }
  return deal;
}

// PL-2: takes the plan out of the nodes, which must have it.
void ExpectNothingTakenTwice(const Plan& plan, Case c) {
  std::set<NodeId> seen;
  for (const PlannedPart& part : plan.parts) {
    ASSERT_TRUE(seen.insert(part.node).second) << "a node twice";
    const auto node = std::find_if(
        c.nodes.begin(), c.nodes.end(),
        [&part](const NodeSnapshot& n) { return n.id == part.node; });
    ASSERT_NE(node, c.nodes.end());
    ASSERT_FALSE(part.ranks.empty());
    ASSERT_TRUE(node->available.Take(
        c.request.per_worker.Times(static_cast<int64_t>(part.ranks.size()))));
    for (const PlannedRank& rank : part.ranks) {
      Amount gpus;
      for (const auto& [id, amount] : rank.devices) {
        gpus += amount;
        const auto device = std::find_if(
            node->devices.begin(), node->devices.end(),
            [&id = id](const DeviceShare& d) { return d.id == id; });
        ASSERT_NE(device, node->devices.end());
        device->free -= amount;
        ASSERT_GE(device->free, Amount()) << id;
      }
      const Amount wanted = c.request.per_worker.Get(kGpu);
      ASSERT_EQ(gpus, wanted);
      if (wanted < Units(1)) {
        ASSERT_LE(rank.devices.size(), 1u);
      }
    }
  }
}

// What the request says of the node, told again in other words.
bool Usable(const NodeSnapshot& node, const GangRequest& request) {
  for (const LabelSelector::Requirement& need :
       request.selector.requirements()) {
    const bool has = need.key == "host" || node.labels.contains(need.key);
    const std::string value = !has                 ? ""
                              : need.key == "host" ? node.name
                                                   : node.labels.at(need.key);
    const bool listed =
        has && std::count(need.values.begin(), need.values.end(), value) > 0;
    const bool holds = need.op == LabelSelector::Operator::kExists ? has
                       : need.op == LabelSelector::Operator::kIn   ? listed
                                                                   : !listed;
    if (!holds) return false;
  }
  return (node.taints.empty() || !request.tolerations.empty()) &&
         (request.accelerator_type.empty() || !node.accelerator.empty());
}

// The best that any way of dealing workers to some nodes reaches.
struct Best {
  bool possible = false;
  size_t fewest = 1000;
  int evenest = 1 << 20;
};

Best TryAllDeals(const std::vector<int>& capacities,
                 const GangRequest& request) {
  Best best;
  ForEachDeal(capacities, request.num_workers,
              [&](const std::vector<int>& deal) {
                if (!Allowed(deal, request)) return;
                best.possible = true;
                best.fewest = std::min(best.fewest, NodesUsed(deal));
                best.evenest = std::min(best.evenest, Unevenness(deal));
              });
  return best;
}

// The domain of each node; empty: in none.
std::vector<std::string> DomainsOf(const Case& c) {
  std::vector<std::string> domains;
  const std::string& level = c.request.topology.level;
  for (const NodeSnapshot& node : c.nodes) {
    const auto label = node.labels.find(level);
    domains.push_back(level == "host"              ? node.name
                      : label == node.labels.end() ? ""
                                                   : label->second);
  }
  return domains;
}

std::vector<int> OnlyIn(const std::string& domain,
                        const std::vector<std::string>& domains,
                        std::vector<int> capacities) {
  for (size_t i = 0; i < domains.size(); ++i) {
    if (domains[i] != domain) capacities[i] = 0;
  }
  return capacities;
}

using Size = std::tuple<int64_t, Amount, int, Amount>;

// Workers with a part of a GPU each that fit beside those who have one.
int TryOnBroken(const Case& c, NodeSnapshot node) {
  node.devices.erase(std::remove_if(node.devices.begin(), node.devices.end(),
                                    [](const DeviceShare& device) {
                                      return device.free == Units(1);
                                    }),
                     node.devices.end());
  return TryAll(std::move(node), c.request.per_worker, c.request.num_workers);
}

// Whole GPUs that the gang would take a part of.
int64_t BrokenBy(const Case& c, int fit_on_broken) {
  const double gpus = c.request.per_worker.Get(kGpu).ToDouble();
  if (gpus == 0 || gpus >= 1) return 0;
  int64_t broken = 0;
  const auto each = static_cast<int>(1 / gpus);
  for (int left = c.request.num_workers - fit_on_broken; left > 0;
       left -= each) {
    ++broken;
  }
  return broken;
}

// What orders nodes and domains, over those that can hold a worker.
Size SizeOf(const Case& c, const std::vector<int>& capacities) {
  Amount gpus;
  int sum = 0;
  int fit_on_broken = 0;
  Amount cpus;
  const bool wants_gpus = !c.request.per_worker.Get(kGpu).IsZero();
  for (size_t i = 0; i < capacities.size(); ++i) {
    if (capacities[i] == 0) continue;
    const NodeSnapshot& node = c.nodes[i];
    gpus += (wants_gpus ? node.available : node.total).Get(kGpu);
    sum += capacities[i];
    cpus += node.available.Get(kCpu);
    fit_on_broken += std::min(capacities[i], TryOnBroken(c, node));
  }
  return {BrokenBy(c, fit_on_broken), gpus, sum, cpus};
}

// What the planner must do: refuse, or do as well as the best in one of these
// domains ("": anywhere).
struct Expected {
  std::map<std::string, Best> domains;
  bool possible_idle = false;
};

bool AnyDomainHolds(const Case& c, const std::vector<int>& capacities) {
  const std::vector<std::string> domains = DomainsOf(c);
  return std::any_of(
      domains.begin(), domains.end(), [&](const std::string& domain) {
        return !domain.empty() &&
               TryAllDeals(OnlyIn(domain, domains, capacities), c.request)
                   .possible;
      });
}

Expected Search(const Case& c, const std::vector<int>& capacities,
                const std::vector<int>& idle) {
  Expected expected;
  const TopologyWish& wish = c.request.topology;
  expected.possible_idle = wish.required
                               ? AnyDomainHolds(c, idle)
                               : TryAllDeals(idle, c.request).possible;
  const std::vector<std::string> domains = DomainsOf(c);
  Size smallest;
  for (const std::string& domain :
       std::set<std::string>(domains.begin(), domains.end())) {
    if (domain.empty() || wish.level.empty()) continue;
    const std::vector<int> inside = OnlyIn(domain, domains, capacities);
    const Best best = TryAllDeals(inside, c.request);
    if (!best.possible) continue;
    const Size size = SizeOf(c, inside);
    if (expected.domains.empty() || size < smallest) {
      expected.domains.clear();
      smallest = size;
    }
    if (size == smallest) expected.domains[domain] = best;
  }
  if (!expected.domains.empty() || wish.required) return expected;
  const Best best = TryAllDeals(capacities, c.request);
  if (best.possible) expected.domains[""] = best;
  return expected;
}

std::string DomainOf(const Case& c, const std::vector<int>& deal) {
  std::set<std::string> domains;
  for (size_t i = 0; i < deal.size(); ++i) {
    if (deal[i] > 0) domains.insert(DomainsOf(c)[i]);
  }
  return domains.size() == 1 ? *domains.begin() : "several";
}

// PL-1: all of it, ranks numbered through.
void ExpectWhole(const Plan& plan, int workers) {
  int next_rank = 0;
  for (const PlannedPart& part : plan.parts) {
    int next_local = 0;
    for (const PlannedRank& rank : part.ranks) {
      ASSERT_EQ(rank.rank, next_rank++);
      ASSERT_EQ(rank.local_rank, next_local++);
    }
  }
  ASSERT_EQ(next_rank, workers);
}

// Workers that fit on each node, now or idle.
std::vector<int> TryEachNode(const Case& c, bool make_idle) {
  std::vector<int> capacities;
  for (NodeSnapshot node : c.nodes) {
    if (make_idle) {
      node.available = node.total;
      for (DeviceShare& device : node.devices) device.free = Units(1);
    }
    const bool usable =
        Usable(node, c.request) && (make_idle || node.gate == NodeGate::kOpen);
    int fit =
        usable ? TryAll(node, c.request.per_worker, c.request.num_workers) : 0;
    const int each = c.request.workers_per_node;
    if (each > 0) fit = fit < each ? 0 : each;
    capacities.push_back(fit);
  }
  return capacities;
}

void ExpectTheBest(const Plan& plan, const Case& c, const Expected& expected) {
  const std::vector<int> deal = DealOf(plan, c.nodes);
  ASSERT_TRUE(Allowed(deal, c.request));
  const std::string domain =
      expected.domains.contains("") ? "" : DomainOf(c, deal);
  ASSERT_TRUE(expected.domains.contains(domain)) << domain;
  const Best& best = expected.domains.at(domain);
  if (c.request.strategy == v1::PLACEMENT_STRATEGY_PACK) {
    ASSERT_EQ(NodesUsed(deal), best.fewest);
  }
  if (c.request.strategy == v1::PLACEMENT_STRATEGY_SPREAD) {
    ASSERT_EQ(Unevenness(deal), best.evenest);
  }
}

TEST(PlacementPropertyTest, AgreesWithBruteForce) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  int placed = 0;
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round, ": ",
                              Describe(c.request)));
    const std::vector<int> capacities = TryEachNode(c, /*make_idle=*/false);
    const Expected expected =
        Search(c, capacities, TryEachNode(c, /*make_idle=*/true));
    for (size_t i = 0; i < c.nodes.size(); ++i) {
      // Those who explain share the planner's truth.
      GangRequest anywhere = c.request;
      anywhere.topology = {};
      ASSERT_EQ(WhyNodeCannot(c.nodes[i], anywhere).empty(), capacities[i] > 0);
    }

    const Placement placement = PlaceGang(c.nodes, c.request);
    if (const auto* refusal = std::get_if<Refusal>(&placement)) {
      ++refused;
      ASSERT_TRUE(expected.domains.empty()) << refusal->reason;
      ASSERT_EQ(refusal->never_fits_known_nodes, !expected.possible_idle)
          << refusal->reason;
      continue;
    }
    ++placed;
    const Plan& plan = std::get<Plan>(placement);
    ExpectNothingTakenTwice(plan, c);
    ExpectWhole(plan, c.request.num_workers);
    ExpectTheBest(plan, c, expected);
    if (testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(PlaceGang(c.nodes, c.request), placement);
  }
  EXPECT_GT(placed, 300);
  EXPECT_GT(refused, 300);
}

// PI-1 to PI-3: what an index went through leaves no trace.
TEST(PlacementPropertyTest, AnIndexThatChangedAnswersAsAFreshOne) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(absl::StrCat("seed ", seed, " round ", round));
    PlacementIndex index;
    std::map<NodeId, NodeSnapshot> nodes;
    for (int step = 0; step < 40; ++step) {
      const Case c = RandomCase(random);
      for (const NodeSnapshot& node : c.nodes) {
        if (random.Below(4) == 0) {
          index.Remove(node.id);
          nodes.erase(node.id);
        } else {
          index.Put(node);
          nodes[node.id] = node;
        }
      }
      std::vector<NodeSnapshot> now;
      for (const auto& [id, node] : nodes) now.push_back(node);
      ASSERT_EQ(PlaceGang(index, c.request), PlaceGang(now, c.request));
      ASSERT_EQ(index.size(), now.size());
    }
    for (const auto& [id, node] : nodes) index.Remove(id);
    EXPECT_TRUE(index.all().empty());
    EXPECT_TRUE(index.DomainsOf("rack").empty());
  }
}

TEST(PlacementPropertyTest, TheOrderOfTheNodesDoesNotMatter) {
  SeededRandom random(TestSeed());
  for (int round = 0; round < 500; ++round) {
    Case c = RandomCase(random);
    const Placement forward = PlaceGang(c.nodes, c.request);
    std::reverse(c.nodes.begin(), c.nodes.end());
    const Placement backward = PlaceGang(c.nodes, c.request);
    ASSERT_EQ(forward, backward);
  }
}

}  // namespace
}  // namespace cohort::head
