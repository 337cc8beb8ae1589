// NodeState and what running processes ask of it: where they stand,
// checkpoints, exchanges, metrics, their preflight.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "worker/testing/node_state_fixture.h"

namespace cohort::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(NodeStateTest,
       ACheckpointIsOnDiskBeforeItIsAcceptedAndUntilAcknowledged) {
  RunToRunning();
  v1::Checkpoint checkpoint;
  checkpoint.set_path("/r/j/attempt-1.7/step-5");
  absl::Status accepted = absl::UnknownError("not answered");
  state_->CommitCheckpoint(Id(0), 7, checkpoint,
                           [&](absl::Status status) { accepted = status; });
  EXPECT_THAT(accepted, IsOk());
  EXPECT_EQ(host_.places[id_].observed.checkpoints_size(), 1);
  EXPECT_EQ(host_.place_durability, Durability::kMachine);
  EXPECT_EQ(Seen().checkpoints_size(), 1);
  v1::Acknowledge acknowledge;
  auto* acknowledged = acknowledge.add_checkpoints();
  acknowledged->set_attempt_id(std::string(id_.bytes()));
  acknowledged->add_paths(checkpoint.path());
  state_->Acknowledge(acknowledge);
  EXPECT_EQ(Seen().checkpoints_size(), 0);
  EXPECT_EQ(host_.places[id_].observed.checkpoints_size(), 0);
}

TEST_F(NodeStateTest, RefusesACheckpointOfAnotherEpoch) {
  RunToRunning();
  absl::Status accepted;
  state_->CommitCheckpoint(Id(0), 6, {},
                           [&](absl::Status status) { accepted = status; });
  EXPECT_THAT(accepted, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(NodeStateTest, RetiredCheckpointsAreRemovedOnceAndReported) {
  RunToRunning();
  host_.calls.clear();
  v1::DesiredPlace want = Want(v1::GOAL_RUN);
  want.add_retired_checkpoints("/old");
  Apply(want);
  Apply(want);
  EXPECT_THAT(host_.calls, ElementsAre("remove /old"));
  EXPECT_THAT(Seen().removed_checkpoints(), ElementsAre("/old"));
  Apply(Want(v1::GOAL_RUN));
  EXPECT_THAT(Seen().removed_checkpoints(), IsEmpty());
}

TEST_F(NodeStateTest, AnExchangeIsAnsweredWhenTheHeadHasAllBlobs) {
  RunToRunning();
  absl::StatusOr<std::vector<std::string>> blobs =
      absl::UnknownError("not answered");
  const auto note = [&](auto result) { blobs = std::move(result); };
  state_->GiveBlob(Id(0), 7, "gloo", "a", note);
  EXPECT_EQ(Seen().exchanges_size(), 1);
  v1::Desired desired;
  v1::Exchange& exchange = *desired.add_exchanges();
  exchange.set_attempt_id(std::string(id_.bytes()));
  exchange.set_tag("gloo");
  exchange.set_epoch(7);
  exchange.add_blobs("a");
  state_->Apply(desired);
  EXPECT_FALSE(blobs.ok()) << "one blob is missing";
  exchange.add_blobs("b");
  state_->Apply(desired);
  ASSERT_THAT(blobs, IsOk());
  EXPECT_THAT(*blobs, ElementsAre("a", "b"));
  // Whose call was lost asks again, and the head says it once a stream.
  blobs = absl::UnknownError("not answered");
  state_->GiveBlob(Id(0), 7, "gloo", "a", note);
  ASSERT_THAT(blobs, IsOk());
  EXPECT_THAT(*blobs, ElementsAre("a", "b"));
}

TEST_F(NodeStateTest, WhatARankGaveIsToldOnceAStream) {
  RunToRunning();
  state_->GiveBlob(Id(0), 7, "gloo", "a", [](auto) {});
  state_->GiveBlob(Id(1), 7, "gloo", "b", [](auto) {});
  EXPECT_EQ(state_->TakeDelta().places(0).exchanges_size(), 2);
  state_->GiveBlob(Id(0), 7, "nccl", "c", [](auto) {});
  const v1::Observed delta = state_->TakeDelta();
  ASSERT_EQ(delta.places(0).exchanges_size(), 1);
  EXPECT_EQ(delta.places(0).exchanges(0).tag(), "nccl");
  // A new stream: state first.
  EXPECT_EQ(state_->FullObserved().front().places(0).exchanges_size(), 0);
  EXPECT_EQ(state_->TakeDelta().places(0).exchanges_size(), 3);
  EXPECT_EQ(state_->TakeDelta().places_size(), 0);
}

TEST_F(NodeStateTest, LargeExchangesAreToldInPiecesAndBounded) {
  RunToRunning();
  absl::Status answer;
  const auto note = [&](auto result) { answer = result.status(); };
  const std::string blob(64 << 10, 'x');
  int given = 0;
  for (int rank : {0, 1}) {
    for (int i = 0; i < 64; ++i) {
      state_->GiveBlob(Id(rank), 7, absl::StrCat("t", i), blob, note);
      given += answer.ok();
    }
  }
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("at most 6291456")));
  int told = 0;
  for (v1::Observed delta = state_->TakeDelta(); delta.places_size() > 0;
       delta = state_->TakeDelta()) {
    EXPECT_LT(delta.ByteSizeLong(), size_t{2} << 20);
    ASSERT_EQ(delta.places_size(), 1);
    EXPECT_EQ(delta.places(0).processes(0).state(), v1::PROCESS_STATE_RUNNING);
    told += delta.places(0).exchanges_size();
  }
  EXPECT_EQ(told, given);
}

TEST_F(NodeStateTest, AnExchangeEndsWithTheProcessThatWaitsForIt) {
  RunToRunning();
  absl::Status answers[2];
  for (const int slot : {0, 1}) {
    state_->GiveBlob(
        Id(slot), 7, "gloo", "a",
        [&answer = answers[slot]](auto result) { answer = result.status(); });
  }
  TellExited(0, 1);
  EXPECT_THAT(answers[0], StatusIs(absl::StatusCode::kAborted));
  COHORT_EXPECT_OK(answers[1]);
}

TEST_F(NodeStateTest, AnExchangeEndsWithItsEpoch) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  absl::Status answer;
  const auto note = [&](auto result) { answer = result.status(); };
  state_->GiveBlob(Id(0), 7, "gloo", "a", note);
  want.set_epoch(8);
  Apply(want);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(Seen().exchanges_size(), 0);
  EXPECT_EQ(Seen().epoch(), 8);
  state_->GiveBlob(Id(0), 7, "gloo", "a", note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
  // What the head gathered in the old one is nobody's.
  answer = absl::OkStatus();
  state_->GiveBlob(Id(0), 8, "gloo", "b", note);
  v1::Desired desired;
  v1::Exchange& exchange = *desired.add_exchanges();
  exchange.set_attempt_id(std::string(id_.bytes()));
  exchange.set_tag("gloo");
  exchange.set_epoch(7);
  exchange.add_blobs("a");
  exchange.add_blobs("b");
  state_->Apply(desired);
  absl::StatusOr<std::vector<std::string>> blobs =
      absl::UnknownError("not answered");
  state_->GiveBlob(Id(1), 8, "gloo", "c",
                   [&](auto result) { blobs = std::move(result); });
  EXPECT_THAT(blobs, StatusIs(absl::StatusCode::kUnknown));
  ASSERT_EQ(Seen().exchanges_size(), 2);
  EXPECT_EQ(Seen().exchanges(1).rank(), 1);
}

TEST_F(NodeStateTest, RefusesAnotherBlobUnderOneTag) {
  RunToRunning();
  state_->GiveBlob(Id(0), 7, "gloo", "a", [](auto) {});
  absl::Status answer;
  state_->GiveBlob(Id(0), 7, "gloo", "b",
                   [&](auto result) { answer = result.status(); });
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(NodeStateTest, BoundsTheTagsOfARank) {
  RunToRunning();
  absl::Status answer;
  const auto note = [&](auto result) { answer = result.status(); };
  for (int i = 0; i < 64; ++i) {
    state_->GiveBlob(Id(0), 7, absl::StrCat("tag", i), "a", note);
  }
  COHORT_EXPECT_OK(answer);
  state_->GiveBlob(Id(0), 7, "one more", "a", note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(NodeStateTest, OnlyTheNewestMetricsAreShown) {
  RunToRunning();
  state_->TakeDelta();
  host_.TellMetrics(Id(0), 5, R"({"step":5})");
  host_.TellMetrics(Id(0), 4, R"({"step":4})");
  const v1::Observed delta = state_->TakeDelta();
  ASSERT_EQ(delta.places_size(), 1);
  ASSERT_EQ(delta.places(0).metrics_size(), 1);
  EXPECT_EQ(delta.places(0).metrics(0).json(), R"({"step":5})");
}

// PF-1
TEST_F(NodeStateTest, TheCommandMayBeginOnceThatIsOnDisk) {
  RunWithPreflight();
  v1::PreflightReport report;
  report.set_verdict(v1::PREFLIGHT_VERDICT_PASSED);
  report.set_json("{}");
  host_.save_status = absl::UnavailableError("disk full");
  absl::Status answer;
  const auto note = [&](absl::Status status) { answer = std::move(status); };
  state_->ReportPreflight(Id(0), 7, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable));
  host_.save_status = absl::OkStatus();
  state_->ReportPreflight(Id(0), 7, report, note);
  COHORT_EXPECT_OK(answer);
  EXPECT_TRUE(host_.processes.at(Id(0)).observed.through_preflight());
  EXPECT_EQ(state_->TakeDelta().places(0).preflight().json(), "{}");
  state_->ReportPreflight(Id(0), 6, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Who could say so later would fail for free.
TEST_F(NodeStateTest, ACommandCannotFailInThePreflight) {
  v1::PreflightReport report;
  report.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  absl::Status answer;
  const auto note = [&](absl::Status status) { answer = std::move(status); };
  RunToRunning();
  state_->ReportPreflight(Id(0), 7, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
  v1::DesiredPlace want = Want(v1::GOAL_RUN);
  want.set_preflight(true);
  Apply(want);
  report.set_verdict(v1::PREFLIGHT_VERDICT_PASSED);
  state_->ReportPreflight(Id(0), 7, report, note);
  COHORT_EXPECT_OK(answer);
  report.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  state_->ReportPreflight(Id(0), 7, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_FALSE(Seen().has_preflight());
}

// What a rank says before it is killed is told with its exit at the latest.
TEST_F(NodeStateTest, TheHighestAbortLevelOfAGpuIsToldAndKept) {
  RunToRunning();
  state_->TakeDelta();
  absl::Status answer;
  const auto note = [&](absl::Status status) { answer = std::move(status); };
  v1::GpuEnd end;
  end.set_level(v1::GPU_ABORT_LEVEL_ABORTED);
  end.set_why("rank 1 is gone");
  host_.save_status = absl::UnavailableError("disk full");
  state_->ReportGpuEnd(Id(0), 7, end, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable));
  host_.save_status = absl::OkStatus();
  end.set_level(v1::GPU_ABORT_LEVEL_KILLED);
  end.set_why("hangs in cuMemFree");
  state_->ReportGpuEnd(Id(0), 7, end, note);
  COHORT_EXPECT_OK(answer);
  EXPECT_EQ(host_.processes.at(Id(0)).observed.gpu_end().why(),
            "hangs in cuMemFree");
  EXPECT_EQ(state_->TakeDelta().places(0).processes(0).gpu_end().level(),
            v1::GPU_ABORT_LEVEL_KILLED);
  end.set_level(v1::GPU_ABORT_LEVEL_REVOKED);
  state_->ReportGpuEnd(Id(0), 7, end, note);
  COHORT_EXPECT_OK(answer);
  EXPECT_EQ(Seen(0).gpu_end().level(), v1::GPU_ABORT_LEVEL_KILLED);
  state_->ReportGpuEnd(Id(0), 6, end, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(NodeStateTest, ARankThatDiesInItsPreflightIsToldOf) {
  RunWithPreflight();
  // One that the head has ended has not failed.
  TellExited(0, Status(0, 15, ExitCause::kStopped));
  EXPECT_FALSE(Seen().has_preflight());
  TellExited(1, Status(0, 9));
  EXPECT_EQ(Seen().preflight().summary(),
            "rank 1 was killed by signal 9 in it");
}

// ---- who may speak, and what it is told ----

// PR-3
TEST_F(NodeStateTest, AProcessOfAnOldIncarnationIsNotHeard) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  Run(want);
  EXPECT_THAT(state_->FindRunning(Id(0), 7), IsOk());
  EXPECT_THAT(state_->FindRunning({id_, 0, 9}, 7).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(state_->FindRunning({AttemptId(), 0, 1}, 7).status(),
              StatusIs(absl::StatusCode::kNotFound));
  AddProcess(want, {id_, 0, 3}, v1::GOAL_RUN);
  Apply(want);
  EXPECT_THAT(state_->FindRunning(Id(0), 7).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("slot 0 has incarnation 3")));
  EXPECT_THAT(state_->FindRunning(Id(1), 7), IsOk());
  TellExited(1, 0);
  EXPECT_THAT(state_->FindRunning(Id(1), 7).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

class NodeStateWatchTest : public NodeStateTest {
 protected:
  void Watch() {
    state_->SetWatcher([this](const ProcessId& id) { told_.push_back(id); });
  }
  std::vector<ProcessId> TakeTold() { return std::exchange(told_, {}); }

 private:
  std::vector<ProcessId> told_;
};

TEST_F(NodeStateWatchTest, SaysWhereAProcessStands) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  want.set_number(3);
  want.set_node_rank(1);
  want.set_node_count(2);
  want.mutable_restore()->set_step(5);
  Run(want);
  Watch();
  const auto standing = state_->Standing(Id(1));
  ASSERT_THAT(standing, IsOk());
  EXPECT_EQ(standing->number(), 3);
  EXPECT_EQ(standing->restart(), v1::RESTART_POLICY_ONE);
  EXPECT_EQ(standing->epoch(), 7);
  EXPECT_EQ(standing->rank(), 1);
  EXPECT_EQ(standing->local_rank(), 1);
  EXPECT_EQ(standing->world_size(), 2);
  EXPECT_EQ(standing->local_world_size(), 2);
  EXPECT_EQ(standing->node_rank(), 1);
  EXPECT_EQ(standing->node_count(), 2);
  EXPECT_THAT(standing->members(), ElementsAre(1, 2));
  EXPECT_EQ(standing->restore().step(), 5);
  EXPECT_FALSE(standing->has_notice());
  EXPECT_THAT(state_->Standing({id_, 1, 1}).status(),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(NodeStateWatchTest, ANewMembershipIsToldOnceToEach) {
  v1::DesiredPlace want = WantEach(v1::RESTART_POLICY_ONE);
  want.mutable_restore()->set_step(5);
  Run(want);
  Watch();
  Apply(want);
  EXPECT_THAT(TakeTold(), IsEmpty());
  want.set_epoch(8);
  want.set_members(0, 0);
  want.mutable_restore()->set_step(9);
  Apply(want);
  EXPECT_THAT(TakeTold(), ElementsAre(Id(0), Id(1)));
  const auto standing = state_->Standing(Id(1));
  EXPECT_EQ(standing->epoch(), 8);
  EXPECT_THAT(standing->members(), ElementsAre(0, 2));
  EXPECT_EQ(standing->restore().step(), 5) << "what it was begun with";
}

TEST_F(NodeStateWatchTest, AStopIsNoticedWithTheTimeThatIsLeft) {
  RunToRunning();
  Watch();
  v1::DesiredPlace want = Want(v1::GOAL_STOP);
  want.mutable_processes(0)->set_reason("stopped on request");
  Apply(want);
  EXPECT_THAT(TakeTold(), ElementsAre(Id(0), Id(1)));
  clock_.AdvanceBy(absl::Seconds(1));
  Apply(want);  // with the same grace, counted from now
  EXPECT_THAT(TakeTold(), IsEmpty());
  const v1::Notice notice = state_->Standing(Id(0))->notice();
  EXPECT_EQ(notice.kind(), v1::NOTICE_KIND_STOP);
  EXPECT_EQ(notice.reason(), "stopped on request");
  EXPECT_EQ(notice.deadline().seconds(), 2);
  TellExited(0, 0);
  EXPECT_THAT(TakeTold(), ElementsAre(Id(0)));
  EXPECT_THAT(state_->Standing(Id(0)).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(NodeStateWatchTest, ADrainIsPassedOn) {
  v1::DesiredPlace want = Want(v1::GOAL_RUN);
  Run(want);
  Watch();
  want.mutable_notice()->set_kind(v1::NOTICE_KIND_DRAIN);
  want.mutable_notice()->set_reason("new disks");
  want.mutable_notice()->mutable_deadline()->set_seconds(60);
  Apply(want);
  EXPECT_THAT(TakeTold(), ElementsAre(Id(0), Id(1)));
  clock_.AdvanceBy(absl::Seconds(10));
  v1::Notice notice = state_->Standing(Id(1))->notice();
  EXPECT_EQ(notice.kind(), v1::NOTICE_KIND_DRAIN);
  EXPECT_EQ(notice.deadline().seconds(), 50);
  want.mutable_notice()->clear_deadline();
  Apply(want);
  EXPECT_THAT(TakeTold(), ElementsAre(Id(0), Id(1)));
  EXPECT_FALSE(state_->Standing(Id(1))->notice().has_deadline());
}

}  // namespace
}  // namespace cohort::worker
