// Arrays whose package the head lost.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/hash.h"
#include "common/testing/status_matchers.h"
#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

// An array of four on a node with room for one; the last one is held.
class LostPackageTest : public ClusterStateTest {
 protected:
  LostPackageTest() {
    Complete();
    Join(a_, 1);
    JobSpec spec = Spec(1, 1);
    spec.mutable_launch()->set_package_hash(hash_);
    spec.set_array("0-3");
    array_ = SubmitJob(spec);
    EXPECT_EQ(StateOf(array_.Element(0)), v1::JOB_STATE_STARTING);
    Transition transition;
    COHORT_EXPECT_OK(state_->HoldJob(
        {.principal = "ann", .request_id = "h", .body_hash = "h"},
        array_.Element(3), transition));
    Submit(std::move(transition));
  }

  void Complete() {
    Transition transition;
    state_->CompletePackage(hash_, 10, transition);
    Submit(std::move(transition));
  }
  void Lose() {
    Transition transition;
    state_->LosePackage(hash_, "its file is gone", transition);
    Submit(std::move(transition));
  }
  void SayLost() {
    Say(a_, FailedBy(At(array_.Element(0), Stage::kPreparing),
                     v1::END_CAUSE_PACKAGE_LOST, "the head does not have it"));
  }

  const std::string hash_{Sha256::Of("package").bytes()};
  JobId array_;
};

TEST_F(LostPackageTest, ElementsThatWaitEndAtOnceAndSayWhy) {
  Lose();
  SayLost();
  for (uint32_t i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const JobRecord& job = Job(array_.Element(i));
    EXPECT_EQ(job.row.state(), v1::JOB_STATE_FAILED);
    EXPECT_EQ(job.row.failure_class(), v1::FAILURE_CLASS_INFRA);
    EXPECT_EQ(job.row.failures(), 0);
    EXPECT_EQ(job.row.attempts(), i == 0 ? 1 : 0) << "not tried";
    EXPECT_THAT(job.row.reason(), HasSubstr("the head does not have it"));
  }
  EXPECT_THAT(Job(array_.Element(2)).row.reason(),
              HasSubstr("as job " + array_.Element(0).ToText()));
  EXPECT_EQ(StateOf(array_.Element(3)), v1::JOB_STATE_PENDING);
}

TEST_F(LostPackageTest, OneThatWasUploadedAgainKeepsThemInLine) {
  Lose();
  Complete();
  SayLost();
  EXPECT_EQ(StateOf(array_.Element(0)), v1::JOB_STATE_FAILED);
  EXPECT_EQ(StateOf(array_.Element(1)), v1::JOB_STATE_STARTING);
}

}  // namespace
}  // namespace cohort::head
