#include "head/state/job_phases.h"

#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;
using Kind = JobPhase::Kind;

absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

TEST(JobPhases, CoverAJobFromSubmissionToEnd) {
  JobRecord job;
  job.submitted_at = At(10);
  NotePhase(Kind::kHeld, At(10), job);
  NotePhase(Kind::kHeld, At(12), job);
  NotePhase(Kind::kInLine, At(13), job);
  job.ended_at = At(20);

  const std::vector<PhaseSpan> spans = PhaseSpans(job);

  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_EQ(spans[0].kind, Kind::kHeld);
  EXPECT_EQ(spans[0].since, At(10));
  EXPECT_EQ(spans[0].until, At(13));
  EXPECT_EQ(spans[1].kind, Kind::kInLine);
  EXPECT_EQ(spans[1].until, At(20));
}

TEST(JobPhases, AnInstantIsNone) {
  JobRecord job;
  NotePhase(Kind::kInLine, At(10), job);
  NotePhase(Kind::kHeld, At(11), job);
  NotePhase(Kind::kInLine, At(11), job);
  EXPECT_THAT(job.phases, ElementsAre(JobPhase{Kind::kInLine, At(10)}));
  NotePhase(Kind::kAttempt, At(12), job);
  NotePhase(Kind::kBackOff, At(12), job);
  EXPECT_THAT(job.phases, ElementsAre(JobPhase{Kind::kInLine, At(10)},
                                      JobPhase{Kind::kBackOff, At(12)}));
}

TEST(JobPhases, AClockThatIsSetBackLeavesThemInOrder) {
  JobRecord job;
  NotePhase(Kind::kInLine, At(10), job);
  NotePhase(Kind::kHeld, At(20), job);
  NotePhase(Kind::kInLine, At(5), job);
  NotePhase(Kind::kAttempt, At(30), job);
  EXPECT_THAT(job.phases, ElementsAre(JobPhase{Kind::kInLine, At(10)},
                                      JobPhase{Kind::kAttempt, At(30)}));
}

TEST(JobPhases, WhatIsForgottenIsSaid) {
  JobRecord job;
  job.submitted_at = At(0);
  EXPECT_EQ(PhaseSpans(job).front().kind, std::nullopt);
  for (int i = 0; i < 100; ++i) {
    NotePhase(i % 2 == 0 ? Kind::kInLine : Kind::kAttempt, At(10 * i), job);
  }
  EXPECT_THAT(job.phases, SizeIs(kJobPhasesMax));
  const std::vector<PhaseSpan> spans = PhaseSpans(job);
  EXPECT_EQ(spans.front().kind, std::nullopt);
  EXPECT_EQ(spans.front().until, job.phases.front().since);
}

// ---- as the state notes them ----

class NotedPhasesTest : public ClusterStateTest {
 protected:
  std::vector<Kind> KindsOf(const JobId& job) {
    std::vector<Kind> kinds;
    for (const JobPhase& phase : Job(job).phases) kinds.push_back(phase.kind);
    return kinds;
  }
};

TEST_F(NotedPhasesTest, ARetryBacksOffAndStandsInLine) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.mutable_run()->set_max_failures(3);
  spec.mutable_run()->set_retry_delay_us(
      absl::ToInt64Microseconds(absl::Seconds(8)));
  const JobId job = SubmitJob(spec);
  EXPECT_THAT(KindsOf(job), ElementsAre(Kind::kAttempt));
  Run(job);
  Pass(absl::Seconds(1), {a_});
  Say(a_, Exited(job, a_, 1));
  const JobId other = SubmitJob(Spec(1, 1));
  EXPECT_THAT(KindsOf(job), ElementsAre(Kind::kAttempt, Kind::kBackOff));
  EXPECT_EQ(Job(job).phases.back().since, time_.Wall());
  Pass(absl::Seconds(9), {a_});
  EXPECT_THAT(KindsOf(job),
              ElementsAre(Kind::kAttempt, Kind::kBackOff, Kind::kInLine));
  // A back-off begins anew.
  Reload();
  EXPECT_THAT(KindsOf(job), ElementsAre(Kind::kAttempt, Kind::kBackOff,
                                        Kind::kInLine, Kind::kBackOff));
  EXPECT_THAT(KindsOf(other), ElementsAre(Kind::kAttempt));
}

TEST_F(NotedPhasesTest, ElementsWaitForAPlaceInTheirArray) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.set_array("0-2%1");
  const JobId array = SubmitJob(spec);
  Run(array.Element(0));
  Pass(absl::Seconds(1), {a_});
  EXPECT_THAT(KindsOf(array.Element(1)), ElementsAre(Kind::kArrayLimit));
  Say(a_, Exited(array.Element(0), a_, 0));
  EXPECT_THAT(KindsOf(array.Element(0)), ElementsAre(Kind::kAttempt));
  EXPECT_THAT(KindsOf(array.Element(1)),
              ElementsAre(Kind::kArrayLimit, Kind::kAttempt));
  EXPECT_THAT(KindsOf(array.Element(2)), ElementsAre(Kind::kArrayLimit));
}

}  // namespace
}  // namespace cohort::head
