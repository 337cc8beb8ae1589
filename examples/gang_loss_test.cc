#include "examples/gang_loss.h"

#include <cmath>
#include <limits>
#include <optional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "trainer/local_comm.h"

namespace cohort::examples {
namespace {

using ::testing::HasSubstr;

TEST(GangLossTest, IsAMean) {
  trainer::LocalComm comm;
  EXPECT_THAT(MeanOverGang(comm, 3, 4), IsOkAndHolds(0.75));
}

// A rank alone that is told something.
class NotedSession final : public trainer::Session {
 public:
  const trainer::RunPlace& place() const override { return place_; }
  trainer::Comm& comm() override { return comm_; }
  std::optional<trainer::RunNotice> notice() const override { return notice_; }
  absl::Status Report(absl::string_view /*metrics*/) override { return {}; }
  absl::Status CommitCheckpoint(absl::string_view /*path*/,
                                int64_t /*step*/) override {
    return {};
  }
  absl::Status Finish() override { return {}; }

  std::optional<trainer::RunNotice> notice_;

 private:
  const trainer::RunPlace place_{};
  trainer::LocalComm comm_;
};

TEST(GangLossTest, LeavesOnlyAtADeadline) {
  NotedSession session;
  const auto is_leaving = [&session] {
    const auto step = AgreeOnStep(session, 0.5);
    EXPECT_THAT(step, IsOk());
    EXPECT_EQ(step->loss, 0.5);
    return step->is_leaving;
  };
  EXPECT_FALSE(is_leaving());
  session.notice_ = trainer::RunNotice{.reason = "fan 3"};
  EXPECT_FALSE(is_leaving());
  session.notice_->deadline = absl::Seconds(1);
  EXPECT_TRUE(is_leaving());
}

TEST(GangLossTest, SaysWhatToDoWhenItIsNoNumber) {
  COHORT_EXPECT_OK(CheckLoss(1, 7));
  for (const double loss :
       {std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_THAT(CheckLoss(loss, 7),
                StatusIs(absl::StatusCode::kInternal,
                         HasSubstr("at step 7: lower --lr")));
  }
}

}  // namespace
}  // namespace cohort::examples
