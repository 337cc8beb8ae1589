#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/actor_service.h"
#include "actor/call_error.h"
#include "actor/testing/test_caller.h"
#include "cohort/v1/actor.pb.h"
#include "common/random.h"
#include "common/strand.h"
#include "common/testing/manual_executor.h"
#include "rpc/authenticator.h"
#include "rpc/router.h"
#include "rpc/testing/loopback.h"

namespace cohort::shared_process_test {

using actor::ActorService;
using actor::TestCaller;
using ::testing::ElementsAre;
using ::testing::SizeIs;

// Three actors that share a process.
class SharedProcessTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kActors = 3;

  SharedProcessTest() {
    service_.Register(router_, strand_);
    network_.Listen("actor", &router_);
    caller_ = std::make_unique<TestCaller>(network_, executor_, "c");
    caller_->Open();
  }
  ~SharedProcessTest() override {
    Wait();
    network_.Unlisten("actor");
    Wait();
  }
  void Wait(absl::Duration time = absl::Milliseconds(100)) {
    executor_.AdvanceBy(time);
  }

  ManualExecutor executor_;
  SeededRandom random_{1};
  Strand strand_{executor_};
  rpc::LoopbackNetwork network_{{}, executor_, executor_, random_};
  rpc::Router router_{{}, rpc::Authenticator(TestCaller::Secret()), executor_};
  std::function<void(const std::string& ran)> during_;
  std::vector<std::string> ran_;  // "1:a": actor 1, arguments a
  ActorService service_{
      {.job_id = "job", .incarnation = 3},
      {{.runner = &executor_, .actors = kActors}},
      [this](const std::string& /*method*/, absl::string_view arguments,
             uint32_t actor) -> absl::StatusOr<std::string> {
        ran_.push_back(absl::StrCat(actor, ":", arguments));
        if (during_ != nullptr) during_(ran_.back());
        return std::string(arguments);
      }};
  std::unique_ptr<TestCaller> caller_;
};

TEST_F(SharedProcessTest, OneThatRunsHoldsUpItsOwnCallsOnly) {
  during_ = [&](const std::string& ran) {
    if (ran != "1:a") return;
    caller_->CallActor(2, 1, "b");
    caller_->CallActor(3, 2, "c");
    Wait();
    EXPECT_THAT(ran_, ElementsAre("1:a", "2:c"));
    EXPECT_THAT(caller_->Values(), ElementsAre("c"));
  };
  caller_->CallActor(1, 1, "a");
  Wait();
  Wait();
  EXPECT_THAT(ran_, ElementsAre("1:a", "2:c", "1:b"));
  EXPECT_THAT(caller_->Values(), ElementsAre("c", "a", "b"));
}

TEST_F(SharedProcessTest, ABusyOneLetsOthersHaveTheirTurn) {
  v1::ActorCalls calls;
  for (int i = 1; i <= 100; ++i) TestCaller::AddCall(i, "a", 0, calls);
  TestCaller::AddCall(101, "b", 0, calls);
  calls.mutable_calls(100)->set_actor(1);
  caller_->Write(calls);
  Wait();
  ASSERT_THAT(ran_, SizeIs(101));
  EXPECT_NE(ran_.back(), "1:b");
}

TEST_F(SharedProcessTest, WhatAnActorHasBegunIsItsOwn) {
  during_ = [&](const std::string& ran) {
    if (ran != "0:slow") return;
    // Another stream, on which all are sent again: the first runs, the second
    // has a result, the third has not begun.
    TestCaller again(network_, executor_, "c");
    again.Open("job", 3, /*sent=*/3);
    again.CallActor(1, 0, "slow");
    again.CallActor(2, 2, "b");
    again.CallActor(3, 0, "c");
    Wait();
    EXPECT_THAT(again.Values(), ElementsAre("b"));
    EXPECT_THAT(ran_, ElementsAre("0:slow", "2:b"));
  };
  caller_->CallActor(1, 0, "slow");
  caller_->CallActor(2, 2, "b");
  caller_->CallActor(3, 0, "c");
  Wait();
}

TEST_F(SharedProcessTest, OneThatIsNotThereSaysSo) {
  caller_->CallActor(1, kActors, "a");
  caller_->CallActor(2, 0, "b");
  Wait();
  EXPECT_THAT(ran_, ElementsAre("0:b"));
  ASSERT_THAT(caller_->results, SizeIs(2));
  EXPECT_EQ(caller_->results[0].failure().reason(), kReasonNoMethod);
}

TEST_F(SharedProcessTest, ACancelledCallTakesNoTurn) {
  during_ = [&](const std::string& ran) {
    if (ran != "1:a") return;
    caller_->CallActor(2, 1, "b");
    caller_->CallActor(3, 1, "c");
    caller_->Cancel(2);
    Wait();
  };
  caller_->CallActor(1, 1, "a");
  Wait();
  EXPECT_THAT(ran_, ElementsAre("1:a", "1:c"));
}

}  // namespace cohort::shared_process_test
