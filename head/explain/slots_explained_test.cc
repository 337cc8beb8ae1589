// What explain tells of jobs that run while slots of them wait for room.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/explain/explanation.h"
#include "head/state/testing/cluster_state_fixture.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class SlotsExplainedTest : public ClusterStateTest {
 protected:
  v1::ExplainJobResponse Why(const JobId& job, bool read_only = false) {
    return explainer_.Explain(*state_, Job(job), read_only);
  }
  static std::vector<std::string> Changes(const v1::ExplainJobResponse& why) {
    std::vector<std::string> texts;
    for (const v1::Remedy& change : why.changes()) {
      texts.push_back(change.text());
    }
    return texts;
  }
  std::string NameOf(const NodeId& node) {
    return state_->nodes().Find(node)->node.name();
  }

  JobId RunOne(JobSpec spec) {
    spec.mutable_run()->set_restart(v1::RESTART_POLICY_ONE);
    spec.mutable_run()->set_max_failures(-1);
    const JobId job = SubmitJob(std::move(spec));
    Run(job);
    return job;
  }
  bool Waits(const JobId& job, size_t slot) {
    return Attempt(job).processes.at(slot).waits();
  }
  void Resize(const JobId& job, int workers) {
    Transition transition;
    COHORT_ASSERT_OK(state_->ResizeJob(Key(), job, workers, transition));
    Submit(std::move(transition));
  }
  void Drain(const NodeId& node, absl::Duration deadline) {
    Transition transition;
    COHORT_ASSERT_OK(state_->DrainNode(
        Key(), node.ToHex(), {.reason = "", .deadline = deadline}, transition));
    Submit(std::move(transition));
  }

 private:
  RequestKey Key() {
    return {.principal = "ada",
            .request_id = absl::StrCat("key-", ++keys_),
            .body_hash = "h"};
  }

  Explainer explainer_{limits_.history.wait_reasons, time_, {}};
  int keys_ = 0;
};

TEST_F(SlotsExplainedTest, AResizeThatWaitsIsToldWhatLetsItsRanksStart) {
  Join(a_, 3);
  const JobId job = RunOne(Spec(2, 1));
  EXPECT_THAT(Changes(Why(job)), IsEmpty());
  Resize(job, 6);
  const v1::ExplainJobResponse why = Why(job);
  EXPECT_THAT(Changes(why),
              ElementsAre("rank 2: 3 workers instead of 6",
                          absl::StrCat("ranks 2 to 5: 1 more node like ",
                                       NameOf(a_), " (CPU 3)")));
  EXPECT_EQ(why.changes(0).how(),
            absl::StrCat("cohort jobs resize ", job.ToText(), " 3"));
  EXPECT_TRUE(why.changes_complete());
  Resize(job, 3);
  EXPECT_FALSE(Waits(job, 2));
  EXPECT_THAT(Changes(Why(job)), IsEmpty());
}

// Nothing but its number of ranks can be changed of a job that runs.
TEST_F(SlotsExplainedTest, ALostRankIsToldWhatTheClusterLacks) {
  Join(a_, 1);
  Join(b_, 1);
  JobSpec spec = Spec(2, 1);
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_SPREAD);
  const JobId job = RunOne(spec);
  const NodeId lost = Attempt(job).processes[1].node;
  Pass(absl::Seconds(11), {lost == a_ ? b_ : a_});
  ASSERT_TRUE(Waits(job, 1));
  EXPECT_THAT(
      Changes(Why(job)),
      ElementsAre(absl::StrCat("rank 1: ", NameOf(lost), " coming back"),
                  "rank 1: 1 node with CPU 1"));
}

TEST_F(SlotsExplainedTest, TheEndOfItsOwnJobHelpsNoRank) {
  Join(a_, 4);
  JobSpec spec = Spec(2, 1);
  spec.mutable_scaling()->set_placement_strategy(
      v1::PLACEMENT_STRATEGY_STRICT_PACK);
  const JobId job = RunOne(spec);
  const JobId other = SubmitJob(Spec(1, 2));
  Run(other);
  Resize(job, 4);
  ASSERT_TRUE(Waits(job, 2));
  EXPECT_THAT(Changes(Why(job)),
              ElementsAre(absl::StrCat("ranks 2 to 3: the end of job ",
                                       other.ToText())));
  const v1::ExplainJobResponse while_read_only = Why(job, /*read_only=*/true);
  EXPECT_THAT(Changes(while_read_only), IsEmpty());
  EXPECT_EQ(while_read_only.blockers(0).kind(), "read_only");
  Say(a_, Exited(other, a_, 0));
  EXPECT_FALSE(Waits(job, 3));
}

TEST_F(SlotsExplainedTest, RanksThatAskForTheSameAreToldOnce) {
  Join(a_, 3);
  const JobId job = RunOne(Spec(3, 1));
  Drain(a_, absl::Seconds(1));
  Pass(absl::Seconds(2), {a_});
  v1::ObservedPlace stopped = Exited(job, a_, 143, /*by_order=*/true);
  Say(a_, stopped);
  ASSERT_TRUE(Waits(job, 0) && Waits(job, 1) && Waits(job, 2));
  const v1::ExplainJobResponse why = Why(job);
  EXPECT_THAT(why.blockers(), SizeIs(1));
  EXPECT_THAT(Changes(why),
              ElementsAre(absl::StrCat("rank 0: undrain ", NameOf(a_)),
                          absl::StrCat("rank 0: 1 more node like ", NameOf(a_),
                                       " (CPU 3)")));
}

}  // namespace
}  // namespace cohort::head
