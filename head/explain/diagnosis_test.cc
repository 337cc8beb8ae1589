#include "head/explain/diagnosis.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"
#include "head/explain/testing/world.h"
#include "head/placement/node_form.h"
#include "head/placement/placement.h"
#include "head/testing/messages.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> Kinds(const Diagnosis& full) {
  std::vector<std::string> kinds;
  for (const Remedy& remedy : full.remedies.found) {
    kinds.push_back(remedy.told.kind());
  }
  return kinds;
}

// The told one of a kind; null: none.
const Remedy* Told(const Diagnosis& full, const std::string& kind) {
  for (const Remedy& remedy : full.remedies.found) {
    if (remedy.told.kind() == kind) return &remedy;
  }
  return nullptr;
}

const Remedy& Find(const Diagnosis& full, const std::string& kind) {
  const Remedy* const told = Told(full, kind);
  if (told != nullptr) return *told;
  ADD_FAILURE() << "no " << kind;
  static const Remedy none;
  return none;
}

struct NodeFailure {
  explicit NodeFailure(const v1::NodeFailure& wire)
      : by(wire.by()),
        nodes(wire.nodes()),
        nodes_in_all(wire.nodes_in_all()),
        short_least(Amount::FromTenThousandths(wire.short_least())),
        short_median(Amount::FromTenThousandths(wire.short_median())),
        closest(wire.closest()),
        since(absl::FromUnixMicros(wire.since_us())) {}

  std::string by;
  int64_t nodes;
  int64_t nodes_in_all;
  Amount short_least;
  Amount short_median;
  std::string closest;
  absl::Time since;
};

NodeFailure Failure(const Diagnosis& full, const std::string& by,
                    const std::string& what) {
  for (const v1::NodeFailure& failure : full.blocker.failures()) {
    if (failure.by() == by && failure.what() == what) {
      return NodeFailure(failure);
    }
  }
  ADD_FAILURE() << "nothing fails by " << by << " " << what;
  return NodeFailure({});
}

std::vector<std::string> Holders(const Diagnosis& full) {
  std::vector<std::string> holders;
  for (const v1::Holder& holder : full.blocker.holders()) {
    holders.push_back(HolderText(holder));
  }
  return holders;
}

TEST(DiagnosisTest, SaysNothingOfARequestThatFits) {
  World world;
  world.AddNode("CPU=4");

  const Diagnosis full = world.Explain(Gang(1, "CPU=1"));

  EXPECT_TRUE(full.fits);
  EXPECT_THAT(full.remedies.found, IsEmpty());
}

TEST(DiagnosisTest, TellsByHowMuchNodesAreShortAndWhoHoldsIt) {
  World world;
  world.AddNode("CPU=8,GPU=4");
  world.AddNode("CPU=8,GPU=2");
  const JobId big = *world.Run(Gang(3, "GPU=1,CPU=1"));
  GangRequest on_n2 = Gang(1, "GPU=1,CPU=1");
  on_n2.selector = *LabelSelector::Parse("host=n2");
  const JobId small = *world.Run(on_n2);

  const Diagnosis full = world.Explain(Gang(1, "CPU=1,GPU=2"));

  const NodeFailure gpu = Failure(full, "resource", "GPU");
  EXPECT_EQ(gpu.nodes, 2);
  EXPECT_EQ(gpu.short_least, Units(1));
  EXPECT_EQ(gpu.short_median, Units(1));
  EXPECT_FALSE(full.blocker.never_fits());
  EXPECT_THAT(Holders(full),
              ElementsAre(HolderText("GPU", big, Units(3), 1),
                          HolderText("GPU", small, Units(1), 1)));
  // The one that holds less.
  EXPECT_EQ(Find(full, "JOB_ENDS").ends, small);
}

// Its nodes have room one by one, but not together.
TEST(DiagnosisTest, TellsWhichDomainComesNearestAndWhatItLacks) {
  World world;
  world.AddNode("CPU=4", {{"rack", "r1"}});
  world.AddNode("CPU=4", {{"rack", "r1"}});
  world.AddNode("CPU=4", {{"rack", "r2"}});
  GangRequest request = Gang(9, "CPU=1");
  request.topology = {.level = "rack", .required = true};

  const Diagnosis full = world.Explain(request);

  const v1::Blocker& census = full.blocker;
  EXPECT_EQ(census.nodes_that_fit(), 2);
  EXPECT_EQ(census.workers_that_fit(), 8);
  const NodeFailure rack = Failure(full, "domain", "rack=r1");
  EXPECT_EQ(rack.nodes, 1);
  EXPECT_EQ(rack.nodes_in_all, 3);
  EXPECT_EQ(rack.short_least, Units(1));
  EXPECT_TRUE(full.blocker.never_fits());
}

TEST(DiagnosisTest, TellsHowManyDifferentNodesAreMissing) {
  World world;
  for (int i = 0; i < 3; ++i) world.AddNode("CPU=4", {{"rack", "r1"}});
  GangRequest request = Gang(4, "CPU=1");
  request.strategy = v1::PLACEMENT_STRATEGY_STRICT_SPREAD;

  const Diagnosis full = world.Explain(request);
  EXPECT_EQ(full.blocker.nodes_that_fit(), 3);
  EXPECT_EQ(full.blocker.workers_that_fit(), 3);
  const NodeFailure spread = Failure(full, "spread", "different nodes");
  EXPECT_EQ(spread.nodes, 0);
  EXPECT_EQ(spread.nodes_in_all, 3);
  EXPECT_EQ(spread.short_least, Units(1));

  request.topology = {.level = "rack", .required = true};
  const Diagnosis both = world.Explain(request);
  EXPECT_EQ(Failure(both, "domain", "rack=r1").short_least, Units(1));
  EXPECT_EQ(Failure(both, "spread", "different nodes").short_least, Units(1));
}

TEST(DiagnosisTest, TellsOfEachKindOfObstacle) {
  World world;
  world.AddNode("CPU=4,GPU=1", {{"zone", "a"}});
  AddTaint(world.AddNode("CPU=4,GPU=1", {{"zone", "b"}}).node, "lab");
  world.AddNode("CPU=4", {{"zone", "b"}});
  world.AddNode("CPU=4,GPU=1", {{"zone", "b"}}).node.mutable_drain();
  world.AddNode("CPU=4,GPU=1", {{"zone", "b"}}).state = v1::NODE_STATE_DEAD;
  world.AddNode("CPU=4,GPU=1", {{"zone", "b"}}).state = v1::NODE_STATE_SUSPECT;
  world.AddNode("CPU=4,GPU=1", {{"zone", "b"}});
  world.nodes().back().offered = false;
  world.AddNode("CPU=2,GPU=1", {{"zone", "b"}});
  world.AddNode("CPU=4,GPU=1", {{"zone", "b"}});
  world.nodes().back().not_ready = "/state: No space left on device";
  GangRequest request = Gang(1, "CPU=4,GPU=1");
  request.selector = *LabelSelector::Parse("zone=b");

  const Diagnosis full = world.Explain(request);

  EXPECT_EQ(full.blocker.nodes(), 9);
  EXPECT_EQ(full.blocker.nodes_that_fit(), 0);
  EXPECT_EQ(Failure(full, "label", "zone=b").nodes, 1);
  EXPECT_EQ(Failure(full, "taint", "lab").nodes, 1);
  EXPECT_EQ(Failure(full, "resource", "GPU").nodes, 1);
  EXPECT_EQ(Failure(full, "state", "DRAINED").nodes, 1);
  EXPECT_EQ(Failure(full, "state", "DEAD").nodes, 1);
  EXPECT_EQ(Failure(full, "state", "SUSPECT").nodes, 1);
  EXPECT_EQ(Failure(full, "state", "ABSENT").nodes, 1);
  EXPECT_EQ(Failure(full, "state", "NOT_READY: /state: No space left on device")
                .nodes,
            1);
  EXPECT_EQ(Failure(full, "resource", "CPU").short_least, Units(2));
  EXPECT_EQ(Failure(full, "resource", "CPU").closest, "n8");
  EXPECT_THAT(Kinds(full),
              ElementsAre("TOLERATE_TAINT", "DROP_SELECTOR", "LESS_OF_RESOURCE",
                          "NODE_RETURNS", "UNDRAIN", "MORE_NODES"));
}

TEST(DiagnosisTest, SaysSinceWhenNodesAreAway) {
  World world;
  world.AddNode("CPU=4");
  world.AddNode("CPU=4");
  NodeRecord& suspect = world.AddNode("CPU=4");
  suspect.state = v1::NODE_STATE_SUSPECT;
  *suspect.node.mutable_since() = rpc::ToWire(absl::FromUnixSeconds(30));
  const auto nodes = world.Nodes();
  nodes->Withdraw(world.nodes()[0].record.id, absl::FromUnixSeconds(20));
  nodes->Withdraw(world.nodes()[1].record.id, absl::FromUnixSeconds(10));

  const Diagnosis full =
      DiagnoseFully(*nodes, world.Attempts(), Gang(1, "CPU=1"));

  EXPECT_EQ(Failure(full, "state", "ABSENT").since, absl::FromUnixSeconds(10));
  EXPECT_EQ(Failure(full, "state", "SUSPECT").since, absl::FromUnixSeconds(30));
}

// It came back smaller than what it still has: more has to end than is asked
// for.
TEST(DiagnosisTest, ANodeThatHoldsMoreThanItHasLacksThatToo) {
  World world;
  world.AddNode("CPU=8");
  const JobId small = *world.Run(Gang(1, "CPU=2"));
  const JobId big = *world.Run(Gang(1, "CPU=6"));
  SetResources(world.nodes()[0].record.node, Resources("CPU=4"));

  const Diagnosis full = world.Explain(Gang(1, "CPU=2"));

  EXPECT_EQ(Failure(full, "resource", "CPU").short_least, Units(6));
  EXPECT_EQ(Find(full, "JOB_ENDS").ends, big);
  world.EndJob(small);
  EXPECT_FALSE(world.Holds(Gang(1, "CPU=2")));
  EXPECT_EQ(Failure(world.Explain(
                        Gang(2, "CPU=2", v1::PLACEMENT_STRATEGY_STRICT_PACK)),
                    "resource", "CPU")
                .short_least,
            Units(6));
}

// Parts of GPUs that are taken make no whole one.
TEST(DiagnosisTest, TellsHowManyWholeGpusAreMissing) {
  World world;
  world.AddNode("CPU=8,GPU=4");
  for (int i = 0; i < 4; ++i) (void)*world.Run(Gang(1, "CPU=1,GPU=0.51"));
  const auto lack = [&](const GangRequest& request) {
    return Failure(world.Explain(request), "resource", "GPU").short_least;
  };
  EXPECT_EQ(lack(Gang(1, "GPU=1")), Units(1));
  EXPECT_EQ(lack(Gang(1, "GPU=2")), Units(2));
  EXPECT_EQ(lack(Gang(1, "GPU=0.5")), Amount::FromTenThousandths(100));
  GangRequest together = Gang(2, "GPU=0.5");
  together.strategy = v1::PLACEMENT_STRATEGY_STRICT_PACK;
  EXPECT_EQ(lack(together), Amount::FromTenThousandths(200));
}

// As where a restored attempt and one that only the node knows hold one GPU.
TEST(DiagnosisTest, AnOverdrawnNodeLacksMoreThanItsGpusShow) {
  NodeForm form;
  form.total = *ParseResources("GPU=2");
  form.shares = {Amount(), Units(1)};
  EXPECT_EQ(LackFor(form, {kGpu, Units(1)}, 1), Units(1));
  form.available = *ParseResources("GPU=1");
  EXPECT_EQ(LackFor(form, {kGpu, Units(1)}, 1), Amount());
}

// n1 is but one CPU short, yet it is its GPUs that keep it.
TEST(DiagnosisTest, TellsTheLackOfNodesThatAreCountedThere) {
  World world;
  world.AddNode("CPU=7,GPU=1");
  world.AddNode("CPU=2,GPU=8");
  world.AddNode("CPU=3,GPU=7");

  const Diagnosis full = world.Explain(Gang(1, "CPU=8,GPU=8"));

  const NodeFailure cpu = Failure(full, "resource", "CPU");
  EXPECT_EQ(cpu.nodes, 2);
  EXPECT_EQ(cpu.nodes_in_all, 3);
  EXPECT_EQ(cpu.short_least, Units(5));
  EXPECT_EQ(cpu.closest, "n3");
  const NodeFailure gpu = Failure(full, "resource", "GPU");
  EXPECT_EQ(gpu.nodes, 1);
  EXPECT_EQ(gpu.nodes_in_all, 2);
  EXPECT_EQ(gpu.short_least, Units(7));
  EXPECT_EQ(gpu.closest, "n1");
}

// Both lack most of their GPUs, and of CPUs some.
TEST(DiagnosisTest, TellsTheLackOfAllWhereNoneIsCounted) {
  World world;
  world.AddNode("CPU=7,GPU=1");
  world.AddNode("CPU=6,GPU=1");

  const Diagnosis full = world.Explain(Gang(1, "CPU=8,GPU=8"));

  const NodeFailure cpu = Failure(full, "resource", "CPU");
  EXPECT_EQ(cpu.nodes, 0);
  EXPECT_EQ(cpu.nodes_in_all, 2);
  EXPECT_EQ(cpu.short_least, Units(1));
}

TEST(DiagnosisTest, AGangOnOneHostLacksWhatAllOfItLacks) {
  World world;
  world.AddNode("CPU=4,GPU=1");
  world.AddNode("CPU=16,GPU=5");
  GangRequest request = Gang(4, "CPU=2,GPU=2");
  request.topology = {.level = kHostLevel, .required = true};

  const Diagnosis full = world.Explain(request);

  const NodeFailure gpu = Failure(full, "resource", "GPU");
  EXPECT_EQ(gpu.nodes, 2);
  EXPECT_EQ(gpu.short_least, Units(3));
  EXPECT_EQ(gpu.closest, "n2");
  EXPECT_EQ(gpu.short_median, Units(3));
  const NodeFailure cpu = Failure(full, "resource", "CPU");
  EXPECT_EQ(cpu.nodes_in_all, 1);
  EXPECT_EQ(cpu.short_least, Units(4));
}

TEST(DiagnosisTest, ANodeThatIsEmptiedIsDraining) {
  World world;
  world.AddNode("CPU=4");
  ASSERT_TRUE(world.Run(Gang(1, "CPU=1")).has_value());
  world.nodes()[0].record.node.mutable_drain();

  const Diagnosis full = world.Explain(Gang(1, "CPU=1"));

  EXPECT_EQ(Failure(full, "state", "DRAINING").nodes, 1);
  EXPECT_THAT(Find(full, "UNDRAIN").opened, SizeIs(1));
}

TEST(DiagnosisTest, KnowsWhatNeverFits) {
  World world;
  world.AddNode("CPU=4,GPU=1");

  const Diagnosis full = world.Explain(Gang(1, "GPU=8"));

  EXPECT_TRUE(full.blocker.never_fits());
  EXPECT_THAT(full.blocker.text(), HasSubstr("never fits these nodes"));
  EXPECT_THAT(Kinds(full), ElementsAre("LESS_OF_RESOURCE", "OTHER_NODES"));
  EXPECT_EQ(full.remedies.found[0].request.per_worker.Get(kGpu), Units(1));
  EXPECT_EQ(full.remedies.found[1].count, 1);
  EXPECT_EQ(full.remedies.found[1].model->total, Resources("GPU=8"));
}

TEST(DiagnosisTest, OtherNodesAreWhatTheRequestAsksFor) {
  World world;
  world.AddNode("CPU=4");
  GangRequest request = Gang(3, "CPU=1,GPU=0.5");
  request.selector = *LabelSelector::Parse("zone in (b,c),fast exists");
  request.accelerator_type = "H100";
  request.topology = {.level = "rack", .required = true};

  const Diagnosis full = world.Explain(request);

  const Remedy& other = Find(full, "OTHER_NODES");
  EXPECT_EQ(other.count, 3);
  EXPECT_EQ(other.model->total, Resources("CPU=1,GPU=1"));
  EXPECT_EQ(other.model->labels,
            (std::map<std::string, std::string>{
                {"fast", "any"}, {"rack", "new"}, {"zone", "b"}}));
  EXPECT_EQ(other.model->accelerator, "H100");
}

TEST(DiagnosisTest, ADeadNodeMayComeBack) {
  World world;
  world.AddNode("CPU=4");
  world.AddNode("CPU=8").state = v1::NODE_STATE_DEAD;

  const Diagnosis full = world.Explain(Gang(1, "CPU=6"));

  const Remedy& returns = Find(full, "NODE_RETURNS");
  ASSERT_THAT(returns.opened, SizeIs(1));
  EXPECT_EQ(returns.opened[0].id, world.nodes()[1].record.id);
}

// Neither fewer CPUs nor fewer GPUs alone are enough.
TEST(DiagnosisTest, TellsOfNoChangeThatIsNotEnoughByItself) {
  World world;
  AddTaint(world.AddNode("CPU=4,GPU=2", {{"zone", "a"}}).node, "lab");
  GangRequest request = Gang(1, "CPU=6,GPU=4");
  request.selector = *LabelSelector::Parse("zone exists");

  EXPECT_THAT(Kinds(world.Explain(request)), ElementsAre("OTHER_NODES"));
}

TEST(DiagnosisTest, WithoutNodesItCountsNone) {
  const Diagnosis full = World().Explain(Gang(1, "CPU=1"));

  EXPECT_TRUE(full.blocker.never_fits());
  EXPECT_EQ(full.blocker.nodes(), 0);
  EXPECT_THAT(Kinds(full), ElementsAre("OTHER_NODES"));
}

TEST(DiagnosisTest, AGangOnOneNodeIsShortOfWhatAllItsWorkersLack) {
  World world;
  world.AddNode("CPU=3");
  world.AddNode("CPU=2");

  const Diagnosis full =
      world.Explain(Gang(4, "CPU=1", v1::PLACEMENT_STRATEGY_STRICT_PACK));

  const NodeFailure cpu = Failure(full, "resource", "CPU");
  EXPECT_EQ(cpu.nodes, 2);
  EXPECT_EQ(cpu.short_least, Units(1));
  EXPECT_EQ(cpu.closest, "n1");
  EXPECT_THAT(Kinds(full), ElementsAre("OTHER_STRATEGY", "LESS_OF_RESOURCE",
                                       "FEWER_WORKERS", "OTHER_NODES"));
  EXPECT_EQ(Find(full, "FEWER_WORKERS").request.num_workers, 3);
  EXPECT_EQ(Find(full, "LESS_OF_RESOURCE").request.per_worker.Get(kCpu),
            Units(0.75));
}

TEST(DiagnosisTest, WhereSeveralJobsHadToEndTheirHoldersAreTold) {
  World world;
  world.AddNode("CPU=8,GPU=4");
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(world.Run(Gang(1, "GPU=1")));

  const Diagnosis full = world.Explain(Gang(1, "GPU=4"));

  EXPECT_THAT(Kinds(full), Not(Contains("JOB_ENDS")));
  EXPECT_THAT(Holders(full), SizeIs(4));
}

TEST(DiagnosisTest, MoreNodesAreAsFewAsCanBe) {
  World world;
  world.AddNode("CPU=2");
  world.AddNode("CPU=4");

  const Diagnosis full = world.Explain(Gang(15, "CPU=1"));

  const Remedy& more = Find(full, "MORE_NODES");
  EXPECT_EQ(more.count, 3);
  EXPECT_EQ(more.model->name, "n2");
  EXPECT_EQ(more.model->total, Resources("CPU=4"));
}

TEST(DiagnosisTest, StaysWithinItsLimits) {
  World world;
  for (int i = 0; i < 20; ++i) {
    world.AddNode(absl::StrCat("CPU=", i + 1));
    ASSERT_TRUE(world.Run(Gang(1, absl::StrCat("CPU=", i + 1))).has_value());
  }
  DiagnosisLimits limits;
  limits.leases_max = 3;
  limits.remedies.forms_max = 100;

  const Diagnosis full = DiagnoseFully(*world.Nodes(), world.Attempts(),
                                       Gang(1, "CPU=20"), limits);

  EXPECT_FALSE(full.blocker.holders_complete());
  EXPECT_FALSE(full.remedies.complete);
  EXPECT_THAT(Holders(full), SizeIs(3));
}

// ---- against brute force ----------------------------------------------------

bool TakesPart(const World::Node& node, const std::string& kind) {
  if (kind == "UNDRAIN") return node.record.node.has_drain();
  if (node.record.node.has_drain()) return false;
  return node.record.state != v1::NODE_STATE_ALIVE || !node.offered;
}

// The fewest nodes of the kind that have to take new work again.
std::optional<int> FewestOpened(const World& world, const GangRequest& request,
                                const std::string& kind) {
  uint64_t closed = 0;
  for (size_t i = 0; i < world.nodes().size(); ++i) {
    if (TakesPart(world.nodes()[i], kind)) closed |= uint64_t{1} << i;
  }
  std::optional<int> fewest;
  for (uint64_t which = 1; which <= closed; ++which) {
    if ((which & ~closed) != 0) continue;
    const int count = __builtin_popcountll(which);
    if (fewest.has_value() && *fewest <= count) continue;
    if (Opened(world, which).Holds(request)) fewest = count;
  }
  return fewest;
}

void CheckOpened(const World& world, const GangRequest& request,
                 const Diagnosis& full, const std::string& kind) {
  const std::optional<int> fewest = FewestOpened(world, request, kind);
  const Remedy* const told = Told(full, kind);
  ASSERT_EQ(told != nullptr, fewest.has_value()) << kind;
  if (told == nullptr) return;
  EXPECT_EQ(static_cast<int>(told->opened.size()), *fewest) << kind;
  uint64_t which = 0;
  for (size_t i = 0; i < world.nodes().size(); ++i) {
    for (const NodeSnapshot& node : told->opened) {
      if (node.id == world.nodes()[i].record.id) which |= uint64_t{1} << i;
    }
  }
  EXPECT_TRUE(Opened(world, which).Holds(request)) << kind;
}

bool HoldsWithout(World world, const JobId& job, const GangRequest& request) {
  world.EndJob(job);
  return world.Holds(request);
}

// The one that holds least of those whose end by itself is enough.
void CheckJobs(const World& world, const GangRequest& request,
               const Diagnosis& full) {
  const auto held = [&](const JobId& job) {
    ResourceSet sum;
    for (const AttemptRecord& attempt : world.attempts()) {
      if (attempt.job != job) continue;
      for (const Place& place : attempt.places) {
        sum.Add(world.HeldOn(attempt, place.node).resources());
      }
    }
    return std::make_pair(sum.Get(kGpu), sum.Get(kCpu));
  };
  const Remedy* const told = Told(full, "JOB_ENDS");
  bool any = false;
  for (const AttemptRecord& attempt : world.attempts()) {
    const JobId& job = attempt.job;
    const bool enough = HoldsWithout(world, job, request);
    any = any || enough;
    if (told != nullptr && held(job) < held(*told->ends)) {
      EXPECT_FALSE(enough) << job;
    }
  }
  ASSERT_EQ(told != nullptr, any);
  if (told == nullptr) return;
  EXPECT_TRUE(HoldsWithout(world, *told->ends, request));
}

World WithMore(World world, size_t like, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const NodeRecord model = world.nodes()[like].record;
    NodeRecord& added = world.AddNode("");
    const NodeId id = added.id;
    const std::string name = added.node.name();
    added = model;
    added.id = id;
    added.node.set_name(name);
    added.node.clear_drain();
    added.state = v1::NODE_STATE_ALIVE;
    for (Device& device : *added.node.mutable_devices()) {
      device.mutable_id()->append(name);
    }
  }
  return world;
}

void CheckMoreNodes(const World& world, const GangRequest& request,
                    const Diagnosis& full) {
  const Remedy* const told = Told(full, "MORE_NODES");
  // A gang never takes more nodes than it has workers.
  std::optional<int64_t> fewest;
  for (size_t like = 0; like < world.nodes().size(); ++like) {
    if (world.nodes()[like].record.state == v1::NODE_STATE_DEAD) continue;
    for (int64_t n = 1; n <= request.num_workers; ++n) {
      if (fewest.has_value() && *fewest <= n) break;
      if (WithMore(world, like, n).Holds(request)) fewest = n;
    }
  }
  ASSERT_EQ(told != nullptr, fewest.has_value());
  if (told == nullptr) return;
  EXPECT_EQ(told->count, *fewest);
  for (size_t like = 0; like < world.nodes().size(); ++like) {
    if (world.nodes()[like].record.node.name() != told->model->name) continue;
    EXPECT_TRUE(WithMore(world, like, told->count).Holds(request));
  }
}

void CheckOtherNodes(const World& world, const GangRequest& request,
                     const Diagnosis& full) {
  const Remedy* const told = Told(full, "OTHER_NODES");
  if (told == nullptr) {
    EXPECT_NE(Told(full, "MORE_NODES"), nullptr);
    return;
  }
  const std::unique_ptr<NodeTable> nodes = world.Nodes();
  for (int64_t count : {told->count - 1, told->count}) {
    std::vector<NodeSnapshot> all;
    for (const auto& [form, bucket] : nodes->index().all().buckets()) {
      for (const auto& [id, node] : bucket.nodes) all.push_back(*node);
    }
    Remedy some = *told;
    some.count = count;
    for (NodeSnapshot& node : NewNodes(some)) all.push_back(std::move(node));
    EXPECT_EQ(std::holds_alternative<Plan>(PlaceGang(all, request)),
              count == told->count);
  }
}

void CheckLess(const World& world, const GangRequest& request,
               const Diagnosis& full) {
  const std::unique_ptr<NodeTable> nodes = world.Nodes();
  for (const auto& [name, amount] : request.per_worker) {
    const Amount step = name == kGpu && amount >= Units(1)
                            ? Units(1)
                            : Amount::FromTenThousandths(1);
    Amount one_more = step;
    for (const Remedy& remedy : full.remedies.found) {
      const Amount left = remedy.request.per_worker.Get(name);
      if (remedy.told.kind() != "LESS_OF_RESOURCE" || left == amount) continue;
      one_more = left + step;
    }
    if (one_more >= amount) continue;
    GangRequest more = request;
    more.per_worker.Set(name, one_more);
    EXPECT_FALSE(Fits(nodes->index(), more)) << name;
  }
}

void CheckFewer(const World& world, const GangRequest& request,
                const Diagnosis& full) {
  const std::unique_ptr<NodeTable> nodes = world.Nodes();
  int most = 0;
  for (int n = 1; n < request.num_workers; ++n) {
    GangRequest fewer = request;
    fewer.num_workers = n;
    if (Fits(nodes->index(), fewer)) most = n;
  }
  const Remedy* const remedy = Told(full, "FEWER_WORKERS");
  const int told = remedy == nullptr ? 0 : remedy->request.num_workers;
  EXPECT_EQ(told, most);
}

// EX-1.
void CheckCensus(const World& world, const Diagnosis& full) {
  const v1::Blocker& census = full.blocker;
  EXPECT_EQ(census.nodes(), static_cast<int64_t>(world.nodes().size()));
  int64_t sum = census.nodes_that_fit();
  for (const v1::NodeFailure& each : census.failures()) {
    const NodeFailure failure(each);
    sum += failure.nodes;
    EXPECT_GE(failure.nodes_in_all, failure.nodes);
    EXPECT_LE(failure.short_least, failure.short_median);
    EXPECT_EQ(failure.by == "resource" || failure.by == "domain" ||
                  failure.by == "spread",
              failure.short_least > Amount());
  }
  EXPECT_EQ(sum, census.nodes());
  // Nor do the numbers say that all of it has room.
  EXPECT_LT(census.workers_that_fit(), census.num_workers());
}

std::string Show(const World& world, const GangRequest& request) {
  std::string text = Describe(request);
  const std::unique_ptr<NodeTable> table = world.Nodes();
  for (const World::Node& node : world.nodes()) {
    const NodeSnapshot shown = table->Imagine(node.record.id, {});
    absl::StrAppend(&text, "\n", shown.name, ": ", shown.available.ToString(),
                    " of ", shown.total.ToString(), ", ",
                    EnumText(table->ShownState(node.record.id)),
                    node.offered ? "" : ", not offered");
    for (const auto& [key, value] : shown.labels) {
      absl::StrAppend(&text, " ", key, "=", value);
    }
    for (const DeviceShare& device : shown.devices) {
      absl::StrAppend(&text, " ", device.free.ToString());
    }
  }
  return text;
}

// EX-2: each change that is told makes it fit, no smaller one of its kind does,
// and none is told only where there is none.
TEST(DiagnosisPropertyTest, TellsWhatAnExhaustiveSearchFinds) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  int refused = 0;
  std::map<std::string, int> told;
  for (int i = 0; i < 500; ++i) {
    const World world = RandomWorld(random);
    const GangRequest request = RandomRequest(random);
    SCOPED_TRACE(absl::StrCat("case ", i, " of COHORT_SEED=", seed, "\n",
                              Show(world, request)));
    const Diagnosis full = world.Explain(request);
    ASSERT_EQ(full.fits, world.Holds(request));
    if (full.fits) continue;
    ++refused;
    for (const std::string& kind : Kinds(full)) ++told[kind];
    EXPECT_TRUE(full.remedies.complete);
    CheckCensus(world, full);
    if (request.strategy == v1::PLACEMENT_STRATEGY_STRICT_SPREAD &&
        request.num_workers > 1 && request.topology.required &&
        request.topology.level == kHostLevel) {
      continue;  // makes no sense, whatever is changed in the cluster
    }
    const std::unique_ptr<NodeTable> nodes = world.Nodes();
    for (const Remedy& remedy : full.remedies.found) {
      if (!remedy.told.of_request()) continue;
      EXPECT_TRUE(Fits(nodes->index(), remedy.request));
    }
    CheckFewer(world, request, full);
    CheckLess(world, request, full);
    CheckOpened(world, request, full, "UNDRAIN");
    CheckOpened(world, request, full, "NODE_RETURNS");
    CheckJobs(world, request, full);
    CheckMoreNodes(world, request, full);
    CheckOtherNodes(world, request, full);
    if (HasFailure()) return;
  }
  EXPECT_GT(refused, 100);
  // Of 12 kinds; some are rare.
  EXPECT_GE(told.size(), 10u) << "kinds that were never told";
}

}  // namespace
}  // namespace cohort::head
