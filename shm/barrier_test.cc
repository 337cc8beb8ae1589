#include "shm/barrier.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::shm {
namespace {

constexpr absl::Duration kLongDeadline = absl::Minutes(1);

// Two ranks in this process.
class BarrierTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto arena = Arena::Create(
        dir_.path(), {.attempt = "job-1/1", .epoch = 1, .local_world = 2});
    ASSERT_THAT(arena, IsOk());
    arena_ = *std::move(arena);
    for (int rank = 0; rank < 2; ++rank) {
      auto place = ArenaPlace::Claim(dir_.path(), rank);
      ASSERT_THAT(place, IsOk());
      places_[rank] = *std::move(place);
    }
  }

  TempDir dir_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<ArenaPlace> places_[2];
};

// BR-1: else half of a buffer is taken for reduced that nobody has reduced.
TEST_F(BarrierTest, APeerOfALaterEpochHasNotArrivedInThisOne) {
  Barrier first(*places_[0], 1);
  Barrier second(*places_[1], 1);
  second.Arrive();
  first.Arrive();
  EXPECT_THAT(first.Wait(After(kLongDeadline)), IsOk());

  Barrier later(*places_[1], 2);
  later.Arrive();
  first.Arrive();
  EXPECT_THAT(first.Wait(After(kLongDeadline)),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(BarrierTest, WhatAllCameToIsOverWhateverHappensThen) {
  Barrier first(*places_[0], 1);
  Barrier second(*places_[1], 1);
  second.Arrive();
  first.Arrive();
  arena_->Revoke(1);
  EXPECT_THAT(first.Wait(After(kLongDeadline)), IsOk());
  first.Arrive();
  EXPECT_THAT(first.Wait(After(kLongDeadline)),
              StatusIs(absl::StatusCode::kAborted));
}

TEST_F(BarrierTest, NamesWhoIsMissing) {
  Barrier first(*places_[0], 1);
  first.Arrive();
  EXPECT_THAT(first.Wait(After(absl::ZeroDuration())),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_EQ(first.Missing(), std::vector<int>{1});
}

}  // namespace
}  // namespace cohort::shm
