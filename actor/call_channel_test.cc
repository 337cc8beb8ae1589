#include "actor/call_channel.h"

#include <cstdint>
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
#include "actor/call_failure.h"
#include "actor/call_limits.h"
#include "actor/testing/scripted_actor.h"
#include "common/random.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "rpc/credential.h"
#include "rpc/testing/loopback.h"

namespace cohort::actor {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kAdd[] = "Add";
constexpr char kGet[] = "Get";
constexpr absl::Duration kMoment = absl::Milliseconds(100);

std::string SecretOf(uint64_t incarnation) {
  return std::string(32, static_cast<char>('a' + incarnation));
}
std::string AddressOf(uint64_t incarnation) {
  return absl::StrCat("actor-", incarnation);
}

v1::ActorStanding StandingOf(uint64_t incarnation) {
  v1::ActorStanding standing;
  standing.set_job_id("job");
  standing.set_class_name("7Counter");  // mangled
  standing.set_state(v1::JOB_STATE_RUNNING);
  standing.set_incarnation(incarnation);
  standing.add_addresses(AddressOf(incarnation));
  standing.set_secret(SecretOf(incarnation));
  standing.set_node_name("w1");
  return standing;
}

// That `incarnation` ended, and nothing serves yet.
v1::ActorStanding EndOf(uint64_t incarnation) {
  v1::ActorStanding standing = StandingOf(0);
  standing.clear_addresses();
  standing.set_state(v1::JOB_STATE_PENDING);
  standing.set_ended_incarnation(incarnation);
  standing.mutable_exit()->set_signal(9);
  standing.set_reason("rank 0 was killed");
  return standing;
}

v1::ActorStanding DeathAfter(uint64_t incarnation) {
  v1::ActorStanding standing = EndOf(incarnation);
  standing.set_state(v1::JOB_STATE_FAILED);
  standing.set_reason("no restarts are left");
  standing.set_stderr_tail("terminate called\nboom\x1b[1m\n");
  return standing;
}

MATCHER_P(HasReason, reason, "") {
  *result_listener << arg.status().ToString();
  return GetReason(arg.status()) == reason;
}

class CallChannelTest : public ::testing::Test {
 protected:
  CallChannelTest() { Make({.job_id = "job"}); }

  ~CallChannelTest() override {
    channel_.reset();
    executor_.AdvanceBy(absl::Seconds(10));
    for (const auto& [incarnation, actor] : actors_) {
      network_.Unlisten(AddressOf(incarnation));
    }
    executor_.RunUntilIdle();
  }

  void Make(CallChannelOptions options) {
    channel_ = std::make_unique<CallChannel>(
        std::move(options),
        [this](const std::vector<std::string>& addresses,
               const std::string& secret)
            -> absl::StatusOr<std::unique_ptr<rpc::Channel>> {
          ++connects_;
          return network_.Connect("caller", addresses[0],
                                  *rpc::Credential::FromBytes(secret));
        },
        executor_, executor_, random_);
  }

  // Makes that process.
  ScriptedActor& Start(uint64_t incarnation) {
    auto& actor = actors_[incarnation];
    actor = std::make_unique<ScriptedActor>(executor_, SecretOf(incarnation));
    network_.Listen(AddressOf(incarnation), &actor->router());
    return *actor;
  }
  // Starts it, and the head tells of it.
  ScriptedActor& Serve(uint64_t incarnation) {
    ScriptedActor& actor = Start(incarnation);
    channel_->SetStanding(StandingOf(incarnation));
    return actor;
  }
  void Kill(uint64_t incarnation) {
    network_.Kill(AddressOf(incarnation));
    actors_.erase(incarnation);
    Wait();
  }

  void Wait(absl::Duration time = kMoment) { executor_.AdvanceBy(time); }

  // Its end will be in ends_[arguments].
  uint64_t Call(const std::string& arguments, const char* method = kAdd) {
    return channel_->Call(method, arguments,
                          [this, arguments](absl::StatusOr<std::string> end) {
                            ends_[arguments].push_back(std::move(end));
                          });
  }
  // The only end of that call.
  absl::StatusOr<std::string> End(const std::string& arguments) {
    const auto& ends = ends_[arguments];
    if (ends.size() == 1) return ends[0];
    return absl::InternalError(absl::StrCat(ends.size(), " ends"));
  }

  ManualExecutor executor_;
  SeededRandom random_{1};
  rpc::LoopbackNetwork network_{{}, executor_, executor_, random_};
  std::map<uint64_t, std::unique_ptr<ScriptedActor>> actors_;
  int connects_ = 0;
  std::map<std::string, std::vector<absl::StatusOr<std::string>>> ends_;
  std::unique_ptr<CallChannel> channel_;
};

TEST_F(CallChannelTest, WithoutWordOfTheActorsEndsABreakEndsAllCalls) {
  Make({.job_id = "job", .is_told = false});
  Serve(1);
  Call("1");
  Wait();
  // The process lives.
  network_.BreakAll(AddressOf(1));
  Wait();
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_THAT(actors_.at(1)->calls(), ElementsAre("1", "1"));
  // It is gone, and nobody will say so.
  Kill(1);
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
  Call("2");
  Wait(absl::Seconds(1));
  EXPECT_THAT(End("2"), HasReason(kReasonNotStarted));
  Serve(2);
  Call("3");
  Wait(absl::Seconds(10));
  actors_.at(2)->Answer(1, "three");
  Wait();
  EXPECT_THAT(End("3"), IsOkAndHolds("three"));
}

TEST_F(CallChannelTest, SendsCallsInOrderOnceThereIsAnAddress) {
  Call("1");
  Call("2", kGet);
  Call("3");
  Wait();
  EXPECT_EQ(connects_, 0);
  const ScriptedActor& actor = Serve(1);
  Wait();
  ASSERT_THAT(actor.opens(), SizeIs(1));
  EXPECT_EQ(actor.opens()[0].job_id(), "job");
  EXPECT_EQ(actor.opens()[0].incarnation(), 1u);
  EXPECT_THAT(actor.opens()[0].caller(), SizeIs(16));
  EXPECT_THAT(actor.calls(), ElementsAre("1", "2", "3"));
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_EQ(channel_->pending(), 3u);
}

TEST_F(CallChannelTest, ConnectsAtTheFirstCall) {
  Serve(1);
  Wait();
  EXPECT_EQ(connects_, 0);
  Call("1");
  Wait();
  EXPECT_EQ(connects_, 1);
}

TEST_F(CallChannelTest, EndsEachCallOnceInTheOrderOfResults) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Call("2");
  Wait();
  actor.Answer(2, "b");
  Wait();
  EXPECT_THAT(ends_, SizeIs(1));
  EXPECT_THAT(End("2"), IsOkAndHolds(std::string("b")));
  // Those that nobody waits for are ignored.
  actor.Answer(2, "again");
  actor.Answer(0, "never sent");
  actor.Answer(99, "never sent");
  actor.Answer(1, "a");
  Wait();
  EXPECT_THAT(End("1"), IsOkAndHolds(std::string("a")));
  EXPECT_THAT(End("2"), IsOkAndHolds(std::string("b")));
  EXPECT_EQ(channel_->pending(), 0u);
}

TEST_F(CallChannelTest, GivesFailuresAsTheMethodMadeThem) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Wait();
  actor.Fail(1, ToCallFailure(
                    SetReason(absl::UnknownError("boom"), kReasonException)));
  Wait();
  EXPECT_THAT(End("1"), StatusIs(absl::StatusCode::kUnknown, "boom"));
  EXPECT_THAT(End("1"), HasReason(kReasonException));
}

TEST_F(CallChannelTest, NamesEachMethodOnceAStream) {
  ScriptedActor& actor = Serve(1);
  Call("1", kAdd);
  Wait();
  Call("2", kGet);
  Call("3", kAdd);
  Wait();
  std::vector<std::string> names;
  for (const v1::ActorCalls& message : actor.messages()) {
    for (const auto& method : message.methods()) names.push_back(method.name());
  }
  EXPECT_THAT(names, ElementsAre("Add", "Get"));
}

TEST_F(CallChannelTest, SendsWhatQueuesDuringAWriteInOneMessage) {
  ScriptedActor& actor = Serve(1);
  Call("first");
  Wait();
  for (int i = 0; i < 1000; ++i) Call(absl::StrCat(i));
  Wait();
  EXPECT_THAT(actor.calls(), SizeIs(1001));
  // "first", then the next alone, then the rest.
  EXPECT_THAT(actor.messages(), SizeIs(3));
}

TEST_F(CallChannelTest, BoundsTheBytesOfAMessage) {
  ScriptedActor& actor = Serve(1);
  Call("first");
  Wait();
  for (int i = 0; i < 8; ++i) {
    Call(std::string(kBatchBytes / 2, static_cast<char>('a' + i)));
  }
  Wait(absl::Seconds(1));
  EXPECT_THAT(actor.calls(), SizeIs(9));
  for (const v1::ActorCalls& message : actor.messages()) {
    EXPECT_LE(message.calls_size(), 2);
  }
}

TEST_F(CallChannelTest, LeavesAWindowOfCallsWithoutAResult) {
  ScriptedActor& actor = Serve(1);
  for (size_t i = 0; i < kWindowCalls + 5; ++i) Call(absl::StrCat(i));
  Wait(absl::Seconds(1));
  EXPECT_THAT(actor.calls(), SizeIs(kWindowCalls));
  actor.Answer(1, "");
  Wait();
  EXPECT_THAT(actor.calls(), SizeIs(kWindowCalls + 1));
}

TEST_F(CallChannelTest, RefusesMoreThanMayBePending) {
  Make({.job_id = "job", .max_pending_calls = 2});
  ScriptedActor& actor = Serve(1);
  Call("1");
  Call("2");
  Call("3");
  EXPECT_THAT(End("3"), StatusIs(absl::StatusCode::kResourceExhausted,
                                 HasSubstr("max_pending_calls")));
  EXPECT_THAT(End("3"), HasReason(kReasonQueueFull));
  Wait();
  actor.Answer(1, "");
  Wait();
  Call("4");
  Wait();
  EXPECT_THAT(actor.calls(), ElementsAre("1", "2", "4"));
}

TEST_F(CallChannelTest, RefusesLargeArguments) {
  const std::string large(kArgumentsBytesMax + 1, 'x');
  Call(large);
  EXPECT_THAT(End(large), StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("4194305 bytes")));
  EXPECT_THAT(End(large), HasReason(kReasonTooLarge));
}

TEST_F(CallChannelTest, DoesNotSendACallThatWasCancelledBefore) {
  const uint64_t first = Call("1");
  Call("2");
  const uint64_t third = Call("3");
  Call("4");
  channel_->Cancel(third);
  channel_->Cancel(first);
  channel_->Cancel(first);
  channel_->Cancel(77);
  EXPECT_THAT(End("1"), StatusIs(absl::StatusCode::kCancelled));
  EXPECT_THAT(End("3"), HasReason(kReasonCancelled));
  const ScriptedActor& actor = Serve(1);
  Wait();
  EXPECT_THAT(actor.calls(), ElementsAre("2", "4"));
  EXPECT_EQ(actor.messages()[0].calls(1).sequence(), 2u);
}

TEST_F(CallChannelTest, TellsTheActorOfACancelledCall) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  const uint64_t second = Call("2");
  Wait();
  channel_->Cancel(second);
  EXPECT_THAT(End("2"), HasReason(kReasonCancelled));
  Wait();
  EXPECT_THAT(actor.messages().back().cancels(), ElementsAre(2));
  actor.Answer(2, "too late");
  actor.Answer(1, "a");
  Wait();
  EXPECT_THAT(End("2"), HasReason(kReasonCancelled));
  EXPECT_THAT(End("1"), IsOkAndHolds(std::string("a")));
}

TEST_F(CallChannelTest, SaysWhyTheProcessEndedUnderACall) {
  Serve(1);
  Call("1");
  Wait();
  Kill(1);
  EXPECT_THAT(ends_, IsEmpty());
  channel_->SetStanding(EndOf(1));
  EXPECT_THAT(End("1"),
              StatusIs(absl::StatusCode::kUnavailable,
                       "actor Counter may have run Add: its process "
                       "on w1 was killed by signal 9: rank 0 was killed"));
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
}

TEST_F(CallChannelTest, NamesTheNodeOfTheProcessThatEnded) {
  Serve(1);
  Call("1");
  Wait();
  Kill(1);
  v1::ActorStanding next = StandingOf(2);
  next.set_node_name("w2");
  next.set_ended_incarnation(1);
  next.mutable_exit()->set_code(3);
  channel_->SetStanding(next);
  EXPECT_THAT(End("1"), StatusIs(absl::StatusCode::kUnavailable,
                                 "actor Counter may have run Add: its process "
                                 "on w1 exited with status 3"));
}

TEST_F(CallChannelTest, WaitsForTheHeadsWordOrTheProcess) {
  Serve(1);
  Call("1");
  Wait();
  Kill(1);
  Wait(absl::Seconds(9));
  EXPECT_THAT(ends_, IsEmpty());
  Wait(absl::Seconds(1));
  EXPECT_THAT(End("1"), StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("stream to its process broke")));
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
}

TEST_F(CallChannelTest, ACallWithARetryWaitsForAnotherIncarnation) {
  Make({.job_id = "job", .max_task_retries = 1});
  Serve(1);
  Call("1");
  Wait();
  Kill(1);
  Wait(absl::Minutes(1));
  EXPECT_THAT(ends_, IsEmpty());
  Serve(2);
  Wait();
  EXPECT_THAT(actors_[2]->calls(), ElementsAre("1"));
}

TEST_F(CallChannelTest, HearsOfTheEndBeforeTheStreamBreaks) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Call("2");
  Wait();
  channel_->SetStanding(EndOf(1));
  Call("3");
  // A result on its way.
  actor.Answer(1, "a");
  Wait();
  EXPECT_THAT(End("1"), IsOkAndHolds(std::string("a")));
  Wait(absl::Milliseconds(800));
  EXPECT_THAT(ends_, SizeIs(1));
  Wait();
  EXPECT_THAT(End("2"), HasReason(kReasonMayHaveRun));
  EXPECT_THAT(actor.calls(), ElementsAre("1", "2"));
  EXPECT_THAT(Serve(2).calls(), IsEmpty());
  Wait();
  EXPECT_THAT(actors_[2]->calls(), ElementsAre("3"));
}

TEST_F(CallChannelTest, SendsTheRestToTheNextIncarnation) {
  Serve(1);
  Call("1");
  Wait();
  Kill(1);
  Call("2");
  channel_->SetStanding(EndOf(1));
  Call("3");
  const ScriptedActor& actor = Serve(2);
  Wait();
  EXPECT_THAT(actor.calls(), ElementsAre("2", "3"));
  EXPECT_EQ(actor.opens()[0].incarnation(), 2u);
  EXPECT_EQ(actor.messages()[0].calls(0).sequence(), 1u);
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
}

TEST_F(CallChannelTest, SendsCallsWithRetriesAgainAndFirst) {
  Make({.job_id = "job", .max_task_retries = 1});
  Serve(1);
  Call("1");
  Call("2");
  Call("3");
  Wait();
  actors_[1]->Answer(2, "b");
  Wait();
  Kill(1);
  Call("4");
  Serve(2);
  Wait();
  EXPECT_THAT(actors_[2]->calls(), ElementsAre("1", "3", "4"));
  EXPECT_THAT(ends_, SizeIs(1));
  // Without another retry.
  Kill(2);
  const ScriptedActor& third = Serve(3);
  Wait();
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
  EXPECT_THAT(End("3"), HasReason(kReasonMayHaveRun));
  EXPECT_THAT(third.calls(), ElementsAre("4"));
}

TEST_F(CallChannelTest, RetriesForeverWhereThatIsAsked) {
  Make({.job_id = "job", .max_task_retries = -1});
  Call("1");
  for (uint64_t incarnation = 1; incarnation < 6; ++incarnation) {
    Serve(incarnation);
    Wait();
    EXPECT_THAT(actors_[incarnation]->calls(), ElementsAre("1"));
    Kill(incarnation);
  }
  channel_->SetStanding(DeathAfter(5));
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
}

TEST_F(CallChannelTest, DoesNotSendALostCallAgainThatWasCancelled) {
  Make({.job_id = "job", .max_task_retries = 1});
  Serve(1);
  const uint64_t first = Call("1");
  Call("2");
  Wait();
  Kill(1);
  channel_->Cancel(first);
  EXPECT_THAT(End("1"), HasReason(kReasonCancelled));
  Serve(2);
  Wait();
  EXPECT_THAT(actors_[2]->calls(), ElementsAre("2"));
}

TEST_F(CallChannelTest, EndsAllCallsOfADeadActorWithTheReason) {
  Serve(1);
  Call("1");
  Wait();
  Kill(1);
  Call("2");
  channel_->SetStanding(DeathAfter(1));
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
  const std::string why =
      "actor Counter is dead and did not run Add: its process on w1 "
      "was killed by signal 9: no restarts are left; the end of its stderr: "
      "terminate called boom?[1m";
  EXPECT_THAT(End("2"), StatusIs(absl::StatusCode::kUnavailable, why));
  EXPECT_THAT(End("2"), HasReason(kReasonNotStarted));
  Call("3");
  EXPECT_THAT(End("3"), StatusIs(absl::StatusCode::kUnavailable, why));
  // What comes late does not raise it.
  channel_->SetStanding(StandingOf(2));
  Call("4");
  EXPECT_THAT(End("4"), HasReason(kReasonNotStarted));
}

TEST_F(CallChannelTest, BoundsWhatItShowsOfStderr) {
  v1::ActorStanding death = DeathAfter(1);
  death.set_stderr_tail(std::string(1 << 20, 'x') + "\xC3\xA4 the end");
  channel_->SetStanding(death);
  Call("1");
  EXPECT_THAT(
      End("1"),
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr("the end"), HasSubstr("...xxx"),
                     ::testing::ResultOf(
                         [](const std::string& text) { return text.size(); },
                         ::testing::Lt(2500u)))));
}

TEST_F(CallChannelTest, ALiveStreamOfADeadActorHasAMoment) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Call("2");
  Wait();
  channel_->SetStanding(DeathAfter(1));
  Call("3");
  EXPECT_THAT(End("3"), HasReason(kReasonNotStarted));
  actor.Answer(1, "a");
  Wait();
  EXPECT_THAT(End("1"), IsOkAndHolds(std::string("a")));
  Wait(absl::Seconds(1));
  EXPECT_THAT(End("2"), HasReason(kReasonMayHaveRun));
}

TEST_F(CallChannelTest, ACallAfterAKillFailsAtOnce) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Wait();
  channel_->MarkKilled();
  Call("2");
  EXPECT_THAT(End("2"),
              StatusIs(absl::StatusCode::kUnavailable,
                       "actor Counter was killed and did not run Add"));
  EXPECT_THAT(End("2"), HasReason(kReasonNotStarted));
  actor.Answer(1, "a");
  Wait();
  EXPECT_THAT(End("1"), IsOkAndHolds(std::string("a")));
}

TEST_F(CallChannelTest, SendsCallsAgainWhenOnlyTheStreamBroke) {
  ScriptedActor& actor = Serve(1);
  for (const char* call : {"1", "2", "3", "4"}) Call(call);
  Wait();
  actor.Answer(2, "b");
  Wait();
  network_.BreakAll(AddressOf(1));
  Wait(absl::Milliseconds(2));
  Call("5");
  Wait();
  EXPECT_THAT(actor.calls(),
              ElementsAre("1", "2", "3", "4", "1", "3", "4", "5"));
  const v1::ActorCalls& again = actor.messages().back();
  EXPECT_EQ(again.calls(0).sequence(), 1u);
  EXPECT_EQ(again.calls(1).sequence(), 3u);
  EXPECT_EQ(again.calls(3).sequence(), 5u);
  EXPECT_THAT(again.methods(), SizeIs(1));
  ASSERT_THAT(actor.opens(), SizeIs(2));
  EXPECT_EQ(actor.opens()[0].caller(), actor.opens()[1].caller());
  EXPECT_EQ(actor.opens()[0].sent(), 0u);
  EXPECT_EQ(actor.opens()[1].sent(), 4u);
  EXPECT_EQ(connects_, 1);
  for (const uint64_t sequence : {1, 3, 4, 5}) {
    actor.Answer(sequence, absl::StrCat("of ", sequence));
  }
  Wait();
  EXPECT_THAT(End("1"), IsOkAndHolds("of 1"));
  EXPECT_THAT(End("5"), IsOkAndHolds("of 5"));
  EXPECT_EQ(channel_->pending(), 0u);
}

TEST_F(CallChannelTest, SaysWhatTheActorHasForgotten) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Wait();
  network_.BreakAll(AddressOf(1));
  Wait();
  actor.Forget(1);
  Wait();
  EXPECT_THAT(End("1"), StatusIs(absl::StatusCode::kUnavailable,
                                 HasSubstr("does not remember")));
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
}

TEST_F(CallChannelTest, DoesNotSendAgainWhatWasRefused) {
  Make({.job_id = "job", .max_task_retries = -1});
  ScriptedActor& actor = Serve(1);
  Call("1");
  Wait();
  actor.Close(absl::InvalidArgumentError("no such call"));
  Wait(absl::Seconds(1));
  EXPECT_THAT(End("1"), HasReason(kReasonMayHaveRun));
  EXPECT_THAT(actor.calls(), ElementsAre("1"));
}

TEST_F(CallChannelTest, TellsWhichResultsHaveCome) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Wait();
  actor.Answer(1, "small");
  Wait();
  EXPECT_THAT(actor.messages(), SizeIs(1));
  Call("2");
  Wait();
  EXPECT_EQ(actor.messages().back().results_taken(), 1u);
  // A large result is acknowledged at once.
  actor.Answer(2, std::string(kResultsUntoldBytes, 'x'));
  Wait();
  EXPECT_THAT(actor.messages(), SizeIs(3));
  EXPECT_EQ(actor.messages().back().results_taken(), 2u);
}

TEST_F(CallChannelTest, BacksOffWhileNobodyAnswers) {
  channel_->SetStanding(StandingOf(1));
  Call("1");
  Wait(absl::Minutes(1));
  EXPECT_THAT(ends_, IsEmpty());
  EXPECT_LT(network_.faults().refused, 40);
  EXPECT_GT(network_.faults().refused, 10);
  const ScriptedActor& actor = Start(1);
  Wait(absl::Seconds(10));
  EXPECT_THAT(actor.calls(), ElementsAre("1"));
}

TEST_F(CallChannelTest, SendsNothingToWhoIsNotTheActor) {
  ScriptedActor& actor = Serve(1);
  actor.set_accepts(false);
  Call("1");
  Wait();
  EXPECT_THAT(actor.opens(), SizeIs(1));
  actor.Close(SetReason(absl::NotFoundError("not here"), kReasonWrongActor));
  Wait();
  EXPECT_THAT(actor.calls(), IsEmpty());
  EXPECT_THAT(ends_, IsEmpty());
  Serve(2);
  Wait();
  EXPECT_THAT(actors_[2]->calls(), ElementsAre("1"));
}

TEST_F(CallChannelTest, IgnoresWhatIsSaidOfOthers) {
  v1::ActorStanding other = DeathAfter(1);
  other.set_job_id("other");
  channel_->SetStanding(other);
  Call("1");
  EXPECT_THAT(ends_, IsEmpty());
}

TEST_F(CallChannelTest, EndsAllCallsWithTheSession) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Wait();
  actor.Answer(1, "too late");
  Call("2");
  channel_.reset();
  EXPECT_THAT(End("1"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(End("1"), HasReason(kReasonSessionOver));
  EXPECT_THAT(End("2"), HasReason(kReasonSessionOver));
  Wait(absl::Seconds(5));
  EXPECT_THAT(ends_["1"], SizeIs(1));
  EXPECT_THAT(ends_["2"], SizeIs(1));
}

TEST_F(CallChannelTest, MayBeDestroyedByTheEndOfACall) {
  ScriptedActor& actor = Serve(1);
  channel_->Call(kAdd, "1", [this](absl::StatusOr<std::string> end) {
    COHORT_EXPECT_OK(end);
    channel_.reset();
  });
  Call("2");
  Wait();
  actor.Answer(1, "");
  Wait();
  EXPECT_EQ(channel_, nullptr);
  EXPECT_THAT(End("2"), HasReason(kReasonSessionOver));
}

TEST_F(CallChannelTest, EndsAllCallsForTheReasonThatIsGiven) {
  ScriptedActor& actor = Serve(1);
  Call("1");
  Wait();
  Call("2");
  channel_->End(absl::AbortedError("over"));
  channel_->End(absl::InternalError("later"));
  EXPECT_THAT(End("1"), StatusIs(absl::StatusCode::kAborted));
  EXPECT_THAT(End("2"), StatusIs(absl::StatusCode::kAborted));
  Call("3");
  EXPECT_THAT(End("3"), StatusIs(absl::StatusCode::kAborted));
  actor.Answer(1, "");
  Wait();
}

TEST_F(CallChannelTest, TheEndOfACallMayMakeOthers) {
  ScriptedActor& actor = Serve(1);
  channel_->Call(kAdd, "1", [this](absl::StatusOr<std::string>) {
    Call("2");
    Call("3");
  });
  Wait();
  actor.Answer(1, "");
  Wait();
  EXPECT_THAT(actor.calls(), ElementsAre("1", "2", "3"));
}

}  // namespace
}  // namespace cohort::actor
