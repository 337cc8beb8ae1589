#include "worker/own_drain.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "rpc/methods.h"
#include "rpc/testing/loopback.h"
#include "rpc/wire_values.h"
#include "worker/testing/node_state_fixture.h"

namespace cohort::worker {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

class OwnDrainTest : public NodeStateTest {
 protected:
  OwnDrainTest() {
    router_.Handle(rpc::kDrainNode, executor_,
                   [this](const std::shared_ptr<rpc::CallContext>&,
                          const v1::DrainNodeRequest& request,
                          rpc::Reply<v1::DrainNodeResponse> reply) {
                     asked_.push_back(request);
                     if (away_) {
                       return std::move(reply)(absl::UnavailableError("away"));
                     }
                     std::move(reply)(v1::DrainNodeResponse());
                   });
    network_.Listen("head", &router_);
  }
  void Begin(absl::Duration deadline) {
    drain_.emplace(node_, *channel_, *state_, executor_, executor_, random_);
    drain_->Begin(deadline, [this] { done_ = true; });
    executor_.AdvanceBy(absl::Milliseconds(500));
  }

  ManualExecutor executor_;
  const NodeId node_ = NodeId::New(random_);
  const rpc::Credential credential_ =
      *rpc::Credential::FromBytes(std::string(32, 'c'));
  rpc::LoopbackNetwork network_{{}, executor_, executor_, random_};
  rpc::Router router_{{}, rpc::Authenticator(credential_), executor_};
  const std::unique_ptr<rpc::Channel> channel_ =
      network_.Connect("worker", "head", credential_);
  std::optional<OwnDrain> drain_;
  std::vector<v1::DrainNodeRequest> asked_;
  bool away_ = false;
  bool done_ = false;
};

TEST_F(OwnDrainTest, ANodeWithoutAnythingGoesAndLeavesNoDrain) {
  Begin(absl::Minutes(1));
  EXPECT_TRUE(done_);
  EXPECT_THAT(asked_, IsEmpty());
}

TEST_F(OwnDrainTest, IsOverOnceTheHeadHasMovedWhatRuns) {
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(0);
  Begin(absl::Minutes(1));
  ASSERT_THAT(asked_, SizeIs(1));
  EXPECT_EQ(asked_[0].node(), node_.ToHex());
  EXPECT_EQ(rpc::FromWire(asked_[0].deadline()), absl::Minutes(1));
  executor_.AdvanceBy(absl::Seconds(50));
  EXPECT_FALSE(done_);
  EXPECT_THAT(asked_, SizeIs(1));
  Apply(Want(v1::GOAL_FORGET));
  executor_.AdvanceBy(absl::Seconds(1));
  EXPECT_TRUE(done_);
}

TEST_F(OwnDrainTest, AsksAgainWithWhatIsLeftAndEndsAfterTheDeadline) {
  Apply(Want(v1::GOAL_PREPARE));
  std::move(host_.prepared)(0);
  away_ = true;
  Begin(absl::Seconds(30));
  executor_.AdvanceBy(absl::Seconds(10));
  away_ = false;
  executor_.AdvanceBy(absl::Seconds(5));
  ASSERT_GT(asked_.size(), 2u);
  const size_t asked = asked_.size();
  EXPECT_LT(rpc::FromWire(asked_.back().deadline()), absl::Seconds(21));
  EXPECT_NE(asked_[0].request_id(), asked_[1].request_id());
  EXPECT_FALSE(done_);
  executor_.AdvanceBy(absl::Seconds(15) + OwnDrain::kMoveTime);
  EXPECT_TRUE(done_);
  EXPECT_THAT(asked_, SizeIs(asked));
}

}  // namespace
}  // namespace cohort::worker
