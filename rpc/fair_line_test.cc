#include "rpc/fair_line.h"

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

class FairLineTest : public ::testing::Test {
 protected:
  void Post(const std::string& caller, int number) {
    line_.Post(caller, [this, caller, number] {
      absl::StrAppend(&ran_, caller, number, " ");
    });
  }

  ManualExecutor strand_;
  FairLine line_{strand_};
  std::string ran_;
};

TEST_F(FairLineTest, CallersTakeTurnsAndKeepTheirOwnOrder) {
  for (int i = 0; i < 4; ++i) Post("a", i);
  Post("b", 0);
  Post("c", 0);
  Post("b", 1);
  strand_.RunUntilIdle();
  EXPECT_EQ(ran_, "a0 b0 c0 a1 b1 a2 a3 ");
}

// FL-2
TEST_F(FairLineTest, WhatElseTheStrandHasComesBetweenBursts) {
  for (int i = 0; i < 3 * FairLine::kBurst; ++i) Post("a", i);
  std::string before_node;
  strand_.Post([&] { before_node = ran_; });
  strand_.RunUntilIdle();
  EXPECT_THAT(before_node, ::testing::EndsWith("a7 "));
}

TEST_F(FairLineTest, DispatchRunsOnAnIdleStrandAtOnceAndKeepsTurns) {
  Strand strand(strand_);
  FairLine line(strand);
  std::string ran;
  line.Dispatch("a", [&] {
    ran += "a0 ";
    line.Dispatch("a", [&] { ran += "a1 "; });
    line.Dispatch("a", [&] { ran += "a2 "; });
    line.Dispatch("b", [&] { ran += "b0 "; });
  });
  EXPECT_EQ(ran, "a0 a1 b0 a2 ");
}

TEST_F(FairLineTest, GoesOnAfterItWasEmpty) {
  Post("a", 0);
  strand_.RunUntilIdle();
  Post("a", 1);
  Post("b", 0);
  strand_.RunUntilIdle();
  EXPECT_EQ(ran_, "a0 a1 b0 ");
}

TEST_F(FairLineTest, ATaskMayPost) {
  line_.Post("a", [this] { Post("a", 1); });
  strand_.RunUntilIdle();
  EXPECT_EQ(ran_, "a1 ");
}

TEST(FairLineLifeTest, AStrandThatStoppedDestroysWhatWaits) {
  const auto held = std::make_shared<int>(0);
  auto strand = std::make_unique<ManualExecutor>();
  FairLine line(*strand);
  line.Post("a", [held] {});
  line.Post("b", [held] {});
  EXPECT_EQ(held.use_count(), 3);
  strand.reset();
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace cohort::rpc
