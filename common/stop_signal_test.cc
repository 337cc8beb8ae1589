#include "common/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <thread>

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(StopSignalTest, SaysWhichSignalCame) {
  StopSignal stop;
  kill(getpid(), SIGINT);
  EXPECT_EQ(stop.Wait(), SIGINT);
}

TEST(StopSignalTest, ADaemonCanEndItselfFromAnyThread) {
  StopSignal stop;
  std::thread other([&stop] { stop.Raise(); });
  EXPECT_EQ(stop.Wait(), SIGTERM);
  other.join();
}

}  // namespace
}  // namespace cohort
