#include "worker/run_service.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "rpc/methods.h"
#include "rpc/testing/loopback.h"
#include "worker/testing/node_state_fixture.h"

namespace cohort::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class RunServiceTest : public NodeStateTest {
 protected:
  struct Watch {
    std::unique_ptr<rpc::TypedStream<v1::WatchRequest>> stream;
    std::vector<v1::WatchResponse> told;
    absl::Status closed = absl::UnknownError("open");
  };

  RunServiceTest() { network_.Listen("sock", &router_); }
  ~RunServiceTest() override {
    // What a stream calls keeps its watch, which keeps the stream.
    for (const auto& watch : watches_) watch->stream.reset();
    clock_.AdvanceBy(absl::Seconds(1));
  }

  std::unique_ptr<rpc::Channel> ChannelOf(const ProcessId& id) {
    return network_.Connect("rank", "sock",
                            rpc::MintRankCredential(credential_, id));
  }
  // With the credential of `as`.
  std::shared_ptr<Watch> Open(const ProcessId& id, const ProcessId& as) {
    channels_.push_back(ChannelOf(as));
    const auto watch = watches_.emplace_back(std::make_shared<Watch>());
    watch->stream = rpc::OpenStream<v1::WatchRequest, v1::WatchResponse>(
        *channels_.back(), rpc::kWatchRun,
        {.deadline = absl::InfiniteDuration()}, clock_,
        {.on_message =
             [watch](const v1::WatchResponse& response) {
               watch->told.push_back(response);
             },
         .on_closed = [watch](absl::Status status,
                              auto) { watch->closed = status; },
         .on_drained = nullptr});
    v1::WatchRequest request;
    Name(id, request);
    COHORT_EXPECT_OK(watch->stream->Write(request));
    Turn();
    return watch;
  }
  template <typename Request>
  static void Name(const ProcessId& id, Request& request) {
    request.set_attempt_id(std::string(id.attempt.bytes()));
    request.set_slot(id.slot);
    request.set_incarnation(id.incarnation);
  }
  absl::Status Commit(const ProcessId& id, const ProcessId& as,
                      const std::string& path) {
    v1::CommitCheckpointRequest request;
    Name(id, request);
    request.set_epoch(7);
    request.mutable_checkpoint()->set_path(path);
    absl::Status answer = absl::UnknownError("not answered");
    const auto channel = ChannelOf(as);
    rpc::Call(*channel, rpc::kCommitCheckpoint, request,
              {.deadline = absl::Seconds(5)}, clock_,
              [&](auto response) { answer = response.status(); });
    Turn();
    return answer;
  }
  void Turn() { clock_.AdvanceBy(absl::Milliseconds(20)); }

  const rpc::Credential credential_ =
      *rpc::Credential::FromBytes(std::string(32, 'c'));
  rpc::LoopbackNetwork network_{{}, clock_, clock_, random_};
  rpc::Router router_{{}, rpc::Authenticator(credential_), clock_};
  RunService service_{
      router_, clock_, *state_,
      RunPaths{.host = "10.0.0.7",
               .runtime_directory =
                   [](const AttemptId&) { return std::string("/run/a"); },
               .checkpoint_root =
                   [](const v1::DesiredPlace& begun) {
                     return absl::StrCat("/r/attempt-1.", begun.epoch());
                   }}};
  std::vector<std::unique_ptr<rpc::Channel>> channels_;
  std::vector<std::shared_ptr<Watch>> watches_;
};

TEST_F(RunServiceTest, AWatchSaysAtOnceWhereTheProcessStands) {
  RunToRunning();
  const auto watch = Open(Id(1), Id(1));
  ASSERT_THAT(watch->told, SizeIs(1));
  EXPECT_EQ(watch->told[0].rank(), 1);
  EXPECT_EQ(watch->told[0].epoch(), 7);
  EXPECT_EQ(watch->told[0].host(), "10.0.0.7");
  EXPECT_EQ(watch->told[0].runtime_directory(), "/run/a");
  EXPECT_EQ(watch->told[0].checkpoint_root(), "/r/attempt-1.7");
}

TEST_F(RunServiceTest, AWatchTellsOfNewMembershipsUntilTheProcessIsOver) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  const auto watch = Open(Id(1), Id(1));
  want.set_epoch(8);
  want.set_members(0, 0);
  Apply(want);
  Turn();
  ASSERT_THAT(watch->told, SizeIs(2));
  EXPECT_EQ(watch->told[1].epoch(), 8);
  EXPECT_THAT(watch->told[1].members(), ElementsAre(0, 2));
  EXPECT_EQ(watch->told[1].checkpoint_root(), "/r/attempt-1.7");
  want.mutable_processes(1)->set_goal(v1::GOAL_STOP);
  Apply(want);
  Turn();
  ASSERT_THAT(watch->told, SizeIs(3));
  EXPECT_EQ(watch->told[2].notice().kind(), v1::NOTICE_KIND_STOP);
  TellExited(1, 0);
  Turn();
  EXPECT_THAT(watch->told, SizeIs(3));
  EXPECT_THAT(watch->closed, IsOk());
}

// WA-1
TEST_F(RunServiceTest, AReaderThatLagsGetsTheNewestOnly) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  const auto watch = Open(Id(0), Id(0));
  for (int i = 0; i < 50'000; ++i) want.add_members(1'000 + i);
  for (int epoch = 8; epoch < 100; ++epoch) {
    want.set_epoch(epoch);
    Apply(want);
  }
  Turn();
  ASSERT_FALSE(watch->told.empty());
  EXPECT_LT(watch->told.size(), 10u);
  EXPECT_EQ(watch->told.back().epoch(), 99);
}

// PR-3
TEST_F(RunServiceTest, AProcessSpeaksForItselfOnly) {
  RunToRunning();
  EXPECT_THAT(Open(Id(1), Id(0))->closed,
              StatusIs(absl::StatusCode::kPermissionDenied));
  const std::string path = "/r/attempt-1.7/step-3";
  EXPECT_THAT(Commit(Id(0), Id(0), path), IsOk());
  EXPECT_THAT(Commit(Id(0), Id(1), path),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Commit({id_, 0, 9}, Id(0), path),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Commit(Id(0), Id(0), "/r/attempt-1.6/step-3"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(RunServiceTest, AWatchOfWhatIsNotHereEnds) {
  EXPECT_THAT(Open(Id(0), Id(0))->closed,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("not on this")));
  RunToRunning();
  const auto watch = Open(Id(0), Id(0));
  v1::WatchRequest again;
  Name(Id(1), again);
  COHORT_EXPECT_OK(watch->stream->Write(again));
  Turn();
  EXPECT_THAT(watch->closed, StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(RunServiceTest, TellsTheHeadWhereAProcessServes) {
  RunToRunning();
  const auto watch = Open(Id(0), Id(0));
  state_->TakeDelta();
  v1::WatchRequest serves;
  Name(Id(0), serves);
  serves.add_addresses("unix:/run/a/actor.0.1");
  COHORT_EXPECT_OK(watch->stream->Write(serves));
  Turn();
  const v1::Observed told = state_->TakeDelta();
  ASSERT_THAT(told.places(), SizeIs(1));
  EXPECT_THAT(told.places(0).processes(0).addresses(),
              ElementsAre("unix:/run/a/actor.0.1"));
  // A head that is new hears of it, too.
  EXPECT_THAT(state_->FullObserved()[0].places(0).processes(0).addresses(),
              SizeIs(1));
  // A report with it would be refused, and the node with it.
  serves.add_addresses("a\x01");
  COHORT_EXPECT_OK(watch->stream->Write(serves));
  Turn();
  EXPECT_THAT(watch->closed, StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort::worker
