#include "actor/group_relay.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_error.h"
#include "actor/testing/scripted_actor.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "rpc/testing/loopback.h"

namespace cohort::actor {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string RelaySecret() { return std::string(32, 's'); }

class GroupRelayTest : public ::testing::Test {
 protected:
  GroupRelayTest() { Make(64); }
  ~GroupRelayTest() override {
    relay_.reset();
    for (const auto& [rank, actor] : actors_) {
      network_.Unlisten(AddressOf(rank));
    }
    // Calls that are there yet are sent again once, and then end.
    executor_.AdvanceBy(absl::Seconds(30));
  }

  static std::string AddressOf(int rank) { return absl::StrCat("rank-", rank); }

  void Make(size_t channels_max) {
    relay_.reset();
    relay_ = std::make_unique<GroupRelay>(
        GroupRelay::Options{.job_id = "job",
                            .secret = RelaySecret(),
                            .channels_max = channels_max},
        [this](const std::vector<std::string>& addresses,
               const std::string& secret)
            -> absl::StatusOr<std::unique_ptr<rpc::Channel>> {
          return network_.Connect("relay", addresses[0],
                                  *rpc::Credential::FromBytes(secret));
        },
        executor_, executor_, random_);
  }
  ScriptedActor& Serve(int rank) {
    auto& actor = actors_[rank];
    actor = std::make_unique<ScriptedActor>(executor_, RelaySecret());
    network_.Listen(AddressOf(rank), &actor->router());
    return *actor;
  }
  void Wait(absl::Duration time = absl::Milliseconds(100)) {
    executor_.AdvanceBy(time);
  }
  // A flush: it needs no method of this program.
  size_t Relay(const std::vector<int>& ranks, uint64_t incarnation = 1) {
    GroupCall call{.method = kFlushMethod};
    for (const int rank : ranks) {
      call.members.push_back({.rank = rank,
                              .incarnation = incarnation,
                              .addresses = {AddressOf(rank)}});
    }
    const size_t index = ends_.size();
    ends_.emplace_back();
    relay_->Relay(*EncodeValue(call), [this, index](auto end) {
      ends_[index].push_back(std::move(end));
    });
    Wait();
    return index;
  }

  ManualExecutor executor_;
  SeededRandom random_{1};
  rpc::LoopbackNetwork network_{{}, executor_, executor_, random_};
  std::map<int, std::unique_ptr<ScriptedActor>> actors_;
  std::unique_ptr<GroupRelay> relay_;
  std::vector<std::vector<absl::StatusOr<std::string>>> ends_;
};

TEST_F(GroupRelayTest, AMemberThatDidNotServeHoldsUpNothing) {
  GroupCall call{.method = kFlushMethod};
  call.members.push_back({.rank = 3, .addresses = {}, .actors = {}});
  int ends = 0;
  relay_->Relay(*EncodeValue(call), [&](const auto& end) {
    EXPECT_TRUE(end.ok());
    ++ends;
  });
  Wait();
  EXPECT_EQ(ends, 1);
}

TEST_F(GroupRelayTest, CallsItselfAndTheOthersAndAnswersOnce) {
  for (const int rank : {0, 1, 2}) Serve(rank);
  const size_t call = Relay({0, 1, 2});
  for (const auto& [rank, actor] : actors_) {
    ASSERT_THAT(actor->calls(), SizeIs(1)) << rank;
    EXPECT_THAT(ends_[call], IsEmpty());
    actor->Answer(1, absl::StrCat("v", rank));
    Wait();
  }
  ASSERT_THAT(ends_[call], SizeIs(1));
  const auto result = DecodeValue<SliceResult>(*ends_[call][0]);
  EXPECT_THAT(result->values, ::testing::ElementsAre("v0", "v1", "v2"));
}

TEST_F(GroupRelayTest, KeepsItsChannels) {
  Serve(1);
  Relay({1});
  actors_.at(1)->Answer(1, "");
  Relay({1});
  EXPECT_THAT(actors_.at(1)->opens(), SizeIs(1));
  EXPECT_THAT(actors_.at(1)->calls(), SizeIs(2));
}

TEST_F(GroupRelayTest, ClosesOneThatIsIdleForAnother) {
  Make(1);
  Serve(1);
  Serve(2);
  Relay({1});
  actors_.at(1)->Answer(1, "");
  Wait();
  Relay({2});
  EXPECT_THAT(actors_.at(2)->calls(), SizeIs(1));
  // Which has a call: there is no room.
  const size_t refused = Relay({1});
  ASSERT_THAT(ends_[refused], SizeIs(1));
  EXPECT_THAT(actors_.at(1)->calls(), SizeIs(1));
}

TEST_F(GroupRelayTest, WhoIsGoneEndsTheCall) {
  const size_t call = Relay({1});
  Wait(absl::Seconds(1));
  EXPECT_THAT(ends_[call], SizeIs(1));
}

TEST_F(GroupRelayTest, RefusesWhatIsNoCall) {
  std::vector<absl::StatusOr<std::string>> ends;
  relay_->Relay("x", [&ends](auto end) { ends.push_back(std::move(end)); });
  ASSERT_THAT(ends, SizeIs(1));
  EXPECT_EQ(GetReason(ends[0].status()), kReasonBadArguments);
}

}  // namespace
}  // namespace cohort::actor
