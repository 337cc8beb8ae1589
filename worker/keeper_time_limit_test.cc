// TL-1: the keeper ends ranks at their time limit.

#include <csignal>
#include <map>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "worker/log_reader.h"
#include "worker/testing/keeper_fixture.h"

namespace cohort::worker {
namespace {

using Cause = ExitStatus::Cause;

using KeeperTimeLimitTest = KeeperClientTest;

TEST_F(KeeperTimeLimitTest, StopsItsRanksAtTheTimeLimit) {
  Daemon daemon(dir_.path());
  const std::string never = Fifo("never");
  KeeperSpec spec = Spec({absl::StrCat("trap 'exit 7' TERM; read x < ", never),
                          absl::StrCat("read x < ", never)});
  spec.time_limit_ms = 300;
  spec.grace_ms = absl::ToInt64Milliseconds(absl::Hours(1));
  COHORT_ASSERT_OK(daemon.Start(spec));
  daemon.Next<RankStarted>();
  daemon.Next<RankStarted>();
  for (int i = 0; i < 2; ++i) {
    const RankExited exited = daemon.Next<RankExited>();
    EXPECT_EQ(exited.status.cause, Cause::kTimeLimit);
    EXPECT_GE(exited.status.ran, absl::Milliseconds(300));
    if (exited.rank != 1) continue;
    EXPECT_EQ(exited.status.signal, SIGTERM);
  }
  daemon.Next<AllDone>();
}

TEST_F(KeeperTimeLimitTest, KillsAtTheTimeLimitWhatIgnoresIt) {
  Daemon daemon(dir_.path());
  KeeperSpec spec = Spec({"trap '' TERM; sleep 1000"});
  spec.time_limit_ms = 1'000;
  spec.grace_ms = 100;
  COHORT_ASSERT_OK(daemon.Start(spec));
  const ExitStatus status = daemon.RunOut();
  EXPECT_EQ(status.signal, SIGKILL);
  EXPECT_EQ(status.cause, Cause::kTimeLimit);
  EXPECT_GE(status.ran, absl::Milliseconds(1'100));
}

TEST_F(KeeperTimeLimitTest, TheTimeLimitIsNoMatterForWhatEndedBefore) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  KeeperSpec spec = Spec({"exit 3", absl::StrCat("read x < ", gate)});
  spec.time_limit_ms = 300;
  COHORT_ASSERT_OK(daemon.Start(spec));
  std::map<int, ExitStatus> exits;
  while (exits.size() < 2) {
    const KeeperEvent event = daemon.NextEvent();
    if (const auto* exited = std::get_if<RankExited>(&event)) {
      exits[exited->rank] = exited->status;
    } else if (!std::holds_alternative<RankStarted>(event)) {
      FAIL() << "event " << event.index();
    }
  }
  EXPECT_EQ(exits[0].cause, Cause::kItself);
  EXPECT_EQ(exits[0].exit_code, 3);
  EXPECT_EQ(exits[1].cause, Cause::kTimeLimit);
}

TEST_F(KeeperTimeLimitTest, AStopBeforeTheTimeLimitStaysAStop) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  KeeperSpec spec =
      Spec({absl::StrCat("trap '' TERM; echo > ", ready, "; sleep 1000")});
  spec.time_limit_ms = 3'000;
  COHORT_ASSERT_OK(daemon.Start(spec));
  daemon.Next<RankStarted>();
  ReadFifo(ready);
  daemon.client().Stop(Attempt(), absl::Milliseconds(3'200));
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKilled);
  daemon.Next<AllDone>();
}

TEST_F(KeeperTimeLimitTest, KeepsTheTimeLimitWithoutADaemon) {
  const std::string ready = Fifo("ready");
  pid_t keeper = 0;
  {
    Daemon daemon(dir_.path());
    KeeperSpec spec =
        Spec({absl::StrCat("echo why >&2; echo > ", ready, "; sleep 1000")});
    spec.time_limit_ms = 500;
    COHORT_ASSERT_OK(daemon.Start(spec));
    daemon.Next<RankStarted>();
    ReadFifo(ready);
    keeper = KeeperPid();
  }
  if (keeper != 0) AwaitDeath(keeper);
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kDone);
  const ExitStatus status = daemon.RunOut();
  EXPECT_EQ(status.cause, Cause::kTimeLimit);
  // Not as long as nobody looked.
  EXPECT_GE(status.ran, absl::Milliseconds(500));
  EXPECT_EQ(ReadLog(0, LogStream::kStderr), "why\n");
}

}  // namespace
}  // namespace cohort::worker
