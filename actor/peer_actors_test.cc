#include "actor/peer_actors.h"

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string PeerSecret() { return std::string(32, 's'); }

// A head of which a test says every word.
class ScriptedHead {
 public:
  explicit ScriptedHead(ManualExecutor& executor)
      : strand_(executor),
        router_({},
                rpc::Authenticator(
                    *rpc::Credential::FromBytes(std::string(32, 'c'))),
                executor) {
    router_.HandleStream(
        rpc::kDrive, strand_,
        [this](const auto&, auto writer)
            -> absl::StatusOr<
                std::unique_ptr<rpc::StreamReader<v1::DriverMessage>>> {
          writer_ = writer.get();
          return std::make_unique<Reader>(*this, std::move(writer));
        });
  }

  rpc::Router& router() { return router_; }
  const std::vector<v1::OpenDriver>& opens() const { return opens_; }
  const std::vector<v1::WatchActor>& watches() const { return watches_; }

  void Tell(const v1::ActorStanding& standing) {
    v1::DriverUpdate update;
    *update.mutable_actor() = standing;
    COHORT_EXPECT_OK(writer_->Write(update));
  }
  void Close(absl::Status status) { writer_->Close(std::move(status)); }

 private:
  using Writer = rpc::StreamWriter<v1::DriverUpdate>;

  class Reader final : public rpc::StreamReader<v1::DriverMessage> {
   public:
    Reader(ScriptedHead& head, std::unique_ptr<Writer> writer)
        : head_(head), writer_(std::move(writer)) {}

    void OnMessage(const v1::DriverMessage& message) override {
      if (message.has_watch()) head_.watches_.push_back(message.watch());
      if (!message.has_open()) return;
      head_.opens_.push_back(message.open());
      v1::DriverUpdate update;
      update.mutable_opened();
      writer_->Write(update).IgnoreError();
    }
    void OnClosed(absl::Status /*status*/) override {}

   private:
    ScriptedHead& head_;
    const std::unique_ptr<Writer> writer_;
  };

  Strand strand_;
  std::vector<v1::OpenDriver> opens_;
  std::vector<v1::WatchActor> watches_;
  Writer* writer_ = nullptr;
  rpc::Router router_;
};

class PeerActorsTest : public ::testing::Test {
 protected:
  PeerActorsTest() {
    network_.Listen("head", &head_.router());
    network_.Listen("actor", &actor_.router());
    Make(1024);
  }
  ~PeerActorsTest() override {
    peers_.reset();
    Wait(absl::Seconds(10));
    network_.Unlisten("head");
    network_.Unlisten("actor");
    executor_.RunUntilIdle();
  }

  void Make(size_t channels_max) {
    peers_ = std::make_unique<PeerActors>(
        PeerActors::Options{.channels_max = channels_max},
        [this]() -> absl::StatusOr<std::unique_ptr<rpc::Channel>> {
          return network_.Connect(
              "process", "head",
              *rpc::Credential::FromBytes(std::string(32, 'c')));
        },
        [this](const std::vector<std::string>& addresses,
               const std::string& secret)
            -> absl::StatusOr<std::unique_ptr<rpc::Channel>> {
          return network_.Connect("process", addresses[0],
                                  *rpc::Credential::FromBytes(secret));
        },
        executor_, executor_, executor_, random_);
  }
  void Wait(absl::Duration time = absl::Milliseconds(100)) {
    executor_.AdvanceBy(time);
  }
  ActorRef NewRef(uint32_t slot = 0) {
    return {.job = JobId::New(random_), .slot = slot, .secret = PeerSecret()};
  }
  static v1::ActorStanding Serving(const ActorRef& ref,
                                   uint64_t incarnation = 1) {
    v1::ActorStanding standing;
    standing.set_job_id(ref.job.bytes());
    standing.set_state(v1::JOB_STATE_RUNNING);
    standing.set_incarnation(incarnation);
    standing.set_ended_incarnation(incarnation - 1);
    standing.add_addresses("actor");
    standing.set_secret(ref.secret);
    standing.set_slots(1);
    return standing;
  }
  static v1::ActorStanding None(const ActorRef& ref) {
    v1::ActorStanding standing;
    standing.set_job_id(ref.job.bytes());
    standing.set_state(v1::JOB_STATE_STOPPED);
    standing.set_reason("no job 12");
    return standing;
  }
  size_t Call(const std::shared_ptr<CallTarget>& target) {
    const size_t index = ends_.size();
    ends_.emplace_back();
    target->Call("method", "", [this, index](auto end) {
      ends_[index].push_back(std::move(end));
    });
    Wait();
    return index;
  }

  ManualExecutor executor_;
  SeededRandom random_{1};
  rpc::LoopbackNetwork network_{{}, executor_, executor_, random_};
  ScriptedHead head_{executor_};
  ScriptedActor actor_{executor_, PeerSecret()};
  std::unique_ptr<PeerActors> peers_;
  std::vector<std::vector<absl::StatusOr<std::string>>> ends_;
};

TEST_F(PeerActorsTest, AsksTheHeadFromTheFirstHandleOn) {
  Wait();
  EXPECT_THAT(head_.opens(), IsEmpty());
  const ActorRef ref = NewRef();
  const auto target = peers_->TargetOf(ref);
  EXPECT_EQ(peers_->TargetOf(ref), target);
  const size_t call = Call(target);
  ASSERT_THAT(head_.opens(), SizeIs(1));
  EXPECT_TRUE(head_.opens()[0].only_watches());
  ASSERT_THAT(head_.watches(), SizeIs(1));
  EXPECT_EQ(head_.watches()[0].secret(), PeerSecret());

  head_.Tell(Serving(ref));
  Wait();
  ASSERT_THAT(actor_.calls(), SizeIs(1));
  actor_.Answer(1, "value");
  Wait();
  ASSERT_THAT(ends_[call], SizeIs(1));
  EXPECT_THAT(ends_[call][0], IsOkAndHolds("value"));
  EXPECT_EQ(target->Ref()->job, ref.job);
}

TEST_F(PeerActorsTest, ActorsThatShareAProcessShareTheWay) {
  ActorRef ref = NewRef();
  const auto first = peers_->TargetOf(ref);
  ref.actor = 7;
  const auto other = peers_->TargetOf(ref);
  EXPECT_EQ(peers_->channels(), 1u);
  EXPECT_EQ(other->Ref()->actor, 7u);
  EXPECT_EQ(first->Ref()->actor, 0u);
  Call(first);
  Call(other);
  head_.Tell(Serving(ref));
  Wait();
  ASSERT_THAT(actor_.calls(), SizeIs(2));
  EXPECT_THAT(actor_.called_actors(), ElementsAre(0, 7));
  actor_.Answer(1, "");
  actor_.Answer(2, "");
  Wait();
}

TEST_F(PeerActorsTest, FollowsTheActorToItsNextIncarnation) {
  const ActorRef ref = NewRef();
  const auto target = peers_->TargetOf(ref);
  Wait();
  head_.Tell(Serving(ref, 1));
  Call(target);
  head_.Tell(Serving(ref, 2));
  Wait(absl::Seconds(2));
  EXPECT_EQ(GetReason(ends_[0].at(0).status()), kReasonMayHaveRun);
  Call(target);
  EXPECT_EQ(actor_.opens().back().incarnation(), 2u);
}

TEST_F(PeerActorsTest, CallsOfAnActorThatIsNotThereEnd) {
  const ActorRef ref = NewRef();
  const auto target = peers_->TargetOf(ref);
  const size_t before = Call(target);
  head_.Tell(None(ref));
  Wait();
  const size_t after = Call(target);
  for (const size_t call : {before, after}) {
    ASSERT_THAT(ends_[call], SizeIs(1));
    EXPECT_EQ(GetReason(ends_[call][0].status()), kReasonNotStarted);
    EXPECT_THAT(ends_[call][0].status().message(), HasSubstr("no job 12"));
  }
}

TEST_F(PeerActorsTest, AHandleWithAWrongSecretEndsItsOwnCallsOnly) {
  const ActorRef ref = NewRef();
  ActorRef wrong = ref;
  wrong.secret = std::string(32, 'w');
  const auto bad = peers_->TargetOf(wrong);
  const auto good = peers_->TargetOf(ref);
  EXPECT_NE(bad, good);
  const size_t refused = Call(bad);
  const size_t call = Call(good);
  std::set<std::string> secrets;
  for (const auto& each : head_.watches()) secrets.insert(each.secret());
  EXPECT_THAT(secrets, ElementsAre(ref.secret, wrong.secret));

  v1::ActorStanding refusal = None(ref);
  refusal.set_secret(wrong.secret);
  head_.Tell(refusal);
  Wait();
  ASSERT_THAT(ends_[refused], SizeIs(1));
  EXPECT_EQ(GetReason(ends_[refused][0].status()), kReasonNotStarted);
  EXPECT_THAT(ends_[call], IsEmpty());
  head_.Tell(Serving(ref));
  Wait();
  ASSERT_THAT(actor_.calls(), SizeIs(1));
  actor_.Answer(1, "value");
  Wait();
  ASSERT_THAT(ends_[call], SizeIs(1));
  COHORT_EXPECT_OK(ends_[call][0]);

  // The good one is still watched after a break.
  head_.Close(absl::UnavailableError("restarts"));
  Wait(absl::Seconds(5));
  EXPECT_EQ(head_.watches().back().secret(), ref.secret);
  EXPECT_THAT(head_.watches(), SizeIs(3));
}

TEST_F(PeerActorsTest, AHandleWithAWrongSecretDoesNotBorrowTheWay) {
  const ActorRef ref = NewRef();
  ActorRef wrong = ref;
  wrong.secret = std::string(32, 'w');
  const auto good = peers_->TargetOf(ref);
  const auto bad = peers_->TargetOf(wrong);
  Wait();
  head_.Tell(Serving(ref));
  const size_t call = Call(bad);
  ASSERT_THAT(ends_[call], SizeIs(1));
  EXPECT_EQ(GetReason(ends_[call][0].status()), kReasonNotStarted);
  EXPECT_THAT(actor_.calls(), IsEmpty());
}

TEST_F(PeerActorsTest, CallsOfARankThatIsNotThereEnd) {
  const ActorRef ref = NewRef(/*slot=*/7);
  const size_t call = Call(peers_->TargetOf(ref));
  head_.Tell(Serving(ref));
  Wait();
  ASSERT_THAT(ends_[call], SizeIs(1));
  EXPECT_EQ(GetReason(ends_[call][0].status()), kReasonNotStarted);
}

TEST_F(PeerActorsTest, AsksAgainAfterTheHeadWasAway) {
  const ActorRef ref = NewRef();
  const auto target = peers_->TargetOf(ref);
  Wait();
  head_.Close(absl::UnavailableError("restarts"));
  Wait(absl::Seconds(5));
  EXPECT_THAT(head_.opens(), SizeIs(2));
  ASSERT_THAT(head_.watches(), SizeIs(2));
  EXPECT_EQ(head_.watches()[1].secret(), PeerSecret());
}

TEST_F(PeerActorsTest, CallsEndWhenTheHeadRefusesTheProcess) {
  const auto target = peers_->TargetOf(NewRef());
  const size_t before = Call(target);
  head_.Close(absl::PermissionDeniedError("not you"));
  Wait();
  const size_t after = Call(peers_->TargetOf(NewRef()));
  for (const size_t call : {before, after}) {
    ASSERT_THAT(ends_[call], SizeIs(1));
    EXPECT_EQ(GetReason(ends_[call][0].status()), kReasonSessionOver);
    EXPECT_THAT(ends_[call][0].status().message(), HasSubstr("not you"));
  }
}

TEST_F(PeerActorsTest, LetsGoOfThoseThatNobodyHolds) {
  Make(/*channels_max=*/2);
  const auto held = peers_->TargetOf(NewRef());
  for (int i = 0; i < 10; ++i) {
    peers_->TargetOf(NewRef());
    Wait();
  }
  EXPECT_LE(peers_->channels(), 2u);
  const auto other = peers_->TargetOf(NewRef());
  const size_t refused = Call(peers_->TargetOf(NewRef()));
  ASSERT_THAT(ends_[refused], SizeIs(1));
  EXPECT_EQ(GetReason(ends_[refused][0].status()), kReasonQueueFull);
}

TEST_F(PeerActorsTest, TheHeadForgetsThoseThatNobodyHolds) {
  const auto held = peers_->TargetOf(NewRef());
  for (int i = 0; i < 10'100; ++i) {
    peers_->TargetOf(NewRef());
    if (i % 100 == 0) Wait();
  }
  Wait(absl::Seconds(5));
  // Another stream watches those that are left: by far fewer.
  ASSERT_THAT(head_.opens(), SizeIs(2));
  EXPECT_EQ(peers_->TargetOf(*held->Ref()), held);
}

}  // namespace
}  // namespace cohort::actor
