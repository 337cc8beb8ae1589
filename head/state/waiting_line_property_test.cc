// WL-1 against trying everything: whatever nodes and jobs do, nothing is left
// waiting that fits.  And WL-2: what came free for others wakes nobody.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/testing/seed.h"
#include "head/state/node_table.h"
#include "head/state/waiting_line.h"
#include "head/testing/job_specs.h"
#include "head/testing/messages.h"

namespace cohort::head {
namespace {

// A cluster in which jobs only come, are placed and go.
class Churn {
 public:
  explicit Churn(Random& random) : random_(random) {
    for (int n = 0; n < 5; ++n) {
      ids_.push_back(NodeId::New(random_));
      PutNode(n);
    }
  }

  void PutNode(size_t n) {
    const NodeId& id = ids_[n];
    NodeRecord record;
    record.id = id;
    record.node.set_name(absl::StrCat("n", n));
    SetResource(record.node, kCpu, Amount::FromUnits(Below(5)));
    const int64_t gpus = Below(4);
    SetResource(record.node, kGpu, Amount::FromUnits(gpus));
    for (int64_t g = 0; g < gpus; ++g) {
      AddDevice(record.node, {.id = absl::StrCat("g", g),
                              .kind = "gpu",
                              .model = Below(2) == 0 ? "H100" : "A100"});
    }
    const char* const racks[] = {"", "r0", "r1"};
    if (Below(4) > 0) SetLabels(record.node, {{"rack", racks[Below(3)]}});
    if (Below(4) == 0) AddTaint(record.node, "team");
    if (Below(5) == 0) record.node.mutable_drain();
    nodes_.Put(std::move(record));
    if (Below(5) > 0) nodes_.Offer(id);
  }

  void AddJob() {
    JobRecord job(JobId::New(random_));
    job.row.set_sequence(++sequence_);
    job.spec.Own().set_priority(static_cast<int>(Below(3)));
    job.spec.Own().mutable_scaling()->set_num_workers(
        static_cast<int>(1 + Below(5)));
    const int64_t gpu_parts[] = {0, 2'500, 5'000, 10'000, 20'000};
    SetResource(job.spec.Own(), kCpu, Amount::FromUnits(Below(3)));
    SetResource(job.spec.Own(), kGpu,
                Amount::FromTenThousandths(gpu_parts[Below(5)]));
    job.spec.Own().mutable_scaling()->set_placement_strategy(
        static_cast<PlacementStrategy>(1 + Below(4)));
    const char* const selectors[] = {
        "rack=r1",  "host!=n1",    "rack=\"\"", "host in (n2,n3)",
        "rack!=r1", "rack exists", "rack!=\"\""};
    if (Below(4) == 0)
      job.spec.Own().mutable_scaling()->add_selectors(selectors[Below(7)]);
    if (Below(2) == 0)
      *job.spec.Own().mutable_scaling()->add_tolerations() =
          rpc::ToWire(*Toleration::Parse("team"));
    if (Below(6) == 0)
      job.spec.Own().mutable_scaling()->set_accelerator_type("H100");
    if (Below(3) == 0) {
      SetTopology(job.spec.Own(), Below(2) == 0 ? "rack" : "host",
                  Below(2) == 0);
    }
    line_.Add(job);
    waiting_.emplace(job.id, std::move(job));
  }

  void EndOne() {
    if (running_.empty()) return;
    auto ended = running_.begin();
    std::advance(ended, Below(running_.size()));
    // Processes end one by one.
    auto& processes = ended->second;
    const size_t left = Below(2) == 0 ? 0 : Below(processes.size());
    while (processes.size() > left) {
      const auto& [node, process] = processes.back();
      nodes_.Release(ended->first, node, process);
      processes.pop_back();
    }
    if (processes.empty()) running_.erase(ended);
  }

  void ChangeANode() {
    const size_t n = Below(ids_.size());
    switch (Below(4)) {
      case 0:
        return nodes_.Withdraw(ids_[n], absl::UnixEpoch());
      case 1: {
        const AttemptId orphan = AttemptId::New(random_);
        orphans_.emplace_back(ids_[n], orphan);
        nodes_.SetOrphan(ids_[n], orphan, JobId(), AllOfIt());
        return;
      }
      case 2:
        for (const auto& [node, orphan] : orphans_) {
          nodes_.RemoveOrphan(node, orphan);
        }
        return orphans_.clear();
      default:
        return PutNode(n);
    }
  }

  void Step() {
    switch (Below(6)) {
      case 0:
      case 1:
        return AddJob();
      case 2:
      case 3:
        return EndOne();
      default:
        return ChangeANode();
    }
  }

  // As ClusterState does after each change; gives how many it tried in vain.
  int Pass() {
    int refused = 0;
    line_.Freed(nodes_.TakeGains(), nodes_.index());
    while (const std::optional<AskId> next = line_.Next()) {
      const JobRecord job = waiting_.at(next->job);
      Placement placement = PlaceGang(nodes_.index(), RequestOf(*job.spec));
      if (auto* refusal = std::get_if<Refusal>(&placement)) {
        line_.Refuse(*next, std::move(*refusal));
        ++refused;
        continue;
      }
      const AttemptId attempt = AttemptId::New(random_);
      for (const PlannedPart& planned : std::get<Plan>(placement).parts) {
        NodeTable::Held held{.each = ResourcesPerWorker(*job.spec)};
        for (const PlannedRank& rank : planned.ranks) {
          const Incarnation process{rank.rank, 1};
          held.processes.emplace(process, rank.devices);
          running_[attempt].emplace_back(planned.node, process);
        }
        nodes_.Hold(attempt, planned.node, std::move(held));
      }
      line_.Remove(job);
      waiting_.erase(job.id);
    }
    return refused;
  }

  void ExpectNobodyFits() const {
    for (const auto& [id, job] : waiting_) {
      const GangRequest request = RequestOf(*job.spec);
      ASSERT_TRUE(
          std::holds_alternative<Refusal>(PlaceGang(nodes_.index(), request)))
          << Describe(request) << " fits, but waits";
    }
  }

  size_t waiting() const { return waiting_.size(); }

 private:
  uint64_t Below(uint64_t n) { return random_.Below(n); }
  static NodeTable::Held AllOfIt() {
    NodeTable::Held held;
    held.everything = true;
    return held;
  }

  Random& random_;
  std::vector<NodeId> ids_;
  NodeTable nodes_;
  WaitingLine line_;
  uint64_t sequence_ = 0;
  std::map<JobId, JobRecord> waiting_;
  std::map<AttemptId, std::vector<std::pair<NodeId, Incarnation>>> running_;
  std::vector<std::pair<NodeId, AttemptId>> orphans_;
};

// WL-1.
TEST(WaitingLinePropertyTest, LeavesNobodyWaitingWhoFits) {
  const uint64_t seed = TestSeed();
  SeededRandom random(seed);
  int refused = 0;
  int tried_by_everything = 0;
  for (int round = 0; round < 20; ++round) {
    Churn churn(random);
    for (int step = 0; step < 150; ++step) {
      SCOPED_TRACE(
          absl::StrCat("seed ", seed, " round ", round, " step ", step));
      churn.Step();
      refused += churn.Pass();
      tried_by_everything += static_cast<int>(churn.waiting());
      churn.ExpectNobodyFits();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  // Far fewer than trying each waiting job after each change.
  EXPECT_LT(refused * 4, tried_by_everything);
}

// WL-2.
class WakeTest : public ::testing::Test {
 protected:
  WakeTest() {
    for (int n = 0; n < 2; ++n) {
      NodeRecord record;
      record.id = nodes_id_[n];
      record.node.set_name(absl::StrCat("n", n));
      SetResources(record.node,
                   *ParseResources(n == 0 ? "CPU=8,GPU=2" : "CPU=8"));
      if (n == 0) AddDevice(record.node, {.id = "g0", .kind = "gpu"});
      AddDevice(record.node, {.id = "g1", .kind = "gpu"});
      SetLabels(record.node, {{"zone", n == 0 ? "a" : "b"}});
      nodes_.Put(record);
      nodes_.Offer(record.id);
    }
    for (int n = 0; n < 2; ++n) {
      NodeTable::Held held{.each = nodes_.ResourcesOf(nodes_id_[n])};
      auto& devices = held.processes[kProcess];
      if (n == 0) {
        devices = {{"g0", Amount::FromUnits(1)}, {"g1", Amount::FromUnits(1)}};
      }
      nodes_.Hold(attempts_[n], nodes_id_[n], std::move(held));
    }
  }

  JobRecord Wait(int workers, const std::string& per_worker,
                 const std::string& selector = "") {
    JobRecord job(JobId::New(random_));
    job.row.set_sequence(++sequence_);
    job.spec.Own().mutable_scaling()->set_num_workers(workers);
    SetResources(job.spec.Own(), *ParseResources(per_worker));
    if (!selector.empty())
      job.spec.Own().mutable_scaling()->add_selectors(selector);
    line_.Add(job);
    Placement placement = PlaceGang(nodes_.index(), RequestOf(*job.spec));
    line_.Refuse(AskId{job.id}, std::get<Refusal>(std::move(placement)));
    return job;
  }

  // All that are tried again, in order.
  std::vector<JobId> Woken() {
    line_.Freed(nodes_.TakeGains(), nodes_.index());
    std::vector<JobId> woken;
    while (const auto next = line_.Next()) {
      woken.push_back(next->job);
      JobRecord job;
      for (const JobRecord& each : jobs_) {
        if (each.id == next->job) job = each;
      }
      line_.Remove(job);
    }
    return woken;
  }

  void Release(int n) { nodes_.Release(attempts_[n], nodes_id_[n], kProcess); }

  static constexpr Incarnation kProcess{0, 1};
  SeededRandom random_{1};
  const NodeId nodes_id_[2] = {NodeId::New(random_), NodeId::New(random_)};
  const AttemptId attempts_[2] = {AttemptId::New(random_),
                                  AttemptId::New(random_)};
  NodeTable nodes_;
  WaitingLine line_;
  uint64_t sequence_ = 0;
  std::vector<JobRecord> jobs_;
};

TEST_F(WakeTest, OnlyThoseWhoCouldUseWhatCameFreeAreTriedAgain) {
  jobs_ = {Wait(1, "GPU=1"),
           Wait(1, "CPU=1", "zone=a"),
           Wait(1, "CPU=1", "host=n1"),
           Wait(9, "CPU=1"),
           Wait(1, "CPU=9"),
           Wait(8, "CPU=1"),
           Wait(1, "GPU=0.5", "zone=b")};
  nodes_.TakeGains();
  Release(1);  // the node without GPUs
  EXPECT_EQ(Woken(), (std::vector<JobId>{jobs_[2].id, jobs_[5].id}));
  Release(0);
  EXPECT_EQ(Woken(),
            (std::vector<JobId>{jobs_[0].id, jobs_[1].id, jobs_[3].id}));
}

TEST_F(WakeTest, ANodeThatIsUndrainedOrNewWakesThoseItSuits) {
  jobs_ = {Wait(1, "CPU=1"), Wait(1, "license=1")};
  nodes_.TakeGains();
  NodeRecord node = *nodes_.Find(nodes_id_[1]);
  node.id = NodeId::New(random_);
  node.node.set_name("n2");
  node.node.mutable_drain();
  nodes_.Put(node);
  nodes_.Offer(node.id);
  EXPECT_TRUE(Woken().empty());
  node.node.clear_drain();
  nodes_.Put(node);
  EXPECT_TRUE(Woken().empty());
  nodes_.Offer(node.id);
  EXPECT_EQ(Woken(), (std::vector<JobId>{jobs_[0].id}));
}

}  // namespace
}  // namespace cohort::head
