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
#include <map>
#include <string>
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
using Cause = ExitCause;

// Of the packets that come, up to `count` or the end of the connection.
std::vector<std::string> Kinds(int connection, size_t count = 100) {
  fcntl(connection, F_SETFL, 0);  // blocking
  std::vector<std::string> kinds;
  char buffer[keeper::kPacketBytesMax];
  while (kinds.size() < count) {
    const ssize_t n = recv(connection, buffer, sizeof(buffer), 0);
    if (n <= 0) break;
    kinds.push_back(
        keeper::RecordKind(std::string(buffer, static_cast<size_t>(n))));
  }
  return kinds;
}

TEST_F(KeeperClientTest, ReportsExitCodesOfEachProcess) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exit 0", "exit 3"})));
  std::map<int, ExitReport> ends = daemon.Ends(2);
  ASSERT_EQ(ends.size(), 2u);
  for (const auto& [slot, status] : ends) {
    EXPECT_EQ(status.signal, 0);
    EXPECT_EQ(status.cause, Cause::kItself);
  }
  EXPECT_EQ(ends[0].exit_code, 0);
  EXPECT_EQ(ends[1].exit_code, 3);
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
  Daemon daemon(dir_.path(), {.takes_orphans = true});
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exit 0"})));
  COHORT_EXPECT_OK(daemon.CheckProgram());
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
}

TEST_F(KeeperClientTest, ReportsTheSignalThatEndedARank) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"kill -SEGV $$"})));
  const ExitReport status = daemon.RunOut();
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
    std::vector<ProcessSpec> specs = Specs({""});
    specs[0].argv = {one.program};
    COHORT_ASSERT_OK(daemon.Begin(specs));
    const ExitReport status = daemon.End();
    EXPECT_EQ(status.exit_code, one.exit_code);
    EXPECT_EQ(status.cause, Cause::kCannotRun);
    EXPECT_THAT(status.message, HasSubstr(one.message));
    EXPECT_EQ(ReadLog(0, v1::LOG_STREAM_STDERR),
              absl::StrCat("cohort-keeper: ", status.message, "\n"));
    COHORT_ASSERT_OK(daemon.Close());
    std::filesystem::remove_all(dir_.File("logs"));
  }
}

TEST_F(KeeperClientTest, SaysWhyARankCannotBeSetUp) {
  Daemon daemon(dir_.path());
  std::vector<ProcessSpec> specs = Specs({"exit 0"});
  specs[0].cwd = "/no/such/directory";
  COHORT_ASSERT_OK(daemon.Begin(specs));
  const ExitReport status = daemon.End();
  EXPECT_EQ(status.exit_code, 126);
  EXPECT_THAT(status.message, HasSubstr("/no/such/directory"));
}

TEST_F(KeeperClientTest, GivesARankWhatItsSpecSaysAndNothingElse) {
  Daemon daemon(dir_.path());
  std::vector<ProcessSpec> specs =
      Specs({"env | sort; pwd; ls -l /proc/self/fd | wc -l; "
             "grep -E 'SigBlk|SigIgn' /proc/self/status; cat; "
             "awk '{ print ($1 == $5) ($1 == $6) }' /proc/$$/stat"});
  specs[0].env = {"PATH=/usr/bin:/bin", "X=two\nlines",
                  "COHORT_ATTEMPT_ID=forged"};
  specs[0].cwd = dir_.path();
  COHORT_ASSERT_OK(daemon.Begin(specs));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  EXPECT_EQ(ReadLog(0, v1::LOG_STREAM_STDOUT),
            absl::StrCat("COHORT_ATTEMPT_ID=", Attempt(),
                         "\nCOHORT_KEEPER_PLACE=", Place(),
                         "\nCOHORT_KEEPER_PROCESS=", Key().ToString(),
                         "\nPATH=/usr/bin:/bin\nPWD=", dir_.path(),
                         "\nX=two\nlines\n", dir_.path(),
                         "\n5\n"  // total, 0, 1, 2, ls's own
                         "SigBlk:\t0000000000000000\n"
                         "SigIgn:\t0000000000000000\n11\n"));
  EXPECT_EQ(ReadLog(0, v1::LOG_STREAM_STDERR), "");
}

TEST_F(KeeperClientTest, PinsARankToThoseOfItsCpusThatThereAre) {
  cpu_set_t own;
  ASSERT_EQ(sched_getaffinity(0, sizeof(own), &own), 0);
  int first = 0;
  while (!CPU_ISSET(first, &own)) ++first;
  const auto allowed = [&](std::vector<int> cpus) {
    const TempDir dir;
    std::vector<ProcessSpec> specs =
        Specs({"grep Cpus_allowed_list /proc/self/status"});
    specs[0].cpus = std::move(cpus);
    specs[0].log_dir = dir.path();
    Daemon daemon(dir.path());
    COHORT_EXPECT_OK(daemon.Begin(specs));
    daemon.RunOut();
    const auto text =
        LogReader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT).Read(0, 4096);
    return text.ok() ? text->bytes : "";
  };
  EXPECT_EQ(allowed({first, keeper::kCpusMax - 1}),
            absl::StrCat("Cpus_allowed_list:\t", first, "\n"));
  // With none of them it runs anywhere.
  EXPECT_EQ(allowed({keeper::kCpusMax - 1}), allowed({}));
}

TEST_F(KeeperClientTest, KeepsEveryByteOfTwentyMegabytesOverARotation) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"seq 1 3000000"})));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  std::string expected;
  for (int i = 1; i <= 3000000; ++i) absl::StrAppend(&expected, i, "\n");
  EXPECT_GT(expected.size(), 20u << 20);
  // Not EXPECT_EQ: nobody reads twenty megabytes.
  EXPECT_TRUE(ReadLog(0, v1::LOG_STREAM_STDOUT) == expected);
}

TEST_F(KeeperClientTest, StopsWithSigtermFirst) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat(
      "trap 'exit 7' TERM; echo > ", ready, "; read x < ", gate)})));
  daemon.Next<ProcessStarted>();
  ReadFifo(ready);
  daemon.Stop(absl::Hours(1));
  const ExitReport status = daemon.End();
  EXPECT_EQ(status.exit_code, 7);
  EXPECT_EQ(status.cause, Cause::kStopped);
}

TEST_F(KeeperClientTest, KillsTheTreeWhenTheGraceIsOver) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat(
      "trap '' TERM; setsid sleep 1000 & echo $! > ", ready, "; wait")})));
  daemon.Next<ProcessStarted>();
  const int64_t child = PidIn(ready);
  daemon.Stop(absl::Milliseconds(20));
  const ExitReport status = daemon.End();
  EXPECT_EQ(status.signal, SIGKILL);
  EXPECT_EQ(status.cause, Cause::kKilled);
  EXPECT_TRUE(IsGone(child));
}

TEST_F(KeeperClientTest, GivesTheGraceToAllOfTheGroup) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string gate = Fifo("gate");
  const std::string never = Fifo("never");
  // What leads the group ends at once.
  COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat(
      "(trap 'read x < ", gate, "; echo saved; exit' TERM; echo > ", ready,
      "; read x < ", never, ") & exec sleep 1000")})));
  daemon.Next<ProcessStarted>();
  ReadFifo(ready);
  daemon.Stop(absl::Hours(1));
  EXPECT_EQ(daemon.Next<ProcessExited>().signal, SIGTERM);
  OpenGate(gate);
  daemon.Next<ProcessEnded>();
  EXPECT_EQ(ReadLog(0, v1::LOG_STREAM_STDOUT), "saved\n");
}

TEST_F(KeeperClientTest, KillsTheGroupWhenTheGraceIsOver) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Begin(
      Specs({absl::StrCat("trap '' TERM; sleep 1000 & trap - TERM; echo $! > ",
                          ready, "; exec sleep 1000")})));
  daemon.Next<ProcessStarted>();
  const int64_t child = PidIn(ready);
  daemon.Stop(absl::Milliseconds(20));
  const ExitReport status = daemon.End();
  EXPECT_EQ(status.signal, SIGTERM);
  EXPECT_EQ(status.cause, Cause::kStopped);
  EXPECT_TRUE(IsGone(child));
}

TEST_F(KeeperClientTest, TellsExitsInTheOrderThatTheyHappenedIn) {
  const std::string gate = Fifo("gate");
  pid_t keeper = 0;
  {
    Daemon daemon(dir_.path());
    const std::string first = absl::StrCat("echo > ", gate, "; exit 5");
    COHORT_ASSERT_OK(daemon.Begin(Specs(
        {absl::StrCat("read x < ", gate, "; sleep 0.2; exit 6"), first})));
    keeper = KeeperPid();
  }
  if (keeper != 0) AwaitDeath(keeper);
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  daemon.Next<ProcessStarted>();
  daemon.Next<ProcessStarted>();
  EXPECT_EQ(daemon.Next<ProcessExited>().exit_code, 5);
  EXPECT_EQ(daemon.End().exit_code, 6);
  daemon.Next<ProcessEnded>();
}

TEST_F(KeeperClientTest, KillEndsARankThatIgnoresEverything) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Begin(Specs(
      {absl::StrCat("trap '' TERM INT HUP; echo > ", ready, "; sleep 1000")})));
  daemon.Next<ProcessStarted>();
  ReadFifo(ready);
  daemon.Stop(absl::Hours(1));
  daemon.Kill();
  EXPECT_EQ(daemon.End().cause, Cause::kKilled);
}

TEST_F(KeeperClientTest, EndsDaemonisedDescendantsWithTheirRank) {
  // KP-3: a double fork into a session of its own, with the rank's leader gone.
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Begin(
      Specs({absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                          "; exec sleep 1000' &) ; read x < ", gate)})));
  daemon.Next<ProcessStarted>();
  const int64_t daemonised = PidIn(ready);
  EXPECT_FALSE(IsGone(daemonised));
  OpenGate(gate);
  EXPECT_EQ(daemon.End().exit_code, 0);
  EXPECT_TRUE(IsGone(daemonised));
}

TEST_F(KeeperClientTest, SparesTheDescendantsOfRanksThatLive) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string first = Fifo("first");
  const std::string second = Fifo("second");
  const std::string third = Fifo("third");
  COHORT_ASSERT_OK(daemon.Begin(Specs(
      {absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                    "; exec sleep 1000' &) ; read x < ", first),
       absl::StrCat("read x < ", second), absl::StrCat("read x < ", third)})));
  for (int i = 0; i < 3; ++i) daemon.Next<ProcessStarted>();
  const int64_t daemonised = PidIn(ready);
  OpenGate(second);
  EXPECT_EQ(daemon.Next<ProcessExited>().process.slot, 1);
  daemon.Next<ProcessEnded>();
  // The keeper cleans up after rank 1 before it looks at rank 2.
  OpenGate(third);
  EXPECT_EQ(daemon.Next<ProcessExited>().process.slot, 2);
  daemon.Next<ProcessEnded>();
  EXPECT_FALSE(IsGone(daemonised));
  OpenGate(first);
  EXPECT_EQ(daemon.Next<ProcessExited>().process.slot, 0);
  daemon.Next<ProcessEnded>();
  EXPECT_TRUE(IsGone(daemonised));
}

TEST_F(KeeperClientTest, SigtermToTheKeeperIsAStopWithACauseOfItsOwn) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Begin(
      Specs({absl::StrCat("echo > ", ready, "; exec sleep 1000")})));
  daemon.Next<ProcessStarted>();
  ReadFifo(ready);
  kill(KeeperPid(), SIGTERM);
  const ExitReport status = daemon.End();
  EXPECT_EQ(status.signal, SIGTERM);
  EXPECT_EQ(status.cause, Cause::kKeeperStopped);
}

TEST_F(KeeperClientTest, OfWhatIsBeingStoppedTheKeepersSigtermChangesNothing) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string told = Fifo("told");
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Begin(
      Specs({absl::StrCat("trap 'echo > ", told, "' TERM; echo > ", ready,
                          "; while ! read x < ", gate, "; do :; done")})));
  daemon.Next<ProcessStarted>();
  ReadFifo(ready);
  daemon.Stop(absl::Hours(1));
  ReadFifo(told);
  kill(KeeperPid(), SIGTERM);
  OpenGate(gate);
  EXPECT_EQ(daemon.End().cause, Cause::kStopped);
}

// A machine that shuts down tells all processes, in the order of their pids.
TEST_F(KeeperClientTest, ARankMayGetTheSigtermOfAllBeforeItsKeeperDoes) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exec sleep 1000"})));
  const int64_t rank = daemon.Next<ProcessStarted>().pid;
  const pid_t keeper = KeeperPid();
  kill(static_cast<pid_t>(rank), SIGTERM);
  AwaitDeath(rank);
  kill(keeper, SIGTERM);
  EXPECT_EQ(daemon.End().cause, Cause::kKeeperStopped);
}

TEST_F(KeeperClientTest, AShellSaysWithItsCodeThatItGotTheSigtermOfAll) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(
      daemon.Begin(Specs({absl::StrCat("read x < ", gate, "; exit 143")})));
  const int64_t rank = daemon.Next<ProcessStarted>().pid;
  const pid_t keeper = KeeperPid();
  OpenGate(gate);
  AwaitDeath(rank);
  kill(keeper, SIGTERM);
  const ExitReport status = daemon.End();
  EXPECT_EQ(status.exit_code, 143);
  EXPECT_EQ(status.cause, Cause::kKeeperStopped);
}

TEST_F(KeeperClientTest, ASigtermToTheRankAloneIsItsOwnEnd) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"kill $$; sleep 1000"})));
  const ExitReport status = daemon.RunOut();
  EXPECT_EQ(status.signal, SIGTERM);
  EXPECT_EQ(status.cause, Cause::kItself);
}

TEST_F(KeeperClientTest, BeginsAProcessOnce) {
  // KH-1
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exit 0"})));
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exit 1"})));
  EXPECT_THAT(daemon.Adopt(), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exit 1"})));
  // Its story comes with what another daemon has of it.
  Daemon another(dir_.path());
  COHORT_ASSERT_OK(another.Begin(Specs({"exit 1"})));
  EXPECT_EQ(another.RunOut().exit_code, 0);
}

TEST_F(KeeperClientTest, LeavesNothingWhenItCannotBegin) {
  // KH-2
  {
    Daemon daemon(dir_.path(), {.program = "/no/such/keeper"});
    EXPECT_THAT(daemon.Begin(Specs({"exit 0"})),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("/no/such")));
    EXPECT_THAT(KeepersOnDisk(), IsEmpty());
  }
  Daemon daemon(dir_.path());
  std::vector<ProcessSpec> specs = Specs({"exit 0"});
  specs[0].argv.clear();
  EXPECT_THAT(daemon.Begin(specs),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("argv")));
  // The keeper itself finds out: a log directory cannot be made.  All or none.
  specs = Specs({"exit 0", "exit 0"});
  specs[1].log_dir = "/proc/nowhere/logs";
  EXPECT_THAT(daemon.Begin(specs), StatusIs(absl::StatusCode::kInternal,
                                            HasSubstr("/proc/nowhere")));
  EXPECT_THAT(KeepersOnDisk(), IsEmpty());
  EXPECT_THAT(Keepers(), IsEmpty());
  // And the name is free again.
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exit 0"})));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  // What is refused later costs the others nothing.
  specs[0].slot = 2;
  EXPECT_THAT(daemon.Begin(specs), StatusIs(absl::StatusCode::kInternal));
  EXPECT_FALSE(std::filesystem::exists(KeeperFile(keeper::SpecFile(Key(2)))));
  EXPECT_TRUE(std::filesystem::exists(KeeperFile(keeper::EndedFile(Key()))));
}

TEST_F(KeeperClientTest, ClosesOnlyWhatHasEnded) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat("read x < ", gate)})));
  daemon.Next<ProcessStarted>();
  EXPECT_THAT(daemon.Close(), StatusIs(absl::StatusCode::kFailedPrecondition));
  {
    Daemon another(dir_.path());
    EXPECT_THAT(another.Close(),
                StatusIs(absl::StatusCode::kFailedPrecondition));
  }
  OpenGate(gate);
  daemon.End();
  EXPECT_EQ(Keepers().size(), 1u) << "it waits for more";
  COHORT_EXPECT_OK(daemon.Close());
  EXPECT_THAT(Keepers(), IsEmpty());
  COHORT_EXPECT_OK(daemon.Close());
  EXPECT_THAT(KeepersOnDisk(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(Place()));
  EXPECT_THAT(daemon.Adopt(), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(KeeperClientTest, BeginsAProcessLaterUnderAKeeperThatLives) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat("read x < ", gate)})));
  daemon.Next<ProcessStarted>();
  const pid_t keeper = KeeperPid();
  // The slot is filled again, in the same log directory.
  std::vector<ProcessSpec> later = Specs({"echo again; exit 3"});
  later[0].incarnation = 2;
  COHORT_ASSERT_OK(daemon.Begin(later));
  EXPECT_EQ(daemon.Next<ProcessStarted>().process, later[0].key());
  EXPECT_EQ(daemon.End().exit_code, 3);
  EXPECT_EQ(ReadLog(0, v1::LOG_STREAM_STDOUT, 2), "again\n");
  EXPECT_EQ(KeeperPid(), keeper);
  OpenGate(gate);
  EXPECT_EQ(daemon.End().exit_code, 0);
  // And when nothing of it ran for a while.
  later[0].incarnation = 3;
  COHORT_ASSERT_OK(daemon.Begin(later));
  EXPECT_EQ(daemon.RunOut().exit_code, 3);
  EXPECT_EQ(KeeperPid(), keeper);
}

TEST_F(KeeperClientTest, StopsTheProcessesOfOneAttemptAndSparesAnothers) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  const std::string gate = Fifo("gate");
  // Each with a descendant that left its session.
  const std::string leave = absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                                         "; exec sleep 1000' &) ; read x < ");
  std::vector<ProcessSpec> specs =
      Specs({absl::StrCat(leave, gate), absl::StrCat(leave, Fifo("never"))});
  specs[1].attempt = "b0b";
  specs[1].slot = 0;
  COHORT_ASSERT_OK(daemon.Begin({specs[0]}));
  daemon.Next<ProcessStarted>();
  const int64_t spared = PidIn(ready);
  COHORT_ASSERT_OK(daemon.Begin({specs[1]}));
  daemon.Next<ProcessStarted>();
  const int64_t stopped = PidIn(ready);
  daemon.Stop({specs[1].key()}, absl::Hours(1));
  const ProcessExited exited = daemon.Next<ProcessExited>();
  EXPECT_EQ(exited.process, specs[1].key());
  EXPECT_EQ(exited.cause, Cause::kStopped);
  daemon.Next<ProcessEnded>();
  EXPECT_TRUE(IsGone(stopped));
  EXPECT_FALSE(IsGone(spared));
  OpenGate(gate);
  EXPECT_EQ(daemon.End().cause, Cause::kItself);
  EXPECT_TRUE(IsGone(spared));
}

TEST_F(KeeperClientTest, WhatIsForgottenIsToldNoMore) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(
      daemon.Begin(Specs({absl::StrCat("read x < ", gate), "exit 3"})));
  daemon.Ends(1);
  EXPECT_THAT(daemon.Forget({Key(0), Key(1)}),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  COHORT_ASSERT_OK(daemon.Forget({Key(1), Key(9)}));
  COHORT_ASSERT_OK(daemon.Forget({Key(1)}));
  EXPECT_FALSE(std::filesystem::exists(KeeperFile(keeper::SpecFile(Key(1)))));
  EXPECT_FALSE(std::filesystem::exists(KeeperFile(keeper::EndedFile(Key(1)))));
  EXPECT_EQ(ReadLog(1, v1::LOG_STREAM_STDOUT), "") << "its logs stay";
  // The keeper has forgotten it too.
  const auto late = ConnectToKeeper(Place());
  COHORT_ASSERT_OK(late);
  EXPECT_THAT(Kinds(late->get(), 2), ElementsAre("keeper", "started"));
  Daemon another(dir_.path());
  const auto adopted = another.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_THAT(adopted->known, ElementsAre(Key(0)));
  another.Next<ProcessStarted>();
  OpenGate(gate);
  EXPECT_EQ(another.End().exit_code, 0);
}

TEST_F(KeeperClientTest, AKeeperWithoutADaemonEndsAfterItsIdleTime) {
  const std::string gate = Fifo("gate");
  pid_t keeper = 0;
  {
    Daemon daemon(dir_.path(),
                  {.keeper_idle_timeout = absl::Milliseconds(200)});
    COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat("read x < ", gate)})));
    daemon.Next<ProcessStarted>();
    keeper = KeeperPid();
  }
  // Not while something runs, however long.
  pollfd none = {-1, 0, 0};
  poll(&none, 1, 400);
  EXPECT_FALSE(IsGone(keeper));
  OpenGate(gate);
  AwaitDeath(keeper);
  // Its records tell, and a new one is started for what comes.
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  std::vector<ProcessSpec> later = Specs({"exit 4"});
  later[0].incarnation = 2;
  COHORT_ASSERT_OK(daemon.Begin(later));
  EXPECT_EQ(daemon.RunOut().exit_code, 4);
  COHORT_EXPECT_OK(daemon.Close());
}

TEST_F(KeeperClientTest, AKeeperThatDoesNotAnswerIsNotWaitedForForever) {
  const std::string script = dir_.File("keeper");
  std::ofstream(script) << "#!/bin/sh\nexec sleep 1000\n";
  chmod(script.c_str(), 0700);
  {
    Daemon daemon(dir_.path(),
                  {.program = script, .begin_timeout = absl::Milliseconds(50)});
    EXPECT_THAT(daemon.Begin(Specs({"exit 0"})),
                StatusIs(absl::StatusCode::kDeadlineExceeded));
    EXPECT_THAT(KeepersOnDisk(), IsEmpty());
  }
  // One that lives may take it later: then it is ended, and told by nobody.
  Daemon daemon(dir_.path(), {.begin_timeout = absl::Milliseconds(500)});
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat("read x < ", gate)})));
  daemon.Next<ProcessStarted>();
  kill(KeeperPid(), SIGSTOP);
  std::vector<ProcessSpec> late = Specs({"exec sleep 1000"});
  late[0].slot = 1;
  EXPECT_THAT(daemon.Begin(late),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  kill(KeeperPid(), SIGCONT);
  OpenGate(gate);
  EXPECT_EQ(daemon.End().exit_code, 0);
  COHORT_EXPECT_OK(daemon.Close());
}

TEST_F(KeeperClientTest, RefusesMoreProcessesThanItRuns) {
  Daemon daemon(dir_.path());
  EXPECT_THAT(daemon.Begin(Specs(std::vector<std::string>(
                  keeper::kProcessesMax + 1, "exit 0"))),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(KeeperClientTest, RunsMoreRanksThanADaemonMayOpenFiles) {
  Daemon daemon(dir_.path());
  const int count = 150;  // at ten descriptors each, above the usual 1,024
  COHORT_ASSERT_OK(daemon.Begin(
      Specs(std::vector<std::string>(count, "echo $COHORT_KEEPER_PROCESS"))));
  int started = 0;
  const std::map<int, ExitReport> ends = daemon.Ends(count, &started);
  EXPECT_EQ(started, count);
  EXPECT_EQ(ends.size(), static_cast<size_t>(count));
  for (const auto& [slot, status] : ends) {
    EXPECT_EQ(status.exit_code, 0) << status.message;
  }
  EXPECT_EQ(ReadLog(149, v1::LOG_STREAM_STDOUT), Key(149).ToString() + "\n");
}

TEST_F(KeeperClientTest, HangsUpOnGarbageAndTellsEachConnectionTheWholeStory) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat("read x < ", gate)})));
  daemon.Next<ProcessStarted>();
  const auto rude = ConnectToKeeper(Place());
  COHORT_ASSERT_OK(rude);
  ASSERT_EQ(send(rude->get(), "kill them", 9, MSG_NOSIGNAL), 9);
  EXPECT_THAT(Kinds(rude->get()), ElementsAre("keeper", "started"));
  const auto late = ConnectToKeeper(Place());
  COHORT_ASSERT_OK(late);
  OpenGate(gate);
  EXPECT_THAT(Kinds(late->get(), 4),
              ElementsAre("keeper", "started", "exit", "ended"));
  EXPECT_EQ(daemon.End().exit_code, 0);
}

TEST_F(KeeperClientTest, KillEndsTheRanksOfAKeeperThatIsStuck) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exec sleep 1000"})));
  const int64_t pid = daemon.Next<ProcessStarted>().pid;
  kill(KeeperPid(), SIGSTOP);
  daemon.Kill();
  EXPECT_EQ(daemon.End().cause, Cause::kKeeperLost);
  EXPECT_TRUE(IsGone(pid));
}

TEST_F(KeeperClientTest, StopReachesAKeeperWhoseSocketIsGone) {
  const std::string ready = Fifo("ready");
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(daemon.Begin(
        Specs({absl::StrCat("echo > ", ready, "; exec sleep 1000")})));
    daemon.Next<ProcessStarted>();
    ReadFifo(ready);
  }
  std::filesystem::remove_all(dir_.File("run"));
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  daemon.Stop(absl::Hours(1));
  // Nothing can be heard until it is over: then the files tell all.
  const ExitReport status = daemon.RunOut();
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
    std::vector<ProcessSpec> specs = Specs({"seq 1 300000; exit 6"});
    specs[0].log_dir = disk + "/logs";
    COHORT_ASSERT_OK(daemon.Begin(specs));
    EXPECT_EQ(daemon.RunOut().exit_code, 6);
    const LogReader reader(specs[0].log_dir, 0, 1, v1::LOG_STREAM_STDOUT);
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
  const std::string disk = dir_.File("keepers");
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
      const absl::Status status = daemon.Begin(Specs({"exit 0"}));
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
  Daemon daemon(dir_.path(), {.cgroup_parent = *parent});
  COHORT_ASSERT_OK(
      daemon.Begin(Specs({"cat /proc/self/cgroup; exec sleep 1000"})));
  const int64_t pid = daemon.Next<ProcessStarted>().pid;
  const std::string groups =
      ReadProcFile(absl::StrCat("/proc/", pid, "/cgroup"));
  EXPECT_THAT(groups,
              HasSubstr(absl::StrCat("/", keeper::CgroupName(Place()), "/",
                                     keeper::CgroupName(Key()), "\n")));
  const std::string group =
      absl::StrCat(*parent, "/", keeper::CgroupName(Place()));
  daemon.Kill();
  daemon.End();
  EXPECT_NE(access((group + "/" + keeper::CgroupName(Key())).c_str(), F_OK), 0);
  COHORT_EXPECT_OK(daemon.Close());
  EXPECT_NE(access(group.c_str(), F_OK), 0);
}

TEST_F(KeeperClientTest, DoesWithoutACgroupAndSaysSo) {
  Daemon daemon(dir_.path(), {.cgroup_parent = dir_.path()});
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exit 0"})));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  EXPECT_THAT(ReadKeeperLog(KeeperDir()),
              HasSubstr("is not a cgroup v2 directory"));
}

}  // namespace
}  // namespace cohort::worker
