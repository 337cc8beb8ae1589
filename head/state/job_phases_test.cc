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

absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

JobPhase Phase(WaitKind kind, absl::Time since) {
  JobPhase phase;
  phase.set_kind(kind);
  phase.set_since_us(ToMicros(since));
  return phase;
}

TEST(JobPhases, CoverAJobFromSubmissionToEnd) {
  JobRecord job;
  job.row.set_submitted_at_us(ToMicros(At(10)));
  NotePhase(v1::WAIT_KIND_HELD, At(10), job);
  NotePhase(v1::WAIT_KIND_HELD, At(12), job);
  NotePhase(v1::WAIT_KIND_RESOURCES, At(13), job);
  job.row.set_ended_at_us(ToMicros(At(20)));

  const std::vector<PhaseSpan> spans = PhaseSpans(job);

  ASSERT_THAT(spans, SizeIs(2));
  EXPECT_EQ(spans[0].kind, v1::WAIT_KIND_HELD);
  EXPECT_EQ(spans[0].since, At(10));
  EXPECT_EQ(spans[0].until, At(13));
  EXPECT_EQ(spans[1].kind, v1::WAIT_KIND_RESOURCES);
  EXPECT_EQ(spans[1].until, At(20));
}

TEST(JobPhases, AnInstantIsNone) {
  JobRecord job;
  NotePhase(v1::WAIT_KIND_RESOURCES, At(10), job);
  NotePhase(v1::WAIT_KIND_HELD, At(11), job);
  NotePhase(v1::WAIT_KIND_RESOURCES, At(11), job);
  EXPECT_THAT(job.row.phases(),
              ElementsAre(Phase(v1::WAIT_KIND_RESOURCES, At(10))));
  NotePhase(v1::WAIT_KIND_NOTHING, At(12), job);
  NotePhase(v1::WAIT_KIND_BACK_OFF, At(12), job);
  EXPECT_THAT(job.row.phases(),
              ElementsAre(Phase(v1::WAIT_KIND_RESOURCES, At(10)),
                          Phase(v1::WAIT_KIND_BACK_OFF, At(12))));
}

TEST(JobPhases, AClockThatIsSetBackLeavesThemInOrder) {
  JobRecord job;
  NotePhase(v1::WAIT_KIND_RESOURCES, At(10), job);
  NotePhase(v1::WAIT_KIND_HELD, At(20), job);
  NotePhase(v1::WAIT_KIND_RESOURCES, At(5), job);
  NotePhase(v1::WAIT_KIND_NOTHING, At(30), job);
  EXPECT_THAT(job.row.phases(),
              ElementsAre(Phase(v1::WAIT_KIND_RESOURCES, At(10)),
                          Phase(v1::WAIT_KIND_NOTHING, At(30))));
}

TEST(JobPhases, WhatIsForgottenIsSaid) {
  JobRecord job;
  job.row.set_submitted_at_us(ToMicros(At(0)));
  EXPECT_EQ(PhaseSpans(job).front().kind, std::nullopt);
  for (int i = 0; i < 100; ++i) {
    NotePhase(i % 2 == 0 ? v1::WAIT_KIND_RESOURCES : v1::WAIT_KIND_NOTHING,
              At(10 * i), job);
  }
  EXPECT_THAT(job.row.phases(), SizeIs(kJobPhasesMax));
  const std::vector<PhaseSpan> spans = PhaseSpans(job);
  EXPECT_EQ(spans.front().kind, std::nullopt);
  EXPECT_EQ(spans.front().until, FromMicros(job.row.phases()[0].since_us()));
}

// ---- as the state notes them ----

class NotedPhasesTest : public ClusterStateTest {
 protected:
  std::vector<WaitKind> KindsOf(const JobId& job) {
    std::vector<WaitKind> kinds;
    for (const JobPhase& phase : Job(job).row.phases()) {
      kinds.push_back(phase.kind());
    }
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
  EXPECT_THAT(KindsOf(job), ElementsAre(v1::WAIT_KIND_NOTHING));
  Run(job);
  Pass(absl::Seconds(1), {a_});
  Say(a_, Exited(job, a_, 1));
  const JobId other = SubmitJob(Spec(1, 1));
  EXPECT_THAT(KindsOf(job),
              ElementsAre(v1::WAIT_KIND_NOTHING, v1::WAIT_KIND_BACK_OFF));
  EXPECT_EQ(FromMicros(Job(job).row.phases().rbegin()->since_us()),
            time_.Wall());
  Pass(absl::Seconds(9), {a_});
  EXPECT_THAT(KindsOf(job),
              ElementsAre(v1::WAIT_KIND_NOTHING, v1::WAIT_KIND_BACK_OFF,
                          v1::WAIT_KIND_RESOURCES));
  // A back-off begins again.
  Reload();
  EXPECT_THAT(KindsOf(job),
              ElementsAre(v1::WAIT_KIND_NOTHING, v1::WAIT_KIND_BACK_OFF,
                          v1::WAIT_KIND_RESOURCES, v1::WAIT_KIND_BACK_OFF));
  EXPECT_THAT(KindsOf(other), ElementsAre(v1::WAIT_KIND_NOTHING));
}

TEST_F(NotedPhasesTest, ElementsWaitForAPlaceInTheirArray) {
  Join(a_, 1);
  JobSpec spec = Spec(1, 1);
  spec.set_array("0-2%1");
  const JobId array = SubmitJob(spec);
  Run(array.Element(0));
  Pass(absl::Seconds(1), {a_});
  EXPECT_THAT(KindsOf(array.Element(1)), ElementsAre(v1::WAIT_KIND_ARRAY));
  Say(a_, Exited(array.Element(0), a_, 0));
  EXPECT_THAT(KindsOf(array.Element(0)), ElementsAre(v1::WAIT_KIND_NOTHING));
  EXPECT_THAT(KindsOf(array.Element(1)),
              ElementsAre(v1::WAIT_KIND_ARRAY, v1::WAIT_KIND_NOTHING));
  EXPECT_THAT(KindsOf(array.Element(2)), ElementsAre(v1::WAIT_KIND_ARRAY));
}

}  // namespace
}  // namespace cohort::head
