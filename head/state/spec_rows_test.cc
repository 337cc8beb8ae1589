// The spec of a job has a row of its own, and what live specs may take.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "head/state/testing/cluster_state_fixture.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kLargeBytes = 900 << 10;
// What a move of a small job takes: its row, its attempt, an event or two.
constexpr int64_t kMoveBytesMax = 2 << 10;

class SpecRowsTest : public ClusterStateTest {
 protected:
  SpecRowsTest() {
    disk_.SetFate([this](const Batch& batch) {
      batches_.push_back(batch);
      return std::nullopt;
    });
  }

  static JobSpec Large() {
    JobSpec spec = Spec(1, 1);
    auto& environment = *spec.mutable_launch()->mutable_environment();
    for (int i = 0; i < 10; ++i) {
      environment[absl::StrCat("K", i)] = std::string(kLargeBytes / 10, 'x');
    }
    return spec;
  }

  size_t SpecsStored() {
    return MemoryStore(disk_).LoadAll(Table::kSpecs)->size();
  }

  std::vector<Batch> batches_;
};

TEST_F(SpecRowsTest, ItIsWrittenOnceAndNoMoveWritesItAgain) {
  Join(a_, 1);
  batches_.clear();
  const JobId job = SubmitJob(Large());
  ASSERT_THAT(batches_, SizeIs(1));
  EXPECT_GT(BytesOf(batches_[0]), kLargeBytes);
  Run(job);
  Say(a_, Exited(job, a_, 0));
  ASSERT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
  for (size_t i = 1; i < batches_.size(); ++i) {
    EXPECT_LT(BytesOf(batches_[i]), kMoveBytesMax) << "batch " << i;
    EXPECT_LE(batches_[i].size(), 6u) << "batch " << i;
  }
  EXPECT_EQ(SpecsStored(), 1u);
  Reload();
  EXPECT_EQ(Job(job).spec->launch().environment_size(), 10);
}

TEST_F(SpecRowsTest, TheElementsOfAnArrayHaveOne) {
  JobSpec spec = Large();
  spec.set_array("0-9");
  const JobId array = SubmitJob(spec);
  EXPECT_LT(BytesOf(batches_.back()), kLargeBytes + 10 * kMoveBytesMax);
  EXPECT_EQ(SpecsStored(), 1u);
  Reload();
  EXPECT_TRUE(
      Job(array.Element(0)).spec.IsSharedWith(Job(array.Element(9)).spec));
}

TEST_F(SpecRowsTest, ItGoesWithItsJob) {
  limits_.history.jobs.count_max = 1;
  Reload();
  JobSpec array = Spec(1, 1);
  array.set_array("0-2");
  for (const JobSpec& spec : {array, Spec(1, 1), Spec(1, 1)}) {
    COHORT_ASSERT_OK(StopJob(SubmitJob(spec)));
  }
  Pass(limits_.tick_period);
  EXPECT_EQ(state_->jobs().size(), 1u);
  EXPECT_EQ(SpecsStored(), 1u);
}

TEST_F(SpecRowsTest, AJobWithoutItsSpecIsDataLoss) {
  const JobId job = SubmitJob(Spec(1, 1));
  MemoryStore store(disk_);
  COHORT_ASSERT_OK(
      store.Append(state_->cluster().term(), {ToDelete<SpecRecord>(job)}));
  EXPECT_THAT(LoadRows(store).status(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(job.ToText()), HasSubstr("spec"))));
}

// ---- what live specs may take ----

TEST_F(SpecRowsTest, TheyAreBoundedByBytes) {
  limits_.live_spec_bytes_max = 2'500'000;
  Reload();
  JobSpec array = Large();
  array.set_array("0-9");
  const JobId first = SubmitJob(array);
  const JobId second = SubmitJob(Large());
  const absl::Status refused = TrySubmitJob(Large(), "third").status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("2500000"),
                                      HasSubstr("pass large arguments"))));
  EXPECT_EQ(GetReason(refused), "spec_memory_full");
  // A small one still has room, and also after a restart no other has.
  SubmitJob(Spec(1, 1));
  Reload();
  EXPECT_THAT(TrySubmitJob(Large(), "third"),
              StatusIs(absl::StatusCode::kResourceExhausted));

  // Elements that ended free nothing before the last one has.
  COHORT_ASSERT_OK(StopJob(first.Element(3)));
  EXPECT_THAT(TrySubmitJob(Large(), "third"),
              StatusIs(absl::StatusCode::kResourceExhausted));
  COHORT_ASSERT_OK(StopJob(first));
  COHORT_ASSERT_OK(TrySubmitJob(Large(), "third"));
  COHORT_ASSERT_OK(StopJob(second));
  SubmitJob(Large());
}

TEST_F(SpecRowsTest, NothingIsLeftOfThoseThatEnded) {
  Join(a_, 2);
  JobSpec array = Large();
  array.set_array("0-1");
  const JobId run = SubmitJob(Large());
  const JobId elements = SubmitJob(array);
  EXPECT_GT(state_->jobs().live_spec_bytes(), 2 * kLargeBytes);
  Run(run);
  Say(a_, Exited(run, a_, 0));
  COHORT_ASSERT_OK(StopJob(elements));
  for (const uint32_t index : {0, 1}) {
    EXPECT_GT(state_->jobs().live_spec_bytes(), kLargeBytes);
    Say(a_, Exited(elements.Element(index), a_, 0));
  }
  EXPECT_EQ(state_->jobs().live_spec_bytes(), 0);
  Reload();
  EXPECT_EQ(state_->jobs().live_spec_bytes(), 0);
}

}  // namespace
}  // namespace cohort::head
