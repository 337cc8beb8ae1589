#include "rpc/batch_line.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/strand.h"
#include "common/testing/manual_executor.h"

namespace cohort::rpc {
namespace {

constexpr absl::Duration kDelay = absl::Milliseconds(50);

class BatchLineTest : public ::testing::Test {
 protected:
  void Post(int number) {
    line_.Post([this, number] { absl::StrAppend(&ran_, number, " "); });
  }

  ManualExecutor strand_;
  BatchLine line_{strand_, kDelay};
  std::string ran_;
};

// PT-1
TEST_F(BatchLineTest, RunsWhatCameMeanwhileInOrderAndInOneTask) {
  Post(0);
  strand_.AdvanceBy(kDelay / 2);
  Post(1);
  Post(2);
  EXPECT_EQ(strand_.pending(), 1);
  EXPECT_EQ(ran_, "");
  strand_.AdvanceBy(kDelay / 2);
  EXPECT_EQ(ran_, "0 1 2 ");
  Post(3);
  strand_.AdvanceBy(kDelay);
  EXPECT_EQ(ran_, "0 1 2 3 ");
  EXPECT_EQ(strand_.pending(), 0);
}

// PT-2
TEST_F(BatchLineTest, WhatElseTheStrandHasComesBetweenBursts) {
  for (size_t i = 0; i < 2 * BatchLine::kBurst; ++i) Post(7);
  std::string before;
  strand_.PostAfter(kDelay, [&] { before = ran_; });
  strand_.AdvanceBy(kDelay);
  EXPECT_EQ(before.size(), 2 * BatchLine::kBurst);
  EXPECT_EQ(ran_.size(), 4 * BatchLine::kBurst);
}

TEST_F(BatchLineTest, ATaskMayPost) {
  line_.Post([this] { Post(1); });
  strand_.AdvanceBy(kDelay);
  EXPECT_EQ(ran_, "");
  strand_.AdvanceBy(kDelay);
  EXPECT_EQ(ran_, "1 ");
}

TEST(BatchLineEndTest, DestroysWhatWaitsWithItsStrandAndWhatComesLater) {
  ManualExecutor executor;
  auto strand = std::make_unique<Strand>(executor);
  BatchLine line(*strand, kDelay);
  const auto held = std::make_shared<int>();
  line.Post([held] { FAIL() << "the strand has stopped"; });
  EXPECT_EQ(held.use_count(), 2);
  strand->Stop();
  EXPECT_EQ(held.use_count(), 1);
  line.Post([held] { FAIL() << "the strand has stopped"; });
  EXPECT_EQ(held.use_count(), 1);
  executor.AdvanceBy(kDelay);
}

}  // namespace
}  // namespace cohort::rpc
