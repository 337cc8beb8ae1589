// EX-4 against trying it: the change is made, those who are named are held, and
// the line is gone through as the head does.

#include "head/explain/competition.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
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
#include "head/placement/placement.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

JobRecord JobOf(const GangRequest& request, uint64_t sequence, Random& random) {
  JobRecord job;
  job.id = JobId::New(random);
  job.sequence = sequence;
  JobSpec& spec = job.spec.Own();
  spec.num_workers = request.num_workers;
  spec.resources_per_worker = request.per_worker;
  spec.strategy = request.strategy;
  if (!request.selector.empty()) {
    spec.selectors = {request.selector.ToString()};
  }
  spec.tolerations = request.tolerations;
  spec.accelerator_type = request.accelerator_type;
  spec.topology = request.topology;
  return job;
}

// A world and those who wait in it.
class Queue {
 public:
  explicit Queue(World world) : world_(std::move(world)) {}

  // Nothing when it fits: it would not wait.
  bool Add(const GangRequest& request) {
    if (world_.Holds(request)) return false;
    waiting_.push_back(JobOf(request, waiting_.size() + 1, random_));
    line_.Add(waiting_.back());
    return true;
  }

  Overtaking Ask(const JobRecord& job, const Remedy& remedy) const {
    const GangRequest request = RequestOf(*job.spec);
    const ChangeForJob change{
        .remedy = remedy, .request = request, .after = {}};
    JobTable jobs;
    Eligibility eligibility(jobs);
    return WhoTakesIt(*world_.Nodes(), world_.Attempts(),
                      FindContenders(line_, eligibility, jobs, job,
                                     EndsOf(change, world_.Attempts()),
                                     StepsOf(change, world_.Attempts()) > 1),
                      change);
  }
  FullDiagnosis Explain(const JobRecord& job) const {
    return world_.Explain(RequestOf(*job.spec));
  }

  // Whether `job` starts once the change is made and `held` are, in whatever
  // order its steps come; of many in two.
  bool Starts(const JobRecord& job, const Remedy& remedy,
              const std::set<JobId>& held) const {
    std::vector<Step> steps;
    AddSteps(remedy, steps);
    std::vector<size_t> order(steps.size());
    std::iota(order.begin(), order.end(), 0);
    if (steps.size() > 3) {
      if (!Starts(job, steps, order, held)) return false;
      std::reverse(order.begin(), order.end());
      return Starts(job, steps, order, held);
    }
    do {
      if (!Starts(job, steps, order, held)) return false;
    } while (std::next_permutation(order.begin(), order.end()));
    return true;
  }

  size_t CountSteps(const Remedy& remedy) const {
    std::vector<Step> steps;
    AddSteps(remedy, steps);
    return steps.size();
  }

  const std::vector<JobRecord>& waiting() const { return waiting_; }

 private:
  using Step = std::function<void(World&)>;

  bool Starts(const JobRecord& job, const std::vector<Step>& steps,
              const std::vector<size_t>& order,
              const std::set<JobId>& held) const {
    World world = world_;
    std::set<JobId> started;
    for (const size_t step : order) {
      steps[step](world);
      for (const JobRecord& each : waiting_) {
        if (held.contains(each.id) || started.contains(each.id)) continue;
        if (world.Run(RequestOf(*each.spec)).has_value()) {
          started.insert(each.id);
        }
      }
      if (started.contains(job.id)) return true;
    }
    return false;
  }

  void AddSteps(const Remedy& remedy, std::vector<Step>& steps) const {
    for (const JobId& job : remedy.jobs) {
      for (const AttemptRecord& attempt : world_.attempts()) {
        if (attempt.job != job) continue;
        for (const AttemptPart& part : attempt.parts) {
          steps.emplace_back([job, node = part.node](World& world) {
            world.EndPart(job, node);
          });
        }
      }
    }
    for (const NodeId& node : remedy.nodes) {
      steps.emplace_back([node](World& world) {
        for (size_t i = 0; i < world.nodes().size(); ++i) {
          if (world.nodes()[i].record.id != node) continue;
          world = Opened(std::move(world), uint64_t{1} << i);
          return;
        }
      });
    }
    for (const NodeSnapshot& node : NewNodes(remedy)) {
      steps.emplace_back([node](World& world) {
        NodeRecord& added = world.AddNode("", node.labels);
        // Which of two equal nodes is taken is decided by their ids.
        added.id = node.id;
        added.resources = node.total;
        for (const DeviceShare& device : node.devices) {
          added.devices.push_back(
              {.id = absl::StrCat(added.name, device.id), .kind = "gpu"});
        }
        added.taints = node.taints;
        for (Device& device : added.devices) device.model = node.accelerator;
      });
    }
    for (const Remedy& part : remedy.parts) AddSteps(part, steps);
  }

  SeededRandom random_{2};
  World world_;
  WaitingLine line_;
  std::vector<JobRecord> waiting_;
};

Remedy EndOf(const JobId& job) {
  Remedy remedy{.kind = Remedy::Kind::kJobEnds};
  remedy.jobs = {job};
  return remedy;
}

TEST(CompetitionTest, NamesThoseWhoWouldTakeTheRoom) {
  World world;
  world.AddNode("CPU=4");
  world.AddNode("CPU=2", {{"zone", "a"}});
  const JobId holder = *world.Run(Gang(1, "CPU=4"));
  ASSERT_TRUE(world.Run(Gang(1, "CPU=2")).has_value());
  Queue queue(std::move(world));
  GangRequest in_zone = Gang(1, "CPU=2");
  in_zone.selector = *LabelSelector::Parse("zone=a");
  ASSERT_TRUE(queue.Add(in_zone));
  ASSERT_TRUE(queue.Add(Gang(1, "CPU=3")));
  ASSERT_TRUE(queue.Add(Gang(1, "CPU=5")));
  ASSERT_TRUE(queue.Add(Gang(1, "CPU=2")));
  ASSERT_TRUE(queue.Add(Gang(1, "CPU=1")));

  EXPECT_THAT(queue.Ask(queue.waiting()[1], EndOf(holder)).first, IsEmpty());
  EXPECT_THAT(queue.Ask(queue.waiting()[3], EndOf(holder)).first,
              ElementsAre(queue.waiting()[1].id));
  // What the one ahead leaves is enough.
  EXPECT_THAT(queue.Ask(queue.waiting()[4], EndOf(holder)).first, IsEmpty());
}

// What the first of two ends frees is enough for the one behind.
TEST(CompetitionTest, NamesThoseBehindWhoTakeWhatComesFreeOneByOne) {
  World world;
  world.AddNode("CPU=4");
  const JobId first = *world.Run(Gang(1, "CPU=2"));
  const JobId second = *world.Run(Gang(1, "CPU=2"));
  Queue queue(std::move(world));
  ASSERT_TRUE(queue.Add(Gang(1, "CPU=4")));
  ASSERT_TRUE(queue.Add(Gang(1, "CPU=1")));
  Remedy ends = EndOf(first);
  EXPECT_FALSE(queue.Ask(queue.waiting()[0], ends).helps);
  ends.jobs.push_back(second);

  EXPECT_THAT(queue.Ask(queue.waiting()[0], ends).first,
              ElementsAre(queue.waiting()[1].id));
  EXPECT_THAT(queue.Ask(queue.waiting()[1], EndOf(first)).first, IsEmpty());
}

// A queue of many equal jobs is the usual one.
TEST(CompetitionTest, NamesAllOfALongQueue) {
  World world;
  world.AddNode("CPU=4");
  const JobId holder = *world.Run(Gang(1, "CPU=4"));
  Queue queue(std::move(world));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(queue.Add(Gang(1, "CPU=1")));
  ASSERT_TRUE(queue.Add(Gang(1, "CPU=2")));
  const Overtaking told = queue.Ask(queue.waiting().back(), EndOf(holder));
  EXPECT_TRUE(told.known);
  const std::set<JobId> held(told.first.begin(), told.first.end());
  EXPECT_TRUE(queue.Starts(queue.waiting().back(), EndOf(holder), held));
}

TEST(CompetitionTest, WhoWantsSomethingElseDoesNotCompete) {
  World world;
  world.AddNode("CPU=4,GPU=2", {{"zone", "a"}});
  world.AddNode("CPU=4", {{"zone", "b"}}).taints = {{.key = "lab"}};
  const std::unique_ptr<NodeTable> nodes = world.Nodes();
  const GangRequest request = Gang(1, "CPU=4,GPU=1");
  Competition competition(nodes->index(), request);

  EXPECT_TRUE(competition.With(Gang(1, "CPU=1")));
  EXPECT_TRUE(competition.With(Gang(1, "GPU=0.5")));
  EXPECT_FALSE(competition.With(Gang(1, "license=1")));
  EXPECT_FALSE(competition.With(Gang(1, "CPU=5")));
  GangRequest elsewhere = Gang(1, "CPU=1");
  elsewhere.selector = *LabelSelector::Parse("zone=b");
  EXPECT_FALSE(competition.With(elsewhere));
  elsewhere.selector = *LabelSelector::Parse("host=n1");
  EXPECT_TRUE(competition.With(elsewhere));
  elsewhere.selector = *LabelSelector::Parse("host!=n1");
  EXPECT_FALSE(competition.With(elsewhere));
}

// EX-4.
TEST(CompetitionPropertyTest, WhatIsToldIsWhatHappens) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  int told = 0;
  int overtaken = 0;
  int in_steps = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round, " of COHORT_SEED=", seed));
    Queue queue(RandomWorld(random));
    for (int i = 0; i < 4; ++i) queue.Add(RandomRequest(random));
    if (queue.waiting().empty()) continue;
    const JobRecord& job =
        queue.waiting()[random.Below(queue.waiting().size())];
    for (const Remedy& remedy : queue.Explain(job).remedies.found) {
      if (IsOfRequest(remedy.kind)) continue;
      const Overtaking overtaking = queue.Ask(job, remedy);
      ASSERT_TRUE(overtaking.known);
      ASSERT_TRUE(overtaking.helps);
      const std::set<JobId> held(overtaking.first.begin(),
                                 overtaking.first.end());
      ASSERT_TRUE(queue.Starts(job, remedy, held)) << RemedyName(remedy.kind);
      ++told;
      if (held.empty()) continue;
      ++overtaken;
      const size_t steps = queue.CountSteps(remedy);
      in_steps += steps > 1;
      if (steps > 3) continue;
      for (const JobId& one : overtaking.first) {
        std::set<JobId> fewer = held;
        fewer.erase(one);
        ASSERT_FALSE(queue.Starts(job, remedy, fewer))
            << RemedyName(remedy.kind);
      }
    }
  }
  EXPECT_GT(told, 50);
  EXPECT_GT(overtaken, 5);
  EXPECT_GT(in_steps, 5);
}

}  // namespace
}  // namespace cohort::head
