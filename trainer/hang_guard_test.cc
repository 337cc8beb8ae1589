#include "trainer/hang_guard.h"

#include <unistd.h>

#include "gtest/gtest.h"

namespace cohort::trainer {
namespace {

TEST(HangGuardDeathTest, EndsByNameWhatDoesNotComeBack) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto hang = [] {
    const HangGuard guard("cuda:0: opening the GPU", absl::Milliseconds(1));
    for (;;) pause();
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(1),
              "cuda:0: opening the GPU: not over after 1ms");
}

TEST(HangGuardTest, LetsGoOfWhatIsOver) {
  for (int i = 0; i < 100; ++i) const HangGuard guard("it", absl::Minutes(5));
}

}  // namespace
}  // namespace cohort::trainer
