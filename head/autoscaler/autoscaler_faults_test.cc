// A head that dies at its writes, under a provider that fails.

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/testing/autoscaler_fixture.h"

namespace cohort::head {
namespace {

using ::testing::IsEmpty;

// From the submission of a gang until its nodes are gone.
constexpr int kWritesOfAGang = 42;

// Whatever fails, and however often the head dies, at any write and between
// two: no more instances than there may be, none that runs something ended,
// every job done, nothing left.
class AutoscalerFaultsTest : public AutoscalerTest,
                             public ::testing::WithParamInterface<int> {
 protected:
  void AfterStep() override {
    EXPECT_LE(machines_.size(), 6u);
    if (disk_.faults_fired() > faults_seen_) Restart();
  }
  // As SIGKILL, or with the whole machine.
  void Restart() {
    faults_seen_ = disk_.faults_fired();
    Crash();
    if (Chance(30)) disk_.PowerOff(random_);
    const bool kills = std::exchange(kills_, false);
    Start();
    kills_ = kills;
  }
  // Each write of the head is its last one with that chance.
  void KillAtWrites(int percent) {
    kills_ = true;
    disk_.SetFate([this, percent](const Batch&) -> std::optional<AppendFault> {
      if (!kills_ || !Chance(percent)) return std::nullopt;
      constexpr AppendFault kFaults[] = {AppendFault::kLanded,
                                         AppendFault::kNotLanded,
                                         AppendFault::kUnsynced};
      return kFaults[Below(3)];
    });
  }
  // Asks again, as the client does.
  std::string SubmitThroughKills(const std::string& name, int workers) {
    while (true) {
      const auto job = Call(rpc::kSubmitJob, Submission(name, workers));
      if (job.ok()) return job->job_id();
      AfterStep();
    }
  }
  void FinishAndLeaveNothing(const std::vector<std::string>& jobs) {
    kills_ = false;
    lost_answers_ = launches_to_fail_ = 0;
    Pass(absl::Minutes(15));
    for (const std::string& job : jobs) {
      EXPECT_EQ(StateOf(job), v1::JOB_STATE_SUCCEEDED);
    }
    Pass(absl::Minutes(3));
    EXPECT_THAT(machines_, IsEmpty());
    EXPECT_THAT(core_->state()->fleet().instances(), IsEmpty());
  }

  bool kills_ = false;
  int faults_seen_ = 0;
};

TEST_P(AutoscalerFaultsTest, Converges) {
  for (int i = 0; i < GetParam(); ++i) (void)random_.Uint64();
  COHORT_ASSERT_OK(Apply(kClusterFile));
  std::vector<std::string> jobs;
  lost_answers_ = 30;
  plans_.late = absl::Seconds(1);
  KillAtWrites(3);
  for (int round = 0; round < 25; ++round) {
    if (Chance(40)) {
      jobs.push_back(
          SubmitThroughKills(absl::StrCat("j", round), 1 + Below(12)));
    }
    if (Chance(20)) launches_to_fail_ = Below(3);
    boot_time_ = absl::Seconds(Below(30));
    job_time_ = absl::Seconds(1 + Below(30));
    mute_ = Chance(30) ? 50 : 0;
    if (Chance(30)) {
      // At any time between two writes.
      time_.AdvanceBy(absl::Milliseconds(Below(400)));
      Restart();
    }
    if (!machines_.empty() && Chance(10)) {
      notices_[machines_.begin()->first] = absl::Seconds(Below(20));
    }
    Pass(absl::Seconds(Below(20)));
  }
  FinishAndLeaveNothing(jobs);
}

// COHORT_SEEDS in the environment: so many.
int SeedCount() {
  const char* const count = std::getenv("COHORT_SEEDS");
  return count == nullptr ? 100 : std::max(1, std::atoi(count));
}
INSTANTIATE_TEST_SUITE_P(Seeds, AutoscalerFaultsTest,
                         ::testing::Range(1, SeedCount() + 1));

// One gang comes, runs and goes; the head is killed at each of its writes, once
// before it has landed and once after.
class AutoscalerWritesTest : public AutoscalerFaultsTest {};

TEST_P(AutoscalerWritesTest, AnyMayBeTheHeadsLast) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  disk_.FailAfter(GetParam() / 2, GetParam() % 2 == 0 ? AppendFault::kNotLanded
                                                      : AppendFault::kLanded);
  job_time_ = absl::Seconds(5);
  const std::string job = SubmitThroughKills("train", 12);
  Pass(absl::Minutes(2));
  EXPECT_LE(made_, 3);  // SC-7
  FinishAndLeaveNothing({job});
}

INSTANTIATE_TEST_SUITE_P(Writes, AutoscalerWritesTest,
                         ::testing::Range(0, 2 * kWritesOfAGang));

TEST_F(AutoscalerTest, AGangTakesNoMoreWritesThanAreKilled) {
  COHORT_ASSERT_OK(Apply(kClusterFile));
  const int before = disk_.appends();
  job_time_ = absl::Seconds(5);
  SubmitGang("train", 12);
  Pass(absl::Minutes(2));
  EXPECT_THAT(Shown().instances(), IsEmpty());
  EXPECT_LE(disk_.appends() - before, kWritesOfAGang);
  EXPECT_GE(disk_.appends() - before, kWritesOfAGang / 2);
}

}  // namespace
}  // namespace cohort::head
