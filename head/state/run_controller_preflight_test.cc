// What ranks tell of their preflight and of their GPUs.

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/state/testing/run_controller_fixture.h"
#include "head/testing/messages.h"

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

  v1::ObservedPlace Told(PreflightVerdict verdict, const std::string& summary,
                         const std::string& json = "") {
    return WithPreflight(At(Stage::kRunning), verdict, summary, json);
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
  const v1::ObservedPlace told =
      Told(v1::PREFLIGHT_VERDICT_SLOW, "ranks 0\nand 1", "{}");
  const RunOutcome first = Say(a_, told);
  EXPECT_TRUE(first.job_changed);
  EXPECT_TRUE(first.preflight_told);
  EXPECT_THAT(KindsOf(first), ElementsAre("preflight_slow"));
  // Observed sets repeat it.
  EXPECT_THAT(KindsOf(Say(a_, told)), IsEmpty());
  ASSERT_TRUE(job_.row.has_preflight());
  EXPECT_EQ(job_.row.preflight().attempt(), 1);
  EXPECT_EQ(job_.row.preflight().report(),
            PreflightOf(v1::PREFLIGHT_VERDICT_SLOW, "ranks 0 and 1", "{}"));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
}

class RunControllerGpuTest : public RunControllerPreflightTest {
 protected:
  v1::ObservedPlace Told(int rank, GpuAbortLevel level,
                         const std::string& why) {
    v1::ObservedPlace observed = At(Stage::kRunning);
    observed.mutable_processes(rank)->mutable_gpu_end()->set_level(level);
    observed.mutable_processes(rank)->mutable_gpu_end()->set_why(why);
    return observed;
  }
};

TEST_F(RunControllerGpuTest, EachAbortLevelIsOneEventOfTheAttempt) {
  Run();
  const RunOutcome first =
      Say(a_, Told(0, v1::GPU_ABORT_LEVEL_REVOKED, "GPU-a:\nlate"));
  EXPECT_TRUE(first.attempt_changed);
  ASSERT_THAT(KindsOf(first), ElementsAre("gpu_comm_revoked"));
  EXPECT_EQ(first.notes[0].text, "rank 0: GPU-a: late");
  // Observed sets repeat it, and the others climb, too.
  EXPECT_THAT(
      KindsOf(Say(a_, Told(0, v1::GPU_ABORT_LEVEL_REVOKED, "GPU-a: late"))),
      IsEmpty());
  EXPECT_THAT(KindsOf(Say(b_, Told(1, v1::GPU_ABORT_LEVEL_REVOKED, "GPU-b"))),
              IsEmpty());
  EXPECT_THAT(KindsOf(Say(b_, Told(1, v1::GPU_ABORT_LEVEL_ABORTED, "GPU-b"))),
              ElementsAre("gpu_comm_aborted"));
  EXPECT_THAT(
      KindsOf(Say(a_, Told(0, v1::GPU_ABORT_LEVEL_KILLED, "in cuMemFree"))),
      ElementsAre("gpu_comm_killed"));
  EXPECT_EQ(attempt_.gpu_abort_levels, 0b1110u);
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
  EXPECT_THAT(KindsOf(Say(a_, Told(1, v1::GPU_ABORT_LEVEL_KILLED, "of b"))),
              IsEmpty());
}

// PF-4
TEST_F(RunControllerPreflightTest, OneThatFailsEndsTheAttemptAsInfra) {
  Run();
  Say(b_, Told(v1::PREFLIGHT_VERDICT_FAILED, "rank 1 hangs"));
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_ENDING);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED);
  const RunOutcome other =
      Say(a_, Told(v1::PREFLIGHT_VERDICT_FAILED, "of rank 0", "{}"));
  EXPECT_THAT(KindsOf(other), IsEmpty());
  Say(a_, Exited(0, 1));
  Say(b_, Exited(1, 1));
  EXPECT_EQ(job_.row.state(), v1::JOB_STATE_PENDING);
  EXPECT_EQ(job_.row.failure_class(), v1::FAILURE_CLASS_INFRA);
  EXPECT_EQ(job_.row.failures(), 0);
  EXPECT_EQ(job_.row.failed_rank(), -1);
  EXPECT_EQ(job_.row.reason(), "attempt 1: preflight: rank 1 hangs");
  EXPECT_THAT(job_.row.causes(),
              ElementsAre("preflight: rank 1 hangs",
                          "attempt 1 ended before its command ran"));
  EXPECT_EQ(job_.row.preflight().report().summary(), "rank 1 hangs");
  EXPECT_EQ(job_.row.preflight().report().json(), "{}");
}

TEST_F(RunControllerPreflightTest, ARankThatWasSeenToFailFirstFailedByIt) {
  Run();
  v1::ObservedPlace exited = Exited(0, 1);
  exited.mutable_processes(0)->set_state(v1::PROCESS_STATE_EXITED);
  Say(a_, exited);
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_RANK_FAILED);
  Say(b_, Told(v1::PREFLIGHT_VERDICT_FAILED, "ranks 0 and 1"));
  EXPECT_EQ(attempt_.cause, v1::ATTEMPT_CAUSE_PREFLIGHT_FAILED);
}

TEST_F(RunControllerPreflightTest, NobodyTellsOfWhatWasNotAskedFor) {
  job_.spec.Own().mutable_run()->set_preflight(false);
  Run();
  Say(a_, Told(v1::PREFLIGHT_VERDICT_FAILED, "a lie"));
  EXPECT_FALSE(job_.row.has_preflight());
  EXPECT_EQ(attempt_.state, v1::ATTEMPT_STATE_RUNNING);
}

}  // namespace
}  // namespace cohort::head
