// NodeState and what running ranks ask of it: checkpoints, exchanges, metrics,
// their preflight.

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
  state_->CommitCheckpoint(id_, 0, 7, checkpoint,
                           [&](absl::Status status) { accepted = status; });
  EXPECT_THAT(accepted, IsOk());
  EXPECT_EQ(host_.journal[id_].observed.checkpoints_size(), 1);
  EXPECT_EQ(Seen().checkpoints_size(), 1);
  v1::Acknowledge acknowledge;
  auto* acknowledged = acknowledge.add_checkpoints();
  acknowledged->set_attempt_id(std::string(id_.bytes()));
  acknowledged->add_paths(checkpoint.path());
  state_->Acknowledge(acknowledge);
  EXPECT_EQ(Seen().checkpoints_size(), 0);
  EXPECT_EQ(host_.journal[id_].observed.checkpoints_size(), 0);
}

TEST_F(NodeStateTest, RefusesACheckpointOfAnotherEpoch) {
  RunToRunning();
  absl::Status accepted;
  state_->CommitCheckpoint(id_, 0, 6, {},
                           [&](absl::Status status) { accepted = status; });
  EXPECT_THAT(accepted, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(NodeStateTest, RetiredCheckpointsAreRemovedOnceAndReported) {
  RunToRunning();
  host_.calls.clear();
  v1::DesiredAttempt want = Want(v1::GOAL_RUN);
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
  state_->GiveBlob(id_, 0, 7, "gloo", "a", note);
  EXPECT_EQ(Seen().exchanges_size(), 1);
  v1::Desired desired;
  v1::Exchange& exchange = *desired.add_exchanges();
  exchange.set_attempt_id(std::string(id_.bytes()));
  exchange.set_tag("gloo");
  exchange.add_blobs("a");
  state_->Apply(desired);
  EXPECT_FALSE(blobs.ok()) << "one blob is missing";
  exchange.add_blobs("b");
  state_->Apply(desired);
  ASSERT_THAT(blobs, IsOk());
  EXPECT_THAT(*blobs, ElementsAre("a", "b"));
  // Whose call was lost asks again, and the head says it once a stream.
  blobs = absl::UnknownError("not answered");
  state_->GiveBlob(id_, 0, 7, "gloo", "a", note);
  ASSERT_THAT(blobs, IsOk());
  EXPECT_THAT(*blobs, ElementsAre("a", "b"));
}

TEST_F(NodeStateTest, WhatARankGaveIsToldOnceAStream) {
  RunToRunning();
  state_->GiveBlob(id_, 0, 7, "gloo", "a", [](auto) {});
  state_->GiveBlob(id_, 1, 7, "gloo", "b", [](auto) {});
  EXPECT_EQ(state_->TakeDelta().attempts(0).exchanges_size(), 2);
  state_->GiveBlob(id_, 0, 7, "nccl", "c", [](auto) {});
  const v1::Observed delta = state_->TakeDelta();
  ASSERT_EQ(delta.attempts(0).exchanges_size(), 1);
  EXPECT_EQ(delta.attempts(0).exchanges(0).tag(), "nccl");
  // A new stream: state first.
  EXPECT_EQ(state_->FullObserved().front().attempts(0).exchanges_size(), 0);
  EXPECT_EQ(state_->TakeDelta().attempts(0).exchanges_size(), 3);
  EXPECT_EQ(state_->TakeDelta().attempts_size(), 0);
}

TEST_F(NodeStateTest, LargeExchangesAreToldInPiecesAndBounded) {
  RunToRunning();
  absl::Status answer;
  const auto note = [&](auto result) { answer = result.status(); };
  const std::string blob(64 << 10, 'x');
  int given = 0;
  for (int rank : {0, 1}) {
    for (int i = 0; i < 64; ++i) {
      state_->GiveBlob(id_, rank, 7, absl::StrCat("t", i), blob, note);
      given += answer.ok();
    }
  }
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted,
                               HasSubstr("at most 6291456")));
  int told = 0;
  for (v1::Observed delta = state_->TakeDelta(); delta.attempts_size() > 0;
       delta = state_->TakeDelta()) {
    EXPECT_LT(delta.ByteSizeLong(), size_t{2} << 20);
    ASSERT_EQ(delta.attempts_size(), 1);
    EXPECT_EQ(delta.attempts(0).phase(), v1::PHASE_RUNNING);
    told += delta.attempts(0).exchanges_size();
  }
  EXPECT_EQ(told, given);
}

TEST_F(NodeStateTest, AnExchangeEndsWithItsAttempt) {
  RunToRunning();
  absl::Status answer;
  state_->GiveBlob(id_, 0, 7, "gloo", "a",
                   [&](auto result) { answer = result.status(); });
  host_.Tell(id_, KeeperLost{});
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kAborted));
}

TEST_F(NodeStateTest, RefusesAnotherBlobUnderOneTag) {
  RunToRunning();
  state_->GiveBlob(id_, 0, 7, "gloo", "a", [](auto) {});
  absl::Status answer;
  state_->GiveBlob(id_, 0, 7, "gloo", "b",
                   [&](auto result) { answer = result.status(); });
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kAlreadyExists));
}

TEST_F(NodeStateTest, BoundsTheTagsOfARank) {
  RunToRunning();
  absl::Status answer;
  const auto note = [&](auto result) { answer = result.status(); };
  for (int i = 0; i < 64; ++i) {
    state_->GiveBlob(id_, 0, 7, absl::StrCat("tag", i), "a", note);
  }
  COHORT_EXPECT_OK(answer);
  state_->GiveBlob(id_, 0, 7, "one more", "a", note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(NodeStateTest, OnlyTheNewestMetricsAreShown) {
  RunToRunning();
  state_->TakeDelta();
  host_.TellMetrics(id_, 0, 5, R"({"step":5})");
  host_.TellMetrics(id_, 0, 4, R"({"step":4})");
  const v1::Observed delta = state_->TakeDelta();
  ASSERT_EQ(delta.attempts_size(), 1);
  ASSERT_EQ(delta.attempts(0).metrics_size(), 1);
  EXPECT_EQ(delta.attempts(0).metrics(0).json(), R"({"step":5})");
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
  state_->ReportPreflight(id_, 0, 7, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable));
  host_.save_status = absl::OkStatus();
  state_->ReportPreflight(id_, 0, 7, report, note);
  COHORT_EXPECT_OK(answer);
  EXPECT_TRUE(host_.journal.at(id_).observed.ranks(0).through_preflight());
  EXPECT_EQ(state_->TakeDelta().attempts(0).preflight().json(), "{}");
  state_->ReportPreflight(id_, 0, 6, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
}

// Who could say so later would fail for free.
TEST_F(NodeStateTest, ACommandCannotFailInThePreflight) {
  v1::PreflightReport report;
  report.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  absl::Status answer;
  const auto note = [&](absl::Status status) { answer = std::move(status); };
  RunToRunning();
  state_->ReportPreflight(id_, 0, 7, report, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
  v1::DesiredAttempt want = Want(v1::GOAL_RUN);
  want.set_preflight(true);
  Apply(want);
  report.set_verdict(v1::PREFLIGHT_VERDICT_PASSED);
  state_->ReportPreflight(id_, 0, 7, report, note);
  COHORT_EXPECT_OK(answer);
  report.set_verdict(v1::PREFLIGHT_VERDICT_FAILED);
  state_->ReportPreflight(id_, 0, 7, report, note);
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
  state_->ReportGpuEnd(id_, 0, 7, end, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kUnavailable));
  host_.save_status = absl::OkStatus();
  end.set_level(v1::GPU_ABORT_LEVEL_KILLED);
  end.set_why("hangs in cuMemFree");
  state_->ReportGpuEnd(id_, 0, 7, end, note);
  COHORT_EXPECT_OK(answer);
  EXPECT_EQ(host_.journal.at(id_).observed.ranks(0).gpu_end().why(),
            "hangs in cuMemFree");
  EXPECT_EQ(state_->TakeDelta().attempts(0).ranks(0).gpu_end().level(),
            v1::GPU_ABORT_LEVEL_KILLED);
  end.set_level(v1::GPU_ABORT_LEVEL_REVOKED);
  state_->ReportGpuEnd(id_, 0, 7, end, note);
  COHORT_EXPECT_OK(answer);
  EXPECT_EQ(Seen().ranks(0).gpu_end().level(), v1::GPU_ABORT_LEVEL_KILLED);
  state_->ReportGpuEnd(id_, 0, 6, end, note);
  EXPECT_THAT(answer, StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(NodeStateTest, ARankThatDiesInItsPreflightIsToldOf) {
  RunWithPreflight();
  // One that the head has ended has not failed.
  host_.Tell(id_, Exited(0, 0, 15, ExitStatus::Cause::kStopped));
  EXPECT_FALSE(Seen().has_preflight());
  host_.Tell(id_, Exited(1, 0, 9));
  EXPECT_EQ(Seen().preflight().summary(),
            "rank 1 was killed by signal 9 in it");
}

}  // namespace
}  // namespace cohort::worker
