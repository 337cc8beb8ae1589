#include "common/gate.h"

#include <atomic>
#include <utility>

#include "gtest/gtest.h"

#include "common/thread_pool.h"

namespace cohort {
namespace {

TEST(GateTest, CountsPassesUntilTheyDie) {
  Gate gate;
  Gate::Pass pass = gate.TryEnter();
  ASSERT_TRUE(pass);
  Gate::Pass moved = std::move(pass);
  EXPECT_FALSE(pass);  // NOLINT(bugprone-use-after-move): an empty pass.
  EXPECT_EQ(gate.in_flight(), 1u);
  EXPECT_FALSE(gate.WaitUntilIdle(absl::ZeroDuration()));
  { Gate::Pass dies = std::move(moved); }
  EXPECT_EQ(gate.in_flight(), 0u);
  EXPECT_TRUE(gate.WaitUntilIdle(absl::ZeroDuration()));
}

TEST(GateTest, LetsNobodyInOnceClosed) {
  Gate gate;
  Gate::Pass early = gate.TryEnter();
  gate.Close();
  EXPECT_TRUE(gate.closed());
  EXPECT_FALSE(gate.TryEnter());
  EXPECT_TRUE(early);
}

TEST(GateTest, WaitsForWorkOnOtherThreads) {
  ThreadPool pool(4);
  for (int round = 0; round < 100; ++round) {
    Gate gate;
    std::atomic<int> done = 0;
    for (int i = 0; i < 20; ++i) {
      pool.Post([&done, pass = gate.TryEnter()] { ++done; });
    }
    gate.Close();
    gate.WaitUntilIdle();
    EXPECT_EQ(done, 20);
  }
}

TEST(GateTest, APassInATaskThatNeverRanLeavesToo) {
  Gate gate;
  {
    ThreadPool pool(1);
    pool.PostAfter(absl::Hours(1), [pass = gate.TryEnter()] {});
  }
  EXPECT_EQ(gate.in_flight(), 0u);
}

TEST(GateDeathTest, CrashesWhenDestroyedWithWorkInFlight) {
  EXPECT_DEATH(
      {
        Gate::Pass pass;
        Gate gate;
        pass = gate.TryEnter();
      },
      "work is in flight");
}

}  // namespace
}  // namespace cohort
