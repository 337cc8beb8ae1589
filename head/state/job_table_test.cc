#include "head/state/job_table.h"

#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "rpc/enum_text.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr JobState kStates[] = {v1::JOB_STATE_PENDING,   v1::JOB_STATE_STARTING,
                                v1::JOB_STATE_RUNNING,   v1::JOB_STATE_STOPPING,
                                v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED,
                                v1::JOB_STATE_STOPPED};

// As drawn in docs/design/0001-first-light.md.
const std::set<std::pair<JobState, JobState>> kEdges = {
    {v1::JOB_STATE_PENDING, v1::JOB_STATE_STARTING},
    {v1::JOB_STATE_PENDING, v1::JOB_STATE_STOPPED},
    {v1::JOB_STATE_PENDING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_STOPPING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_PENDING},
    {v1::JOB_STATE_STARTING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_SUCCEEDED},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_STOPPING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_PENDING},
    {v1::JOB_STATE_RUNNING, v1::JOB_STATE_FAILED},
    {v1::JOB_STATE_STOPPING, v1::JOB_STATE_STOPPED},
};

JobRecord Job(Random& random, uint64_t sequence, JobState state) {
  JobRecord job(JobId::New(random));
  job.row.set_sequence(sequence);
  job.row.set_state(state);
  return job;
}

// Each pair of states is a test: legal edges move, all others crash.
class JobEdgeTest
    : public ::testing::TestWithParam<std::tuple<JobState, JobState>> {};

TEST_P(JobEdgeTest, IsAsDrawn) {
  const auto [from, to] = GetParam();
  SeededRandom random(1);
  JobTable table;
  const JobRecord job = Job(random, 1, from);
  table.Add(job);
  if (kEdges.contains({from, to})) {
    EXPECT_TRUE(MayMove(from, to));
    table.Move(job.id, to);
    EXPECT_EQ(table.Find(job.id)->row.state(), to);
    EXPECT_EQ(table.CountOf(from), 0);
    EXPECT_EQ(table.CountOf(to), 1);
  } else {
    EXPECT_FALSE(MayMove(from, to));
    EXPECT_DEATH(table.Move(job.id, to), "MayMove");
  }
}

INSTANTIATE_TEST_SUITE_P(
    AllPairs, JobEdgeTest,
    ::testing::Combine(::testing::ValuesIn(kStates),
                       ::testing::ValuesIn(kStates)),
    [](const ::testing::TestParamInfo<JobEdgeTest::ParamType>& tested) {
      return absl::StrCat(EnumText(std::get<0>(tested.param)), "To",
                          EnumText(std::get<1>(tested.param)));
    });

// JB-1.
TEST(JobTableTest, NothingLeavesAnEndedState) {
  for (const JobState from : kStates) {
    if (!HasEnded(from)) continue;
    for (const JobState to : kStates) EXPECT_FALSE(MayMove(from, to));
  }
}

TEST(JobTableTest, KnowsWhatMayBeForgotten) {
  SeededRandom random(1);
  JobTable table;
  const JobRecord running = Job(random, 1, v1::JOB_STATE_RUNNING);
  const JobRecord ended = Job(random, 2, v1::JOB_STATE_FAILED);
  table.Add(running);
  table.Add(ended);
  EXPECT_THAT(table.TakeTouched(), UnorderedElementsAre(running.id, ended.id));
  table.SetBytes(ended.id, 100);
  EXPECT_EQ(table.EndedUnit(ended.id)->bytes, 100);
  EXPECT_EQ(table.EndedUnit(running.id), std::nullopt);
  table.Pin(ended.id);
  EXPECT_EQ(table.EndedUnit(ended.id), std::nullopt);
  table.Unpin(ended.id);
  EXPECT_EQ(table.EndedUnit(ended.id)->jobs, 1);
  EXPECT_THAT(table.TakeTouched(), ElementsAre(ended.id));
  EXPECT_THAT(table.TakeTouched(), IsEmpty());
  table.Remove(ended.id);
  EXPECT_EQ(table.EndedUnit(ended.id), std::nullopt);
  EXPECT_EQ(table.size(), 1);
  EXPECT_DEATH(table.Remove(running.id), "HasEnded");
}

}  // namespace
}  // namespace cohort::head
