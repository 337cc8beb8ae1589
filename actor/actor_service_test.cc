#include "actor/actor_service.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
#include "actor/call_limits.h"
#include "actor/group_tree.h"
#include "actor/is_cancelled.h"
#include "actor/testing/test_caller.h"
#include "actor/wait_observer.h"
#include "cohort/v1/actor.pb.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/strand.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "rpc/authenticator.h"
#include "rpc/channel.h"
#include "rpc/credential.h"
#include "rpc/methods.h"
#include "rpc/testing/loopback.h"

namespace cohort::actor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;
using ::testing::SizeIs;

class ActorServiceTest : public ::testing::Test {
 protected:
  ActorServiceTest() {
    service_.Register(router_, strand_);
    network_.Listen("actor", &router_);
  }
  ~ActorServiceTest() override {
    Wait();
    network_.Unlisten("actor");
    Wait();
  }

  absl::StatusOr<std::string> Invoke(const std::string& method,
                                     const std::string& arguments) {
    EXPECT_LT(running_, most_running_);
    ++running_;
    ran_.push_back(arguments);
    if (during_ != nullptr) during_(arguments);
    --running_;
    if (method == "fail") {
      return SetReason(absl::UnknownError(arguments), kReasonException);
    }
    if (method == "large") return std::string(kResultBytesMax + 1, 'x');
    if (method == "mib") return std::string(1 << 20, 'x');
    return arguments;
  }

  void Wait(absl::Duration time = absl::Milliseconds(100)) {
    executor_.AdvanceBy(time);
  }

  ManualExecutor executor_;
  SeededRandom random_{1};
  Strand strand_{executor_};
  rpc::LoopbackNetwork network_{{}, executor_, executor_, random_};
  rpc::Router router_{{}, rpc::Authenticator(TestCaller::Secret()), executor_};
  // Called by calls that run.
  std::function<void(const std::string& arguments)> during_;
  int running_ = 0;
  int most_running_ = 1;
  std::vector<std::string> ran_;
  ActorService service_{
      {.job_id = "job", .incarnation = 3},
      {{.runner = &executor_},
       {.runner = &executor_, .group = "io", .max_concurrency = 2},
       {.runner = &executor_, .group = "tasks", .gives_way = true}},
      [this](const std::string& method, absl::string_view arguments,
             uint32_t /*actor*/) {
        return Invoke(method, std::string(arguments));
      }};
};

TEST_F(ActorServiceTest, RunsCallsInOrderAndAnswersEach) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  Wait();
  // Which is answered.
  EXPECT_EQ(caller.messages, 1);
  for (int i = 1; i <= 5; ++i) caller.Call(i, absl::StrCat(i));
  Wait();
  EXPECT_THAT(ran_, ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_THAT(caller.Values(), ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_EQ(caller.results[4].sequence(), 5u);
  EXPECT_FALSE(caller.closed.has_value());
}

TEST_F(ActorServiceTest, AnswersWithTheFailureOfAMethod) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  v1::ActorCalls calls;
  TestCaller::NameMethod(1, "fail", calls);
  TestCaller::AddCall(1, "boom", 1, calls);
  caller.Write(calls);
  Wait();
  ASSERT_THAT(caller.results, SizeIs(1));
  EXPECT_EQ(caller.results[0].failure().code(), 2);
  EXPECT_EQ(caller.results[0].failure().reason(), kReasonException);
  EXPECT_EQ(caller.results[0].failure().message(), "boom");
}

TEST_F(ActorServiceTest, RelaysAndFlushesWhileOthersWait) {
  std::vector<std::string> relayed;
  CallTarget::Done relay_done;
  service_.SetRelay([&](const std::string& arguments, CallTarget::Done done) {
    relayed.push_back(arguments);
    relay_done = std::move(done);
  });
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  v1::ActorCalls calls;
  TestCaller::NameMethod(1, kRelayMethod, calls);
  TestCaller::NameMethod(2, kFlushMethod, calls);
  TestCaller::AddCall(1, "mine", 0, calls);
  TestCaller::AddCall(2, "theirs", 1, calls);
  TestCaller::AddCall(3, "", 2, calls);
  TestCaller::AddCall(4, "withdrawn", 0, calls);
  calls.add_cancels(4);
  std::vector<std::string> relayed_before;
  during_ = [&](const auto&) { relayed_before = relayed; };
  caller.Write(calls);
  Wait();
  EXPECT_THAT(relayed_before, ElementsAre("theirs"));
  EXPECT_THAT(ran_, ElementsAre("mine"));
  EXPECT_THAT(caller.results, SizeIs(3));
  // It goes on once, whatever becomes of its stream.
  caller.Leave();
  Wait();
  TestCaller after(network_, executor_, "c");
  after.Open("job", 3, /*sent=*/4);
  v1::ActorCalls again;
  TestCaller::NameMethod(1, kRelayMethod, again);
  TestCaller::AddCall(2, "theirs", 1, again);
  after.Write(again);
  Wait();
  std::move(relay_done)("done");
  Wait();
  EXPECT_THAT(relayed, ElementsAre("theirs"));
  ASSERT_THAT(after.results, SizeIs(1));
  EXPECT_EQ(after.results[0].sequence(), 2u);
  EXPECT_EQ(after.results[0].value(), "done");
}

TEST_F(ActorServiceTest, WithoutARelayItSaysSo) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  v1::ActorCalls calls;
  TestCaller::NameMethod(1, kRelayMethod, calls);
  TestCaller::AddCall(1, "", 1, calls);
  caller.Write(calls);
  Wait();
  ASSERT_THAT(caller.results, SizeIs(1));
  EXPECT_EQ(caller.results[0].failure().reason(), kReasonNoMethod);
}

TEST_F(ActorServiceTest, AResultThatIsTooLargeIsAFailure) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  v1::ActorCalls calls;
  TestCaller::NameMethod(1, "large", calls);
  TestCaller::AddCall(1, "", 1, calls);
  caller.Write(calls);
  Wait();
  ASSERT_THAT(caller.results, SizeIs(1));
  EXPECT_EQ(caller.results[0].failure().reason(), kReasonTooLarge);
}

TEST_F(ActorServiceTest, RefusesCallsToAnother) {
  TestCaller job(network_, executor_, "a");
  job.Open("other job");
  TestCaller incarnation(network_, executor_, "b");
  incarnation.Open("job", 2);
  incarnation.Call(1, "1");
  TestCaller secret(network_, executor_, "c",
                    *rpc::Credential::FromBytes(std::string(32, 'x')));
  secret.Open();
  Wait();
  for (const TestCaller* caller : {&job, &incarnation}) {
    ASSERT_TRUE(caller->closed.has_value());
    EXPECT_THAT(*caller->closed, StatusIs(absl::StatusCode::kNotFound));
    EXPECT_EQ(GetReason(*caller->closed), kReasonWrongActor);
    EXPECT_EQ(caller->messages, 0);
  }
  ASSERT_TRUE(secret.closed.has_value());
  EXPECT_THAT(*secret.closed, StatusIs(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(ran_, IsEmpty());
}

TEST_F(ActorServiceTest, GarbageEndsItsOwnStreamOnly) {
  TestCaller good(network_, executor_, "good");
  good.Open();
  const auto call = [](uint64_t sequence, uint32_t method) {
    v1::ActorCalls calls;
    TestCaller::AddCall(sequence, "bad", method, calls);
    return calls;
  };
  v1::ActorCalls again;
  again.mutable_open()->set_job_id("job");
  again.mutable_open()->set_incarnation(3);
  v1::ActorCalls gap;
  gap.add_methods()->set_number(5);
  v1::ActorCalls late = call(1, 0);
  TestCaller::AddCall(1, "bad", 0, late);
  v1::ActorCalls unsent;
  unsent.set_results_taken(1);
  v1::ActorCalls large;
  TestCaller::AddCall(1, std::string(kArgumentsBytesMax + 1, 'x'), 0, large);
  std::vector<std::unique_ptr<TestCaller>> callers;
  for (const v1::ActorCalls& bad :
       {call(1, 7), unsent, call(0, 0), again, gap, late, large}) {
    callers.push_back(std::make_unique<TestCaller>(
        network_, executor_, absl::StrCat("bad ", callers.size())));
    callers.back()->Open();
    callers.back()->Write(bad);
  }
  callers.push_back(
      std::make_unique<TestCaller>(network_, executor_, "without open"));
  callers.back()->Write(call(1, 0));
  good.Call(1, "good");
  Wait(absl::Seconds(1));
  for (const auto& caller : callers) {
    ASSERT_TRUE(caller->closed.has_value());
    EXPECT_THAT(*caller->closed, StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(good.Values(), ElementsAre("good"));
  EXPECT_THAT(ran_, ElementsAre("good"));
}

TEST_F(ActorServiceTest, ReadsOthersWhileAMethodRunsAndRunsOneAtATime) {
  TestCaller a(network_, executor_, "a");
  TestCaller b(network_, executor_, "b");
  a.Open();
  b.Open();
  a.Call(1, "slow");
  during_ = [&](const std::string& arguments) {
    if (arguments != "slow") return;
    b.Call(1, "b1");
    a.Call(2, "a2");
    Wait();
    // A stream is opened, too.
    TestCaller c(network_, executor_, "c");
    c.Open();
    Wait();
    EXPECT_EQ(c.messages, 1);
  };
  Wait(absl::Seconds(5));
  EXPECT_THAT(ran_, SizeIs(3));
  EXPECT_THAT(a.Values(), ElementsAre("slow", "a2"));
  EXPECT_THAT(b.Values(), ElementsAre("b1"));
}

TEST_F(ActorServiceTest, CallsThatWereCancelledDoNotBegin) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  caller.Call(1, "slow");
  during_ = [&](const std::string& arguments) {
    if (arguments != "slow") return;
    caller.Call(2, "2");
    caller.Call(3, "3");
    caller.Cancel(2);
    caller.Cancel(1);
    caller.Cancel(9);
    Wait();
  };
  Wait(absl::Seconds(5));
  EXPECT_THAT(ran_, ElementsAre("slow", "3"));
  // At once, not in its turn.
  EXPECT_THAT(caller.Values(), ElementsAre("", "slow", "3"));
  EXPECT_EQ(caller.results[0].failure().reason(), kReasonCancelled);
}

TEST_F(ActorServiceTest, CallsThatRunSeeThatTheyWereCancelled) {
  TestCaller caller(network_, executor_, "c");
  TestCaller other(network_, executor_, "d");
  caller.Open();
  other.Open();
  caller.Call(1, "slow");
  std::vector<bool> seen;
  during_ = [&](const std::string& arguments) {
    if (arguments == "slow") {
      caller.Call(2, "2");
      other.Cancel(1);  // another's
      Wait();
      seen.push_back(IsCancelled());
      caller.Withdraw(1);  // it has begun
      Wait();
      seen.push_back(IsCancelled());
      caller.Cancel(1);
      Wait();
    }
    seen.push_back(IsCancelled());
  };
  Wait(absl::Seconds(5));
  EXPECT_THAT(seen, ElementsAre(false, false, true, false));
  EXPECT_THAT(caller.Values(), ElementsAre("slow", "2"));
  EXPECT_FALSE(IsCancelled());
}

TEST_F(ActorServiceTest, CallsThatAreWithdrawnEndAtOnce) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  caller.Call(1, "slow");
  during_ = [&](const std::string& arguments) {
    if (arguments != "slow") return;
    caller.Call(2, "2");
    caller.Call(3, "3");
    caller.Withdraw(2);
    caller.Cancel(2);
    Wait();
    EXPECT_THAT(caller.results, SizeIs(1));
  };
  Wait(absl::Seconds(5));
  EXPECT_THAT(caller.Values(), ElementsAre("", "slow", "3"));
  EXPECT_EQ(caller.results[0].failure().reason(), "withdrawn");
}

TEST_F(ActorServiceTest, CallsWhoseStreamIsOverDoNotBegin) {
  TestCaller a(network_, executor_, "a");
  TestCaller b(network_, executor_, "b");
  a.Open();
  b.Open();
  a.Call(1, "slow");
  during_ = [&](const std::string& arguments) {
    if (arguments != "slow") return;
    a.Call(2, "a2");
    b.Call(1, "b1");
    b.Call(2, "b2");
    Wait();
    a.Leave();
    b.HalfClose();
    Wait();
  };
  Wait(absl::Seconds(5));
  EXPECT_THAT(ran_, ElementsAre("slow"));
  EXPECT_THAT(b.closed, std::optional<absl::Status>(absl::OkStatus()));
}

TEST_F(ActorServiceTest, ANewStreamOfACallerEndsTheOneBefore) {
  TestCaller before(network_, executor_, "c");
  before.Open();
  before.Call(1, "slow");
  std::unique_ptr<TestCaller> after;
  during_ = [&](const std::string& arguments) {
    if (arguments != "slow") return;
    before.Call(2, "2");
    before.Call(3, "3");
    Wait();
    after = std::make_unique<TestCaller>(network_, executor_, "c");
    after->Open("job", 3, /*sent=*/3);
    after->Call(1, "slow");
    after->Call(3, "3");
    after->Call(4, "4");
    Wait();
  };
  Wait(absl::Seconds(5));
  // What runs is not run again, and what has not begun only where it is sent
  // again.
  EXPECT_THAT(ran_, ElementsAre("slow", "3", "4"));
  EXPECT_THAT(after->Values(), ElementsAre("slow", "3", "4"));
  ASSERT_TRUE(before.closed.has_value());
  EXPECT_THAT(*before.closed, StatusIs(absl::StatusCode::kAborted));
}

TEST_F(ActorServiceTest, ACallThatIsSentAgainHasTheResultOfItsRun) {
  TestCaller before(network_, executor_, "c");
  before.Open();
  for (uint64_t i = 1; i <= 3; ++i) before.Call(i, absl::StrCat(i));
  Wait();
  EXPECT_THAT(before.results, SizeIs(3));
  before.TellTaken(1);
  Wait();
  before.Leave();
  Wait();
  EXPECT_EQ(service_.usage().streams, 0u);
  EXPECT_EQ(service_.usage().callers, 1u);
  EXPECT_GT(service_.usage().result_bytes, 0u);
  TestCaller after(network_, executor_, "c");
  after.Open("job", 3, /*sent=*/4);
  for (uint64_t i = 1; i <= 5; ++i) after.Call(i, absl::StrCat(i));
  Wait();
  // 4 was lost on its way.
  EXPECT_THAT(ran_, ElementsAre("1", "2", "3", "4", "5"));
  EXPECT_THAT(after.Values(), ElementsAre("", "2", "3", "4", "5"));
  // The caller had said that it has that.
  EXPECT_TRUE(after.results[0].forgotten());
  after.TellTaken(after.messages - 1);
  Wait();
  EXPECT_EQ(service_.usage().result_bytes, 0u);
}

TEST_F(ActorServiceTest, ForgetsACallerThatDoesNotComeBack) {
  TestCaller before(network_, executor_, "c");
  before.Open();
  before.Call(1, "1");
  Wait();
  before.Leave();
  Wait(kRememberCaller - absl::Seconds(1));
  EXPECT_EQ(service_.usage().callers, 1u);
  Wait(absl::Seconds(2));
  EXPECT_EQ(service_.usage().callers, 0u);
  EXPECT_EQ(service_.usage().result_bytes, 0u);
  TestCaller after(network_, executor_, "c");
  after.Open("job", 3, /*sent=*/2);
  after.Call(1, "1");
  after.Call(2, "2");
  after.Call(3, "3");
  Wait();
  // Nobody knows whether 2 came.
  EXPECT_THAT(ran_, ElementsAre("1", "3"));
  ASSERT_THAT(after.results, SizeIs(3));
  EXPECT_TRUE(after.results[0].forgotten());
  EXPECT_TRUE(after.results[1].forgotten());
  EXPECT_EQ(after.results[2].value(), "3");
}

TEST_F(ActorServiceTest, KeepsTheResultOfACallThatRunsWhileItsStreamBreaks) {
  TestCaller before(network_, executor_, "c");
  before.Open();
  before.Call(1, "slow");
  during_ = [&](const std::string&) {
    before.Leave();
    Wait();
  };
  Wait();
  during_ = nullptr;
  TestCaller after(network_, executor_, "c");
  after.Open("job", 3, /*sent=*/1);
  after.Call(1, "slow");
  Wait();
  EXPECT_THAT(ran_, ElementsAre("slow"));
  EXPECT_THAT(after.Values(), ElementsAre("slow"));
}

TEST_F(ActorServiceTest, WhoSaysThatItIsOverIsForgotten) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  caller.Call(1, "1");
  Wait();
  caller.HalfClose();
  Wait();
  EXPECT_EQ(service_.usage().callers, 0u);
}

TEST_F(ActorServiceTest, ResultsOfABurstShareMessages) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  v1::ActorCalls calls;
  for (int i = 1; i <= 1000; ++i) {
    TestCaller::AddCall(i, absl::StrCat(i), 0, calls);
  }
  caller.Write(calls);
  Wait();
  EXPECT_THAT(caller.results, SizeIs(1000));
  EXPECT_THAT(caller.messages, Le(5));
}

TEST_F(ActorServiceTest, ACallerThatDoesNotReadHasItsCallsWait) {
  TestCaller slow(network_, executor_, "slow");
  TestCaller quick(network_, executor_, "quick");
  slow.Open();
  quick.Open();
  Wait();
  network_.Partition("slow", "actor");
  v1::ActorCalls calls;
  TestCaller::NameMethod(1, "mib", calls);
  for (int i = 1; i <= 40; ++i) TestCaller::AddCall(i, "slow", 1, calls);
  slow.Write(calls);
  network_.Heal("slow", "actor");
  // What it has sent arrives, and results stay on the way.
  during_ = [&](const std::string&) {
    if (ran_.size() == 1) network_.Partition("slow", "actor");
  };
  Wait(absl::Seconds(5));
  EXPECT_THAT(ran_.size(), Le(8u));
  quick.Call(1, "quick");
  Wait();
  EXPECT_THAT(quick.Values(), ElementsAre("quick"));
  network_.Heal("slow", "actor");
  Wait(absl::Seconds(10));
  EXPECT_THAT(slow.results, SizeIs(40));
}

TEST_F(ActorServiceTest, RefusesMoreCallsThanTheWindow) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  caller.Call(1, "slow");
  during_ = [&](const std::string& arguments) {
    if (arguments != "slow") return;
    v1::ActorCalls calls;
    for (size_t i = 0; i <= kWindowCalls; ++i) {
      TestCaller::AddCall(2 + i, "", 0, calls);
    }
    caller.Write(calls);
    Wait(absl::Seconds(1));
  };
  Wait(absl::Seconds(5));
  EXPECT_THAT(ran_, ElementsAre("slow"));
  ASSERT_TRUE(caller.closed.has_value());
  EXPECT_THAT(*caller.closed, StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("without a result")));
}

// Calls of a lane of the actor, numbered from 1.
v1::ActorCalls CallsIn(const std::string& group, int count) {
  v1::ActorCalls calls;
  TestCaller::NameMethod(1, "echo", calls);
  calls.mutable_methods(0)->set_group(group);
  for (int i = 1; i <= count; ++i) {
    TestCaller::AddCall(i, absl::StrCat(group, i), 1, calls);
  }
  return calls;
}

TEST_F(ActorServiceTest, AGroupsCallsDoNotWaitForOthers) {
  TestCaller slow(network_, executor_, "slow");
  TestCaller other(network_, executor_, "other");
  slow.Open();
  other.Open();
  most_running_ = 3;
  during_ = [&](const std::string& arguments) {
    if (arguments == "slow") other.Write(CallsIn("io", 4));
    // The first of them lets the second begin beside it, and no third.
    if (arguments == "slow" || arguments == "io1") Wait();
    if (arguments == "io1") {
      EXPECT_THAT(ran_, ElementsAre("slow", "io1", "io2", "io3", "io4"));
    }
  };
  slow.Call(1, "slow");
  Wait(absl::Seconds(5));
  EXPECT_THAT(ran_, ElementsAre("slow", "io1", "io2", "io3", "io4"));
  EXPECT_THAT(other.results, SizeIs(4));
}

TEST_F(ActorServiceTest, ACallOfAGroupThatIsNotThereSaysSo) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  caller.Write(CallsIn("none", 1));
  Wait();
  EXPECT_THAT(ran_, IsEmpty());
  ASSERT_THAT(caller.results, SizeIs(1));
  EXPECT_EQ(caller.results[0].failure().reason(), kReasonNoMethod);
}

TEST_F(ActorServiceTest, ACallThatWaitsGivesWay) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  most_running_ = 2;
  during_ = [&](const std::string& arguments) {
    if (arguments != "tasks1") return;
    Wait();
    EXPECT_THAT(ran_, ElementsAre("tasks1"));
    WaitObserver* const observer = WaitObserver::OfThisThread();
    ASSERT_NE(observer, nullptr);
    EXPECT_TRUE(observer->OnWait().ok());
    Wait();
    EXPECT_THAT(ran_, ElementsAre("tasks1", "tasks2", "tasks3"));
    observer->OnWaited();
  };
  caller.Write(CallsIn("tasks", 3));
  Wait(absl::Seconds(5));
  EXPECT_THAT(caller.results, SizeIs(3));
  EXPECT_EQ(WaitObserver::OfThisThread(), nullptr);
}

TEST_F(ActorServiceTest, NothingBeginsAfterStop) {
  TestCaller caller(network_, executor_, "c");
  caller.Open();
  caller.Call(1, "1");
  caller.Call(2, "2");
  during_ = [&](const std::string&) {
    Wait();
    service_.Stop();  // By the call: it does not wait for itself.
  };
  Wait(absl::Seconds(5));
  caller.Call(3, "3");
  TestCaller late(network_, executor_, "late");
  late.Open();
  Wait();
  EXPECT_THAT(ran_, ElementsAre("1"));
  EXPECT_TRUE(late.closed.has_value());
}

}  // namespace
}  // namespace cohort::actor
