// TL-1: the keeper ends processes at their time limit.

#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "worker/log_reader.h"
#include "worker/testing/keeper_fixture.h"

namespace cohort::worker {
namespace {

using Cause = ExitCause;

using KeeperTimeLimitTest = KeeperClientTest;

TEST_F(KeeperTimeLimitTest, StopsItsProcessesAtTheTimeLimit) {
  Daemon daemon(dir_.path());
  const std::string never = Fifo("never");
  std::vector<ProcessSpec> specs =
      Specs({absl::StrCat("trap 'exit 7' TERM; read x < ", never),
             absl::StrCat("read x < ", never)});
  for (ProcessSpec& spec : specs) {
    spec.time_limit_ms = 300;
    spec.grace_ms = absl::ToInt64Milliseconds(absl::Hours(1));
  }
  COHORT_ASSERT_OK(daemon.Begin(specs));
  int started = 0;
  const std::map<int, ExitReport> ends = daemon.Ends(2, &started);
  EXPECT_EQ(started, 2);
  ASSERT_EQ(ends.size(), 2u);
  for (const auto& [slot, status] : ends) {
    EXPECT_EQ(status.cause, Cause::kTimeLimit);
    EXPECT_GE(status.ran_ms, 300);
  }
  EXPECT_EQ(ends.at(1).signal, SIGTERM);
}

TEST_F(KeeperTimeLimitTest, KillsAtTheTimeLimitWhatIgnoresIt) {
  Daemon daemon(dir_.path());
  std::vector<ProcessSpec> specs = Specs({"trap '' TERM; sleep 1000"});
  specs[0].time_limit_ms = 1'000;
  specs[0].grace_ms = 100;
  COHORT_ASSERT_OK(daemon.Begin(specs));
  const ExitReport status = daemon.RunOut();
  EXPECT_EQ(status.signal, SIGKILL);
  EXPECT_EQ(status.cause, Cause::kTimeLimit);
  EXPECT_GE(status.ran_ms, 1'100);
}

TEST_F(KeeperTimeLimitTest, TheTimeLimitIsNoMatterForWhatEndedBefore) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  std::vector<ProcessSpec> specs =
      Specs({"exit 3", absl::StrCat("read x < ", gate)});
  for (ProcessSpec& spec : specs) spec.time_limit_ms = 300;
  COHORT_ASSERT_OK(daemon.Begin(specs));
  std::map<int, ExitReport> exits = daemon.Ends(2);
  EXPECT_EQ(exits[0].cause, Cause::kItself);
  EXPECT_EQ(exits[0].exit_code, 3);
  EXPECT_EQ(exits[1].cause, Cause::kTimeLimit);
}

// TL-1: of each process by itself.
TEST_F(KeeperTimeLimitTest, OneProcessHasItsLimitAndAnotherNone) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  std::vector<ProcessSpec> specs =
      Specs({absl::StrCat("read x < ", gate), "exec sleep 1000"});
  specs[1].time_limit_ms = 100;
  COHORT_ASSERT_OK(daemon.Begin(specs));
  const std::map<int, ExitReport> limited = daemon.Ends(1);
  ASSERT_EQ(limited.size(), 1u);
  EXPECT_EQ(limited.at(1).cause, Cause::kTimeLimit);
  OpenGate(gate);
  EXPECT_EQ(daemon.End().cause, Cause::kItself);
}

TEST_F(KeeperTimeLimitTest, AStopBeforeTheTimeLimitStaysAStop) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  std::vector<ProcessSpec> specs =
      Specs({absl::StrCat("trap '' TERM; echo > ", ready, "; sleep 1000")});
  specs[0].time_limit_ms = 3'000;
  COHORT_ASSERT_OK(daemon.Begin(specs));
  daemon.Next<ProcessStarted>();
  ReadFifo(ready);
  daemon.Stop(absl::Milliseconds(3'200));
  EXPECT_EQ(daemon.End().cause, Cause::kKilled);
}

TEST_F(KeeperTimeLimitTest, KeepsTheTimeLimitWithoutADaemon) {
  const std::string ready = Fifo("ready");
  pid_t keeper = 0;
  {
    Daemon daemon(dir_.path());
    std::vector<ProcessSpec> specs =
        Specs({absl::StrCat("echo why >&2; echo > ", ready, "; sleep 1000")});
    specs[0].time_limit_ms = 500;
    COHORT_ASSERT_OK(daemon.Begin(specs));
    daemon.Next<ProcessStarted>();
    ReadFifo(ready);
    keeper = KeeperPid();
  }
  if (keeper != 0) AwaitDeath(keeper);
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->message, "");
  const ExitReport status = daemon.RunOut();
  EXPECT_EQ(status.cause, Cause::kTimeLimit);
  // Not as long as nobody looked.
  EXPECT_GE(status.ran_ms, 500);
  EXPECT_EQ(ReadLog(0, v1::LOG_STREAM_STDERR), "why\n");
}

}  // namespace
}  // namespace cohort::worker
