// What ranks tell of their preflight and of their GPUs.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/state/testing/run_controller_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RunControllerPreflightTest : public RunControllerTest {
 protected:
  RunControllerPreflightTest() {
    job_.spec.Own().mutable_run()->set_preflight(true);
  }

  ObservedAttempt Told(PreflightVerdict verdict, const std::string& summary,
                       const std::string& json = "") {
    ObservedAttempt observed = At(ObservedPhase::kRunning);
    observed.preflight = {.verdict = verdict, .summary = summary, .json = json};
    return observed;
  }
  static std::vector<std::string> KindsOf(const RunOutcome& outcome) {
    std::vector<std::string> kinds;
    for (const RunOutcome::Note& note : outcome.notes) {
      kinds.emplace_back(note.kind);
    }
    return kinds;
  }
};

TEST_F(RunControllerPreflightTest, TheReportIsKeptWithTheJob) {
  Run();
  const ObservedAttempt told =
      Told(PreflightVerdict::kSlow, "ranks 0\nand 1", "{}");
  const RunOutcome first = Say(a_, told);
  EXPECT_TRUE(first.job_changed);
  EXPECT_TRUE(first.preflight_told);
  EXPECT_THAT(KindsOf(first), ElementsAre("preflight_slow"));
  // Observed sets repeat it.
  EXPECT_THAT(KindsOf(Say(a_, told)), IsEmpty());
  EXPECT_EQ(job_.preflight, (Preflight{.attempt = 1,
                                       .verdict = PreflightVerdict::kSlow,
                                       .summary = "ranks 0 and 1",
                                       .json = "{}"}));
  EXPECT_EQ(attempt_.state, AttemptState::kRunning);
}

class RunControllerGpuTest : public RunControllerPreflightTest {
 protected:
  ObservedAttempt Told(int rank, GpuAbortLevel level, const std::string& why) {
    ObservedAttempt observed = At(ObservedPhase::kRunning);
    observed.ranks = {{.rank = rank,
                       .state = RankState::kRunning,
                       .gpu_abort_level = level,
                       .gpu_why = why}};
    return observed;
  }
};

TEST_F(RunControllerGpuTest, EachAbortLevelIsOneEventOfTheAttempt) {
  Run();
  const RunOutcome first =
      Say(a_, Told(0, GpuAbortLevel::kRevoked, "GPU-a:\nlate"));
  EXPECT_TRUE(first.attempt_changed);
  ASSERT_THAT(KindsOf(first), ElementsAre("gpu_comm_revoked"));
  EXPECT_EQ(first.notes[0].text, "rank 0: GPU-a: late");
  // Observed sets repeat it, and the others climb, too.
  EXPECT_THAT(KindsOf(Say(a_, Told(0, GpuAbortLevel::kRevoked, "GPU-a: late"))),
              IsEmpty());
  EXPECT_THAT(KindsOf(Say(b_, Told(1, GpuAbortLevel::kRevoked, "GPU-b"))),
              IsEmpty());
  EXPECT_THAT(KindsOf(Say(b_, Told(1, GpuAbortLevel::kAborted, "GPU-b"))),
              ElementsAre("gpu_comm_aborted"));
  EXPECT_THAT(KindsOf(Say(a_, Told(0, GpuAbortLevel::kKilled, "in cuMemFree"))),
              ElementsAre("gpu_comm_killed"));
  EXPECT_EQ(attempt_.gpu_abort_levels, 0b1110u);
  EXPECT_EQ(attempt_.state, AttemptState::kRunning);
  EXPECT_THAT(KindsOf(Say(a_, Told(1, GpuAbortLevel::kKilled, "of b"))),
              IsEmpty());
}

// PF-4
TEST_F(RunControllerPreflightTest, OneThatFailsEndsTheAttemptAsInfra) {
  Run();
  Say(b_, Told(PreflightVerdict::kFailed, "rank 1 hangs"));
  EXPECT_EQ(attempt_.state, AttemptState::kEnding);
  EXPECT_EQ(attempt_.cause, EndCause::kPreflightFailed);
  const RunOutcome other =
      Say(a_, Told(PreflightVerdict::kFailed, "of rank 0", "{}"));
  EXPECT_THAT(KindsOf(other), IsEmpty());
  Say(a_, Exited(0, 1));
  Say(b_, Exited(1, 1));
  EXPECT_EQ(job_.state, JobState::kPending);
  EXPECT_EQ(job_.failure_class, FailureClass::kInfra);
  EXPECT_EQ(job_.failures, 0);
  EXPECT_EQ(job_.failed_rank, -1);
  EXPECT_EQ(job_.reason, "attempt 1: preflight: rank 1 hangs");
  EXPECT_THAT(job_.causes,
              ElementsAre("preflight: rank 1 hangs",
                          "attempt 1 ended before its command ran"));
  EXPECT_EQ(job_.preflight->summary, "rank 1 hangs");
  EXPECT_EQ(job_.preflight->json, "{}");
}

TEST_F(RunControllerPreflightTest, ARankThatWasSeenToFailFirstFailedByIt) {
  Run();
  ObservedAttempt exited = Exited(0, 1);
  exited.phase = ObservedPhase::kRunning;
  Say(a_, exited);
  EXPECT_EQ(attempt_.cause, EndCause::kRankFailed);
  Say(b_, Told(PreflightVerdict::kFailed, "ranks 0 and 1"));
  EXPECT_EQ(attempt_.cause, EndCause::kPreflightFailed);
}

TEST_F(RunControllerPreflightTest, NobodyTellsOfWhatWasNotAskedFor) {
  job_.spec.Own().mutable_run()->set_preflight(false);
  Run();
  Say(a_, Told(PreflightVerdict::kFailed, "a lie"));
  EXPECT_FALSE(job_.preflight.has_value());
  EXPECT_EQ(attempt_.state, AttemptState::kRunning);
}

}  // namespace
}  // namespace cohort::head
