// Ranks run, told of, stopped and removed through their keeper.
#include "worker/keeper_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "worker/delegated_cgroup.h"
#include "worker/keeper/record.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_spawn.h"
#include "worker/log_reader.h"
#include "worker/testing/keeper_fixture.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Cause = ExitStatus::Cause;

TEST_F(KeeperClientTest, ReportsExitCodesOfEachRank) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"exit 0", "exit 3"})));
  std::vector<int> codes(2, -1);
  for (int i = 0; i < 4; ++i) {  // the ranks' events come interleaved
    const KeeperEvent event = daemon.NextEvent();
    if (const auto* exited = std::get_if<RankExited>(&event)) {
      EXPECT_EQ(exited->status.signal, 0);
      EXPECT_EQ(exited->status.cause, Cause::kItself);
      codes.at(static_cast<size_t>(exited->rank)) = exited->status.exit_code;
    }
  }
  daemon.Next<AllDone>();
  EXPECT_THAT(codes, ElementsAre(0, 3));
}

TEST_F(KeeperClientTest, SaysWhetherItsProgramRuns) {
  const std::string script = dir_.File("keeper");
  const auto check = [&script](const std::string& text) {
    std::ofstream(script) << "#!/bin/sh\n" << text << "\n";
    chmod(script.c_str(), 0700);
    KeeperProcess left;
    return CheckKeeper(script, kDeadline, left);
  };
  KeeperProcess left;
  COHORT_EXPECT_OK(CheckKeeper(COHORT_KEEPER_PROGRAM, kDeadline, left));
  EXPECT_THAT(CheckKeeper(dir_.File("none"), kDeadline, left),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("No such file")));
  EXPECT_THAT(check("exit 1"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("status 1")));
  EXPECT_THAT(check("kill -SEGV $$"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("signal 11")));
  std::ofstream(script) << "#!/bin/sh\nexec sleep 1000\n";
  EXPECT_THAT(
      CheckKeeper(script, absl::Milliseconds(20), left),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("does not end")));
}

// The thread that waits for it is the one that stops and kills ranks.
TEST_F(KeeperClientTest, ACheckThatDoesNotDieIsNotWaitedForAndTheOnlyOne) {
  const std::string script = dir_.File("keeper");
  std::ofstream(script) << "#!/bin/sh\nexec sleep 1000\n";
  chmod(script.c_str(), 0700);
  // As it would be left: it is alive.
  KeeperProcess left;
  std::string words[] = {"sleep", "1000"};
  char* argv[] = {words[0].data(), words[1].data(), nullptr};
  char* environment[] = {nullptr};
  ASSERT_EQ(
      posix_spawn(&left.pid, "/bin/sleep", nullptr, nullptr, argv, environment),
      0);
  const pid_t pid = left.pid;
  left.pidfd =
      keeper::UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  EXPECT_THAT(CheckKeeper(script, kDeadline, left),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr(absl::StrCat("process ", pid))));
  kill(pid, SIGKILL);
  pollfd ended = {left.pidfd.get(), POLLIN, 0};
  ASSERT_EQ(poll(&ended, 1, absl::ToInt64Milliseconds(kDeadline)), 1);
  COHORT_EXPECT_OK(CheckKeeper(COHORT_KEEPER_PROGRAM, kDeadline, left));
  EXPECT_EQ(left.pid, 0);
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), -1) << "it was reaped";
  // One that is given no time to die.
  CheckKeeper(script, absl::ZeroDuration(), left).IgnoreError();
  if (left.pid == 0) return;
  pollfd again = {left.pidfd.get(), POLLIN, 0};
  EXPECT_EQ(poll(&again, 1, absl::ToInt64Milliseconds(kDeadline)), 1)
      << "it was killed";
  COHORT_EXPECT_OK(CheckKeeper(COHORT_KEEPER_PROGRAM, kDeadline, left));
}

TEST_F(KeeperClientTest, ChecksItsProgramWhileRanksRun) {
  Daemon daemon(dir_.path(), COHORT_KEEPER_PROGRAM, /*takes_orphans=*/true);
  COHORT_ASSERT_OK(daemon.Start(Spec({"exit 0"})));
  COHORT_EXPECT_OK(daemon.CheckProgram());
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
}

TEST_F(KeeperClientTest, ReportsTheSignalThatEndedARank) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"kill -SEGV $$"})));
  const ExitStatus status = daemon.RunOut();
  EXPECT_EQ(status.signal, SIGSEGV);
  EXPECT_EQ(status.exit_code, -1);
  EXPECT_EQ(status.cause, Cause::kItself);
  EXPECT_FALSE(status.oom_killed);
}

TEST_F(KeeperClientTest, SaysWhyAProgramCannotRun) {
  struct Case {
    std::string program;
    int exit_code;
    std::string message;
  };
  const std::string script = dir_.File("script");
  std::ofstream(script) << "#!/no/such/interpreter\n";
  chmod(script.c_str(), 0700);
  const std::string text = dir_.File("text");
  std::ofstream(text) << "no program\n";
  const std::string binary = dir_.File("binary");
  std::ofstream(binary) << "echo hello\n";
  chmod(binary.c_str(), 0700);
  const Case cases[] = {
      {"/no/such/program", 127, "No such file"},
      {"no-such-program", 127, "No such file"},
      {script, 127, "interpreter"},
      {text, 126, "Permission denied"},
      {binary, 126, "Exec format error"},
      {"/", 126, "Permission denied"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.program);
    Daemon daemon(dir_.path());
    KeeperSpec spec = Spec({""});
    spec.ranks[0].argv = {one.program};
    COHORT_ASSERT_OK(daemon.Start(spec));
    const ExitStatus status = daemon.Next<RankExited>().status;
    EXPECT_EQ(status.exit_code, one.exit_code);
    EXPECT_EQ(status.cause, Cause::kCannotRun);
    EXPECT_THAT(status.message, HasSubstr(one.message));
    daemon.Next<AllDone>();
    EXPECT_EQ(ReadLog(0, LogStream::kStderr),
              absl::StrCat("cohort-keeper: ", status.message, "\n"));
    COHORT_ASSERT_OK(daemon.Remove());
    std::filesystem::remove_all(dir_.File("logs"));
  }
}

TEST_F(KeeperClientTest, SaysWhyARankCannotBeSetUp) {
  Daemon daemon(dir_.path());
  KeeperSpec spec = Spec({"exit 0"});
  spec.ranks[0].cwd = "/no/such/directory";
  COHORT_ASSERT_OK(daemon.Start(spec));
  const ExitStatus status = daemon.Next<RankExited>().status;
  EXPECT_EQ(status.exit_code, 126);
  EXPECT_THAT(status.message, HasSubstr("/no/such/directory"));
  daemon.Next<AllDone>();
}

TEST_F(KeeperClientTest, GivesARankWhatItsSpecSaysAndNothingElse) {
  Daemon daemon(dir_.path());
  KeeperSpec spec =
      Spec({"env | sort; pwd; ls -l /proc/self/fd | wc -l; "
            "grep -E 'SigBlk|SigIgn' /proc/self/status; cat; "
            "awk '{ print ($1 == $5) ($1 == $6) }' /proc/$$/stat"});
  spec.ranks[0].env = {"PATH=/usr/bin:/bin", "X=two\nlines",
                       "COHORT_ATTEMPT_ID=forged"};
  spec.ranks[0].cwd = dir_.path();
  COHORT_ASSERT_OK(daemon.Start(spec));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  EXPECT_EQ(ReadLog(0, LogStream::kStdout),
            absl::StrCat("COHORT_ATTEMPT_ID=", Attempt(),
                         "\nCOHORT_KEEPER_PLACE=", spec.runtime_dir,
                         "\nCOHORT_KEEPER_RANK=0\n"
                         "PATH=/usr/bin:/bin\nPWD=",
                         dir_.path(), "\nX=two\nlines\n", dir_.path(),
                         "\n5\n"  // total, 0, 1, 2, ls's own
                         "SigBlk:\t0000000000000000\n"
                         "SigIgn:\t0000000000000000\n11\n"));
  EXPECT_EQ(ReadLog(0, LogStream::kStderr), "");
}

TEST_F(KeeperClientTest, PinsARankToThoseOfItsCpusThatThereAre) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
  int first = 0;
  while (!CPU_ISSET(first, &own)) ++first;
  const auto allowed = [&](std::vector<int> cpus) {
    const TempDir dir;
    KeeperSpec spec = Spec({"grep Cpus_allowed_list /proc/self/status"});
    spec.ranks[0].cpus = std::move(cpus);
    spec.log_dir = dir.path();
    Daemon daemon(dir.path());
    COHORT_EXPECT_OK(daemon.Start(spec));
    daemon.RunOut();
    const auto text =
        LogReader(spec.log_dir, 0, LogStream::kStdout).Read(0, 4096);
    return text.ok() ? text->bytes : "";
  };
  EXPECT_EQ(allowed({first, keeper::kCpusMax - 1}),
            absl::StrCat("Cpus_allowed_list:\t", first, "\n"));
  // With none of them it runs anywhere.
  EXPECT_EQ(allowed({keeper::kCpusMax - 1}), allowed({}));
}

TEST_F(KeeperClientTest, KeepsEveryByteOfTwentyMegabytesOverARotation) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"seq 1 3000000"})));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  std::string expected;
  for (int i = 1; i <= 3000000; ++i) absl::StrAppend(&expected, i, "\n");
  EXPECT_GT(expected.size(), 20u << 20);
  // Not EXPECT_EQ: nobody reads twenty megabytes.
  EXPECT_TRUE(ReadLog(0, LogStream::kStdout) == expected);
}

TEST_F(KeeperClientTest, StopsWithSigtermFirst) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Start(Spec({absl::StrCat(
      "trap 'exit 7' TERM; echo > ", ready, "; read x < ", gate)})));
  daemon.Next<RankStarted>();
  ReadFifo(ready);
  daemon.client().Stop(Attempt(), absl::Hours(1));
  const ExitStatus status = daemon.Next<RankExited>().status;
  EXPECT_EQ(status.exit_code, 7);
  EXPECT_EQ(status.cause, Cause::kStopped);
  daemon.Next<AllDone>();
}

TEST_F(KeeperClientTest, KillsTheTreeWhenTheGraceIsOver) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Start(Spec({absl::StrCat(
      "trap '' TERM; setsid sleep 1000 & echo $! > ", ready, "; wait")})));
  daemon.Next<RankStarted>();
  const int64_t child = PidIn(ready);
  daemon.client().Stop(Attempt(), absl::Milliseconds(20));
  const ExitStatus status = daemon.Next<RankExited>().status;
  EXPECT_EQ(status.signal, SIGKILL);
  EXPECT_EQ(status.cause, Cause::kKilled);
  daemon.Next<AllDone>();
  EXPECT_TRUE(IsGone(child));
}

TEST_F(KeeperClientTest, TellsExitsInTheOrderThatTheyHappenedIn) {
  const std::string gate = Fifo("gate");
  pid_t keeper = 0;
  {
    Daemon daemon(dir_.path());
    const std::string first = absl::StrCat("echo > ", gate, "; exit 5");
    COHORT_ASSERT_OK(daemon.Start(
        Spec({absl::StrCat("read x < ", gate, "; sleep 0.2; exit 6"), first})));
    keeper = KeeperPid();
  }
  if (keeper != 0) AwaitDeath(keeper);
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  daemon.Next<RankStarted>();
  daemon.Next<RankStarted>();
  EXPECT_EQ(daemon.Next<RankExited>().status.exit_code, 5);
  EXPECT_EQ(daemon.Next<RankExited>().status.exit_code, 6);
  daemon.Next<AllDone>();
}

TEST_F(KeeperClientTest, KillEndsARankThatIgnoresEverything) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Start(Spec(
      {absl::StrCat("trap '' TERM INT HUP; echo > ", ready, "; sleep 1000")})));
  daemon.Next<RankStarted>();
  ReadFifo(ready);
  daemon.client().Stop(Attempt(), absl::Hours(1));
  daemon.client().Kill(Attempt());
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKilled);
  daemon.Next<AllDone>();
}

TEST_F(KeeperClientTest, EndsDaemonisedDescendantsWithTheirRank) {
  // KP-3: a double fork into a session of its own, with the rank's leader gone.
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Start(
      Spec({absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                         "; exec sleep 1000' &) ; read x < ", gate)})));
  daemon.Next<RankStarted>();
  const int64_t daemonised = PidIn(ready);
  EXPECT_FALSE(IsGone(daemonised));
  OpenGate(gate);
  EXPECT_EQ(daemon.Next<RankExited>().status.exit_code, 0);
  daemon.Next<AllDone>();
  EXPECT_TRUE(IsGone(daemonised));
}

TEST_F(KeeperClientTest, SparesTheDescendantsOfRanksThatLive) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string first = Fifo("first");
  const std::string second = Fifo("second");
  const std::string third = Fifo("third");
  COHORT_ASSERT_OK(daemon.Start(Spec(
      {absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                    "; exec sleep 1000' &) ; read x < ", first),
       absl::StrCat("read x < ", second), absl::StrCat("read x < ", third)})));
  for (int i = 0; i < 3; ++i) daemon.Next<RankStarted>();
  const int64_t daemonised = PidIn(ready);
  OpenGate(second);
  EXPECT_EQ(daemon.Next<RankExited>().rank, 1);
  // The keeper cleans up after rank 1 before it looks at rank 2.
  OpenGate(third);
  EXPECT_EQ(daemon.Next<RankExited>().rank, 2);
  EXPECT_FALSE(IsGone(daemonised));
  OpenGate(first);
  EXPECT_EQ(daemon.Next<RankExited>().rank, 0);
  daemon.Next<AllDone>();
  EXPECT_TRUE(IsGone(daemonised));
}

TEST_F(KeeperClientTest, SigtermToTheKeeperIsAStopWithACauseOfItsOwn) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Start(
      Spec({absl::StrCat("echo > ", ready, "; exec sleep 1000")})));
  daemon.Next<RankStarted>();
  ReadFifo(ready);
  kill(KeeperPid(), SIGTERM);
  const ExitStatus status = daemon.Next<RankExited>().status;
  EXPECT_EQ(status.signal, SIGTERM);
  EXPECT_EQ(status.cause, Cause::kKeeperStopped);
  daemon.Next<AllDone>();
}

TEST_F(KeeperClientTest, OfWhatIsBeingStoppedTheKeepersSigtermChangesNothing) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string told = Fifo("told");
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Start(
      Spec({absl::StrCat("trap 'echo > ", told, "' TERM; echo > ", ready,
                         "; while ! read x < ", gate, "; do :; done")})));
  daemon.Next<RankStarted>();
  ReadFifo(ready);
  daemon.client().Stop(Attempt(), absl::Hours(1));
  ReadFifo(told);
  kill(KeeperPid(), SIGTERM);
  OpenGate(gate);
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kStopped);
  daemon.Next<AllDone>();
}

// A machine that shuts down tells all processes, in the order of their pids.
TEST_F(KeeperClientTest, ARankMayGetTheSigtermOfAllBeforeItsKeeperDoes) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"exec sleep 1000"})));
  const int64_t rank = daemon.Next<RankStarted>().pid;
  const pid_t keeper = KeeperPid();
  kill(static_cast<pid_t>(rank), SIGTERM);
  AwaitDeath(rank);
  kill(keeper, SIGTERM);
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKeeperStopped);
  daemon.Next<AllDone>();
}

TEST_F(KeeperClientTest, AShellSaysWithItsCodeThatItGotTheSigtermOfAll) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(
      daemon.Start(Spec({absl::StrCat("read x < ", gate, "; exit 143")})));
  const int64_t rank = daemon.Next<RankStarted>().pid;
  const pid_t keeper = KeeperPid();
  OpenGate(gate);
  AwaitDeath(rank);
  kill(keeper, SIGTERM);
  const ExitStatus status = daemon.Next<RankExited>().status;
  EXPECT_EQ(status.exit_code, 143);
  EXPECT_EQ(status.cause, Cause::kKeeperStopped);
  daemon.Next<AllDone>();
}

TEST_F(KeeperClientTest, ASigtermToTheRankAloneIsItsOwnEnd) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"kill $$; sleep 1000"})));
  const ExitStatus status = daemon.RunOut();
  EXPECT_EQ(status.signal, SIGTERM);
  EXPECT_EQ(status.cause, Cause::kItself);
}

TEST_F(KeeperClientTest, RefusesToStartAnAttemptTwice) {
  // KH-1
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"exit 0"})));
  EXPECT_THAT(daemon.Start(Spec({"exit 1"})),
              StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(daemon.Adopt(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  Daemon another(dir_.path());
  EXPECT_THAT(
      another.Start(Spec({"exit 1"})),
      StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("attempts")));
}

TEST_F(KeeperClientTest, LeavesNothingWhenItCannotStart) {
  // KH-2
  {
    Daemon daemon(dir_.path(), "/no/such/keeper");
    EXPECT_THAT(daemon.Start(Spec({"exit 0"})),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("/no/such")));
    EXPECT_THAT(AttemptsOnDisk(), IsEmpty());
  }
  Daemon daemon(dir_.path());
  KeeperSpec spec = Spec({"exit 0"});
  spec.ranks[0].argv.clear();
  EXPECT_THAT(daemon.Start(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("argv")));
  // The keeper itself finds out: its log directory cannot be made.
  spec = Spec({"exit 0"});
  spec.log_dir = "/proc/nowhere/logs";
  EXPECT_THAT(daemon.Start(spec), StatusIs(absl::StatusCode::kInternal,
                                           HasSubstr("/proc/nowhere")));
  EXPECT_THAT(AttemptsOnDisk(), IsEmpty());
  // And the name is free again.
  COHORT_ASSERT_OK(daemon.Start(Spec({"exit 0"})));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
}

TEST_F(KeeperClientTest, RemovesOnlyWhatHasEnded) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Start(Spec({absl::StrCat("read x < ", gate)})));
  daemon.Next<RankStarted>();
  EXPECT_THAT(daemon.Remove(), StatusIs(absl::StatusCode::kFailedPrecondition));
  {
    Daemon another(dir_.path());
    EXPECT_THAT(another.Remove(),
                StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  OpenGate(gate);
  daemon.Next<RankExited>();
  daemon.Next<AllDone>();
  COHORT_EXPECT_OK(daemon.Remove());
  COHORT_EXPECT_OK(daemon.Remove());
  EXPECT_THAT(AttemptsOnDisk(), IsEmpty());
  EXPECT_THAT(daemon.Adopt(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(KeeperClientTest, RunsMoreRanksThanADaemonMayOpenFiles) {
  Daemon daemon(dir_.path());
  const int ranks = 150;  // at ten descriptors each, above the usual 1,024
  COHORT_ASSERT_OK(daemon.Start(
      Spec(std::vector<std::string>(ranks, "echo $COHORT_KEEPER_RANK"))));
  for (int i = 0; i < 2 * ranks; ++i) {
    const KeeperEvent event = daemon.NextEvent();
    if (const auto* exited = std::get_if<RankExited>(&event)) {
      EXPECT_EQ(exited->status.exit_code, 0) << exited->status.message;
    }
  }
  daemon.Next<AllDone>();
  EXPECT_EQ(ReadLog(149, LogStream::kStdout), "149\n");
}

TEST_F(KeeperClientTest, HangsUpOnGarbageAndTellsEachConnectionTheWholeStory) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Start(Spec({absl::StrCat("read x < ", gate)})));
  daemon.Next<RankStarted>();
  const auto kinds_until_end = [](int connection) {
    fcntl(connection, F_SETFL, 0);  // blocking
    std::vector<std::string> kinds;
    char buffer[keeper::kPacketBytesMax];
    while (true) {
      const ssize_t n = recv(connection, buffer, sizeof(buffer), 0);
      if (n <= 0) return kinds;
      kinds.push_back(
          keeper::RecordKind(std::string(buffer, static_cast<size_t>(n))));
    }
  };
  const auto rude = ConnectToKeeper(dir_.File("run"));
  COHORT_ASSERT_OK(rude);
  ASSERT_EQ(send(rude->get(), "kill them", 9, MSG_NOSIGNAL), 9);
  EXPECT_THAT(kinds_until_end(rude->get()), ElementsAre("keeper", "started"));
  const auto late = ConnectToKeeper(dir_.File("run"));
  COHORT_ASSERT_OK(late);
  OpenGate(gate);
  EXPECT_THAT(kinds_until_end(late->get()),
              ElementsAre("keeper", "started", "exit", "done"));
  EXPECT_EQ(daemon.Next<RankExited>().status.exit_code, 0);
  daemon.Next<AllDone>();
}

TEST_F(KeeperClientTest, KillEndsTheRanksOfAKeeperThatIsStuck) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"exec sleep 1000"})));
  const int64_t pid = daemon.Next<RankStarted>().pid;
  kill(KeeperPid(), SIGSTOP);
  daemon.client().Kill(Attempt());
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKeeperLost);
  daemon.Next<KeeperLost>();
  EXPECT_TRUE(IsGone(pid));
}

TEST_F(KeeperClientTest, StopReachesAKeeperWhoseSocketIsGone) {
  const std::string ready = Fifo("ready");
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(daemon.Start(
        Spec({absl::StrCat("echo > ", ready, "; exec sleep 1000")})));
    daemon.Next<RankStarted>();
    ReadFifo(ready);
  }
  std::filesystem::remove_all(dir_.File("run"));
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  daemon.client().Stop(Attempt(), absl::Hours(1));
  // Nothing can be heard until it is over: then the files tell all.
  const ExitStatus status = daemon.RunOut();
  EXPECT_EQ(status.signal, SIGTERM);
  EXPECT_EQ(status.cause, Cause::kKeeperStopped);
}

TEST_F(KeeperClientTest, KeepsARankRunningWhileItsLogDiskIsFull) {
  const std::string disk = dir_.File("disk");
  ASSERT_EQ(mkdir(disk.c_str(), 0700), 0);
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=256k,mode=700") != 0) {
    GTEST_SKIP() << "may not mount a tmpfs";
  }
  {
    Daemon daemon(dir_.path());
    KeeperSpec spec = Spec({"seq 1 300000; exit 6"});
    spec.log_dir = disk + "/logs";
    COHORT_ASSERT_OK(daemon.Start(spec));
    EXPECT_EQ(daemon.RunOut().exit_code, 6);
    const LogReader reader(spec.log_dir, 0, LogStream::kStdout);
    const auto end = reader.EndOffset();
    COHORT_ASSERT_OK(end);
    EXPECT_GT(*end, 100'000u);
    EXPECT_LT(*end, 256u << 10);
    const auto chunk = reader.Read(0, 1 << 20);
    COHORT_ASSERT_OK(chunk);
    EXPECT_TRUE(chunk->eof);
  }
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
}

TEST_F(KeeperClientTest, SaysThatTheDiskIsFullWhenItCannotStart) {
  const std::string disk = dir_.File("attempts");
  ASSERT_EQ(mkdir(disk.c_str(), 0700), 0);
  int failures = 0;
  // From one on which nothing fits to one on which the keeper's files do.
  for (int pages = 1; pages <= 8; ++pages) {
    const std::string size = absl::StrCat("size=", 4 * pages, "k");
    if (mount("tmpfs", disk.c_str(), "tmpfs", 0, size.c_str()) != 0) {
      GTEST_SKIP() << "may not mount a tmpfs";
    }
    {
      Daemon daemon(dir_.path());
      const absl::Status status = daemon.Start(Spec({"exit 0"}));
      if (status.ok()) {
        daemon.RunOut();
      } else {
        ++failures;
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("No space left on device"),
                          HasSubstr("free space"), HasSubstr(disk)));
      }
    }
    EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
  }
  EXPECT_GE(failures, 3);
}

TEST_F(KeeperClientTest, UsesACgroupWhereItMay) {
  const absl::StatusOr<std::string> parent = DelegatedCgroup();
  if (!parent.ok()) GTEST_SKIP() << parent.status();
  Daemon daemon(dir_.path());
  KeeperSpec spec = Spec({"cat /proc/self/cgroup; exec sleep 1000"});
  spec.cgroup_parent = *parent;
  COHORT_ASSERT_OK(daemon.Start(spec));
  const int64_t pid = daemon.Next<RankStarted>().pid;
  const std::string groups =
      ReadProcFile(absl::StrCat("/proc/", pid, "/cgroup"));
  EXPECT_THAT(groups, HasSubstr(absl::StrCat("0::/", keeper::CgroupName(spec),
                                             "/rank-0\n")));
  daemon.client().Kill(Attempt());
  daemon.Next<RankExited>();
  daemon.Next<AllDone>();
  EXPECT_EQ(access((*parent + "/" + keeper::CgroupName(spec)).c_str(), F_OK),
            -1);
}

TEST_F(KeeperClientTest, DoesWithoutACgroupAndSaysSo) {
  Daemon daemon(dir_.path());
  KeeperSpec spec = Spec({"exit 0"});
  spec.cgroup_parent = dir_.path();
  COHORT_ASSERT_OK(daemon.Start(spec));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  EXPECT_THAT(ReadKeeperLog(AttemptDir()),
              HasSubstr("is not a cgroup v2 directory"));
}

}  // namespace
}  // namespace cohort::worker
