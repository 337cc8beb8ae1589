// What is left when a daemon or a keeper died, and how a new daemon finds it.

#include <poll.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <variant>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "worker/attempt_dir.h"
#include "worker/delegated_cgroup.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_spawn.h"
#include "worker/log_reader.h"
#include "worker/process_identity.h"
#include "worker/testing/keeper_fixture.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Cause = ExitStatus::Cause;

using KeeperAdoptionTest = KeeperClientTest;

TEST_F(KeeperAdoptionTest, RanksGoOnAndWriteWithoutTheirDaemon) {
  const std::string gate = Fifo("gate");
  const std::string told = Fifo("told");
  // The daemon is a process of its own, killed without warning.
  const pid_t daemon_pid = fork();
  if (daemon_pid == 0) {
    Daemon daemon(dir_.path());
    const bool started =
        daemon
            .Start(Spec({absl::StrCat("echo before; read x < ", gate,
                                      "; echo after; echo > ", told,
                                      "; read x < ", gate, "; exit 5")}))
            .ok();
    daemon.Next<RankStarted>();
    if (started) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(daemon_pid, &status, 0), daemon_pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  OpenGate(gate);
  ReadFifo(told);  // it ran on while nobody was there
  Daemon daemon(dir_.path());
  EXPECT_THAT(AttemptsOnDisk(), ElementsAre(Attempt()));
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kRunning);
  daemon.Next<RankStarted>();
  OpenGate(gate);
  EXPECT_EQ(daemon.Next<RankExited>().status.exit_code, 5);
  daemon.Next<AllDone>();
  EXPECT_EQ(ReadLog(0, LogStream::kStdout), "before\nafter\n");
}

// A keeper writes where its directory is, not where it was.
TEST_F(KeeperAdoptionTest, ADirectoryThatWasRenamedHasTheWholeStory) {
  const std::string gate = Fifo("gate");
  const std::string state = dir_.File("state");
  KeeperSpec spec = Spec(
      {absl::StrCat("echo before; read x < ", gate, "; echo after; exit 5")});
  spec.log_dir = state + "/logs/job/1";
  {
    Daemon daemon(state);
    COHORT_ASSERT_OK(daemon.Start(spec));
    daemon.Next<RankStarted>();
  }
  const std::string moved = dir_.File("moved");
  std::filesystem::rename(state, moved);
  Daemon daemon(moved, COHORT_KEEPER_PROGRAM, false, moved + "/logs");
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  OpenGate(gate);
  EXPECT_EQ(daemon.RunOut().exit_code, 5);
  const LogReader logs(moved + "/logs/job/1", 0, LogStream::kStdout);
  const absl::StatusOr<LogChunk> all = logs.Read(0, 4096);
  COHORT_ASSERT_OK(all);
  EXPECT_EQ(all->bytes, "before\nafter\n");
  EXPECT_TRUE(all->eof);
  EXPECT_FALSE(std::filesystem::exists(state));
}

// Also where the daemon is the one that has to end the logs.
TEST_F(KeeperAdoptionTest, LogsOfALostKeeperAreSealedWhereTheyAreNow) {
  const std::string state = dir_.File("state");
  KeeperSpec spec = Spec({"echo before; exec sleep 1000"});
  spec.log_dir = state + "/logs/job/1";
  {
    Daemon daemon(state);
    COHORT_ASSERT_OK(daemon.Start(spec));
    daemon.Next<RankStarted>();
  }
  KillKeepers();
  const std::string moved = dir_.File("moved");
  std::filesystem::rename(state, moved);
  Daemon daemon(moved, COHORT_KEEPER_PROGRAM, false, moved + "/logs");
  COHORT_ASSERT_OK(daemon.Adopt());
  daemon.Next<RankStarted>();
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKeeperLost);
  daemon.Next<KeeperLost>();
  const LogReader logs(moved + "/logs/job/1", 0, LogStream::kStdout);
  const absl::StatusOr<LogChunk> all = logs.Read(0, 4096);
  COHORT_ASSERT_OK(all);
  EXPECT_TRUE(all->eof);
}

TEST_F(KeeperAdoptionTest, TheWholeStoryIsThereWhenAllEndedWithoutADaemon) {
  const std::string gate = Fifo("gate");
  pid_t keeper = 0;
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(
        daemon.Start(Spec({absl::StrCat("read x < ", gate, "; exit 5")})));
    daemon.Next<RankStarted>();
    keeper = KeeperPid();
  }
  const auto identity = IdentityOf(keeper);
  COHORT_ASSERT_OK(identity);
  OpenGate(gate);
  AwaitDeath(*identity);
  for (int restart = 0; restart < 2; ++restart) {
    Daemon daemon(dir_.path());
    const auto adopted = daemon.Adopt();
    COHORT_ASSERT_OK(adopted);
    EXPECT_EQ(adopted->phase, AttemptPhase::kDone);
    EXPECT_EQ(daemon.RunOut().exit_code, 5);
  }
}

TEST_F(KeeperAdoptionTest, KillingTheKeeperEndsItsRanksAtOnce) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Start(
      Spec({absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                         "; exec sleep 1000' &) ; echo hello; sleep 1000"),
            "exit 4"})));
  const int64_t daemonised = PidIn(ready);
  int64_t leader = 0;
  for (int i = 0; i < 3; ++i) {
    const KeeperEvent event = daemon.NextEvent();
    if (const auto* started = std::get_if<RankStarted>(&event)) {
      if (started->rank == 0) leader = started->pid;
    }
  }
  kill(KeeperPid(), SIGKILL);
  const RankExited exited = daemon.Next<RankExited>();
  EXPECT_EQ(exited.rank, 0);
  EXPECT_EQ(exited.status.cause, Cause::kKeeperLost);
  EXPECT_EQ(exited.status.signal, SIGKILL);
  EXPECT_THAT(daemon.Next<KeeperLost>().message, HasSubstr("keeper died"));
  EXPECT_TRUE(IsGone(leader));
  EXPECT_TRUE(IsGone(daemonised));
  // Sealed by the daemon: what the keeper had read by then is all there is.
  EXPECT_THAT(ReadLog(0, LogStream::kStdout), AnyOf("", "hello\n"));
  COHORT_EXPECT_OK(daemon.Remove());
}

TEST_F(KeeperAdoptionTest, KillingTheKeeperEndsWhatHidFromIt) {
  // In no cgroup, without session and marker: descent is all there is.
  absl::Cleanup restore = [] { prctl(PR_SET_CHILD_SUBREAPER, 0); };
  Daemon daemon(dir_.path(), COHORT_KEEPER_PROGRAM, /*takes_orphans=*/true);
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(
      daemon.Start(Spec({absl::StrCat("(env -i setsid sh -c 'echo $$ > ", ready,
                                      "; sleep 1000; :' &) ; sleep 1000")})));
  daemon.Next<RankStarted>();
  const auto hidden = static_cast<pid_t>(PidIn(ready));
  kill(KeeperPid(), SIGKILL);
  daemon.Next<RankExited>();
  EXPECT_THAT(daemon.Next<KeeperLost>().message, HasSubstr("keeper died"));
  EXPECT_FALSE(keeper::ReadProcessStat(hidden).has_value())
      << "lives on or was not reaped";
}

// As of `sidecar & exec cohort-worker`: it has children that it never had.
TEST_F(KeeperAdoptionTest, ALostKeeperDoesNotCostChildrenFromBefore) {
  absl::Cleanup restore = [] { prctl(PR_SET_CHILD_SUBREAPER, 0); };
  const pid_t sidecar = fork();
  if (sidecar == 0) {
    execl("/bin/sleep", "sleep", "1000", nullptr);
    _exit(1);
  }
  Daemon daemon(dir_.path(), COHORT_KEEPER_PROGRAM, /*takes_orphans=*/true);
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(
      daemon.Start(Spec({absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                                      "; sleep 1000; :' &) ; sleep 1000")})));
  daemon.Next<RankStarted>();
  const auto marked = static_cast<pid_t>(PidIn(ready));
  kill(KeeperPid(), SIGKILL);
  daemon.Next<RankExited>();
  daemon.Next<KeeperLost>();
  EXPECT_FALSE(keeper::ReadProcessStat(marked).has_value())
      << "lives on or was not reaped";
  kill(sidecar, SIGTERM);
  int status = 0;
  EXPECT_EQ(waitpid(sidecar, &status, 0), sidecar);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

class KeeperDamageTest : public KeeperAdoptionTest {
 protected:
  // As a daemon of this node has it.
  KeeperSpec NodeSpec(const std::string& script) {
    KeeperSpec spec = Spec({script});
    spec.runtime_dir = absl::StrCat(dir_.File("node"), "/", Attempt());
    return spec;
  }
  std::unique_ptr<Daemon> NewDaemon() {
    return std::make_unique<Daemon>(dir_.path(), COHORT_KEEPER_PROGRAM, false,
                                    "", dir_.File("node"));
  }
  void DamageSpec() { std::ofstream(AttemptFile("spec")) << "garbage"; }
};

// The damage is seen when the keeper is gone: by a daemon that has read the
// spec before, and by one that has not.
TEST_F(KeeperDamageTest, WhatALostKeeperLeavesIsFoundWithoutItsSpec) {
  for (const bool restarts : {false, true}) {
    const std::string ready = Fifo(restarts ? "ready again" : "ready");
    auto daemon = NewDaemon();
    COHORT_ASSERT_OK(daemon->Start(
        NodeSpec(absl::StrCat("(setsid sh -c 'echo $$ > \"", ready,
                              "\"; sleep 1000; :' &) ; sleep 1000"))));
    daemon->Next<RankStarted>();
    const int64_t marked = PidIn(ready);
    if (restarts) daemon.reset();
    DamageSpec();
    KillKeepers();
    if (restarts) {
      daemon = NewDaemon();
      const auto adopted = daemon->Adopt();
      COHORT_ASSERT_OK(adopted);
      EXPECT_EQ(adopted->phase, AttemptPhase::kSpecDamaged);
    } else {
      EXPECT_EQ(daemon->Next<RankExited>().status.cause, Cause::kKeeperLost);
      daemon->Next<KeeperLost>();
    }
    EXPECT_TRUE(IsGone(marked));
    COHORT_ASSERT_OK(daemon->Remove());
  }
}

// Without its mark: the records of the ranks tell their sessions.
TEST_F(KeeperDamageTest, SessionsAreKnownWithoutTheSpec) {
  const std::string ready = Fifo("ready");
  {
    auto daemon = NewDaemon();
    COHORT_ASSERT_OK(daemon->Start(NodeSpec(absl::StrCat(
        "env -i sleep 1000 & echo $! > ", ready, "; sleep 1000"))));
    daemon->Next<RankStarted>();
  }
  const int64_t child = PidIn(ready);
  DamageSpec();
  KillKeepers();
  auto daemon = NewDaemon();
  COHORT_ASSERT_OK(daemon->Adopt());
  AwaitDeath(child);
}

TEST_F(KeeperDamageTest, ALockOnAReadOnlyDiskIsALock) {
  ASSERT_TRUE(std::filesystem::create_directories(dir_.File("attempts")));
  const auto made = MakeAttemptDir(AttemptDir(), Spec({"exit 0"}));
  COHORT_ASSERT_OK(made);
  const std::string seen = dir_.File("seen");
  ASSERT_TRUE(std::filesystem::create_directories(seen));
  if (mount(AttemptDir().c_str(), seen.c_str(), "", MS_BIND, "") != 0) {
    GTEST_SKIP() << "may not mount";
  }
  const bool read_only =
      mount("", seen.c_str(), "", MS_BIND | MS_REMOUNT | MS_RDONLY, "") == 0;
  const absl::StatusOr<AttemptSurvey> survey = SurveyAttempt(seen);
  EXPECT_EQ(umount2(seen.c_str(), MNT_DETACH), 0);
  EXPECT_TRUE(read_only);
  COHORT_ASSERT_OK(survey);
  EXPECT_TRUE(survey->locked);
}

// Told as lost, it begins again elsewhere: nothing of it may go on here.
TEST_F(KeeperDamageTest, WhatCannotBeAdoptedIsEnded) {
  int64_t rank = 0;
  {
    auto daemon = NewDaemon();
    COHORT_ASSERT_OK(daemon->Start(NodeSpec("exec sleep 1000")));
    rank = daemon->Next<RankStarted>().pid;
  }
  // No error of a disk is to be had here; what cannot be opened is the same.
  std::filesystem::remove(AttemptFile("lock"));
  std::filesystem::create_symlink("lock", AttemptFile("lock"));
  auto daemon = NewDaemon();
  EXPECT_THAT(daemon->Remove(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(std::filesystem::exists(AttemptFile("spec")));
  EXPECT_FALSE(IsGone(rank));
  EXPECT_THAT(daemon->Adopt(), StatusIs(absl::StatusCode::kUnavailable,
                                        HasSubstr(AttemptFile("lock"))));
  EXPECT_TRUE(IsGone(rank));
  EXPECT_THAT(Keepers(), IsEmpty());
}

TEST_F(KeeperAdoptionTest, LeftoversOfADeadKeeperAreFoundByARestartedDaemon) {
  const std::string ready = Fifo("ready");
  {
    Daemon daemon(dir_.path());
    // Without its marker: the session tells whose it is.
    COHORT_ASSERT_OK(daemon.Start(Spec({absl::StrCat(
        "env -i sleep 1000 & echo $! > ", ready, "; sleep 1000")})));
    daemon.Next<RankStarted>();
  }
  const int64_t child = PidIn(ready);
  const auto keeper = IdentityOf(KeeperPid());
  COHORT_ASSERT_OK(keeper);
  kill(static_cast<pid_t>(keeper->pid), SIGKILL);
  AwaitDeath(*keeper);
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kKeeperLost);
  daemon.Next<RankStarted>();
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKeeperLost);
  daemon.Next<KeeperLost>();
  AwaitDeath(child);
}

TEST_F(KeeperAdoptionTest, OfAKeeperThatDiedJustAfterDoneNoCgroupIsLeft) {
  const absl::StatusOr<std::string> parent = DelegatedCgroup();
  if (!parent.ok()) GTEST_SKIP() << parent.status();
  {
    Daemon daemon(dir_.path());
    KeeperSpec spec = Spec({"exit 0"});
    spec.cgroup_parent = *parent;
    COHORT_ASSERT_OK(daemon.Start(spec));
    EXPECT_EQ(daemon.RunOut().exit_code, 0);
  }
  // As it would have left them.
  const std::string group =
      absl::StrCat(*parent, "/", keeper::CgroupName(Spec({"exit 0"})));
  ASSERT_TRUE(std::filesystem::create_directories(group + "/rank-0"));
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(group));
}

// ---- an attempt whose directory takes or says nothing any more ----

TEST_F(KeeperAdoptionTest, ADirectoryThatIsRemovedKeepsNoEndBack) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(
      daemon.Start(Spec({absl::StrCat("read x < ", gate, "; exit 5")})));
  // It writes into the directory until then.
  daemon.Next<RankStarted>();
  const pid_t keeper = KeeperPid();
  std::filesystem::remove_all(AttemptDir());
  OpenGate(gate);
  EXPECT_EQ(daemon.Next<RankExited>().status.exit_code, 5);
  daemon.Next<AllDone>();
  AwaitDeath(keeper);
}

TEST_F(KeeperAdoptionTest, WhatHasNoDirectoryAnyMoreCanBeStopped) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"exec sleep 1000"})));
  daemon.Next<RankStarted>();
  std::filesystem::remove_all(AttemptDir());
  daemon.client().Stop(Attempt(), absl::Hours(1));
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kStopped);
  daemon.Next<AllDone>();
}

TEST_F(KeeperAdoptionTest, AKeeperThatCanRecordNothingWaitsForSomebodyToTell) {
  const std::string gate = Fifo("gate");
  int64_t rank = 0;
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(
        daemon.Start(Spec({absl::StrCat("read x < ", gate, "; exit 5")})));
    rank = daemon.Next<RankStarted>().pid;
  }
  const pid_t keeper = KeeperPid();
  // A copy of hard links in its place, which the keeper does not write to.
  const std::string attempts = dir_.File("attempts");
  const std::string copy = dir_.File("copy");
  std::filesystem::copy(attempts, copy,
                        std::filesystem::copy_options::recursive |
                            std::filesystem::copy_options::create_hard_links);
  std::filesystem::remove_all(attempts);
  std::filesystem::rename(copy, attempts);
  OpenGate(gate);
  AwaitDeath(rank);
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  EXPECT_EQ(daemon.RunOut().exit_code, 5);
  AwaitDeath(keeper);
}

TEST_F(KeeperAdoptionTest, WithoutADirectoryADeadKeeperIsLost) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  // The one in the rank's session tells that it is known, too.
  COHORT_ASSERT_OK(daemon.Start(
      Spec({absl::StrCat("env -i sleep 1000 & echo $! > ", ready, "; wait"),
            "exit 4"})));
  const int64_t child = PidIn(ready);
  for (int i = 0; i < 3; ++i) daemon.NextEvent();  // two began, one ended
  std::filesystem::remove_all(AttemptDir());
  kill(KeeperPid(), SIGKILL);
  const RankExited exited = daemon.Next<RankExited>();
  EXPECT_EQ(exited.rank, 0);
  EXPECT_EQ(exited.status.cause, Cause::kKeeperLost);
  EXPECT_THAT(daemon.Next<KeeperLost>().message,
              AllOf(HasSubstr("keeper died"), HasSubstr(AttemptDir())));
  EXPECT_TRUE(IsGone(child));
}

TEST_F(KeeperAdoptionTest, ADirectoryThatCannotBeReadIsNotWaitedForForever) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"exec sleep 1000"})));
  daemon.Next<RankStarted>();
  const std::string lock = AttemptFile("lock");
  std::filesystem::remove(lock);
  std::filesystem::create_symlink(lock, lock);
  KillKeepers();
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKeeperLost);
  EXPECT_THAT(daemon.Next<KeeperLost>().message, HasSubstr(lock));
}

TEST_F(KeeperAdoptionTest, ADirectoryThatLostItsSpecIsAsOneThatIsGone) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"exec sleep 1000"})));
  daemon.Next<RankStarted>();
  std::ofstream(AttemptFile("spec")) << "garbage";
  KillKeepers();
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKeeperLost);
  EXPECT_THAT(daemon.Next<KeeperLost>().message, HasSubstr("spec"));
}

// The keeper is this test: none dies just between its words.
TEST_F(KeeperAdoptionTest, OfADeadKeeperTheExitsThatItToldCount) {
  ASSERT_TRUE(std::filesystem::create_directories(dir_.File("attempts")));
  const KeeperSpec spec = Spec({"exit 5"});
  auto made = MakeAttemptDir(AttemptDir(), spec);
  COHORT_ASSERT_OK(made);
  const auto listener = ListenForKeeper(spec.runtime_dir);
  COHORT_ASSERT_OK(listener);
  std::string words[] = {"sleep", "1000"};
  char* argv[] = {words[0].data(), words[1].data(), nullptr};
  char* environment[] = {nullptr};
  pid_t pid = 0;
  ASSERT_EQ(
      posix_spawn(&pid, "/bin/sleep", nullptr, nullptr, argv, environment), 0);
  const absl::Cleanup end = [pid] {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  };
  const auto identity = IdentityOf(pid);
  COHORT_ASSERT_OK(identity);
  keeper::KeeperReport hello;
  hello.attempt = Attempt();
  hello.pid = pid;
  hello.start_time = static_cast<int64_t>(identity->start_time);
  hello.boot_id = identity->boot_id;
  std::ofstream(AttemptFile("keeper")) << keeper::Encode(hello);
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  // It connects on a thread of its own.
  pollfd comes = {.fd = listener->get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&comes, 1, 20'000), 1);
  const keeper::UniqueFd connection(
      accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(connection);
  keeper::ExitReport exit;
  exit.exit_code = 5;
  for (const std::string& packet :
       {keeper::Encode(hello), keeper::Encode(exit)}) {
    ASSERT_EQ(send(connection.get(), packet.data(), packet.size(), 0),
              static_cast<ssize_t>(packet.size()));
  }
  EXPECT_EQ(daemon.Next<RankExited>().status.exit_code, 5);
  std::filesystem::remove_all(AttemptDir());
  kill(pid, SIGKILL);
  daemon.Next<AllDone>();
}

// Every state in which a daemon can have died, one a test (the table of
// docs/design/0002-keeper.md).

TEST_F(KeeperAdoptionTest, AdoptsADirectoryWithoutASpec) {
  ASSERT_TRUE(std::filesystem::create_directories(AttemptDir()));
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kNoSpec);
  COHORT_EXPECT_OK(daemon.Remove());
}

TEST_F(KeeperAdoptionTest, AdoptsADamagedSpec) {
  ASSERT_TRUE(std::filesystem::create_directories(AttemptDir()));
  std::ofstream(AttemptFile("spec"))
      << keeper::EncodeSpec(Spec({"exit 0"})) << "more";
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kSpecDamaged);
  EXPECT_THAT(adopted->message,
              AllOf(HasSubstr(AttemptFile("spec")), HasSubstr("checksum")));
}

TEST_F(KeeperAdoptionTest, LeavesAKeeperAloneWhoseSpecWasDamagedUnderIt) {
  ASSERT_TRUE(std::filesystem::create_directories(dir_.File("attempts")));
  // Holds the lock as a keeper does.
  const auto made = MakeAttemptDir(AttemptDir(), Spec({"exit 0"}));
  COHORT_ASSERT_OK(made);
  std::ofstream(AttemptFile("spec")) << "garbage";
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kSpecDamaged);
  EXPECT_THAT(adopted->message, HasSubstr("still runs"));
  EXPECT_THAT(daemon.Remove(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(KeeperAdoptionTest, AdoptsASpecThatNoKeeperTook) {
  ASSERT_TRUE(std::filesystem::create_directories(dir_.File("attempts")));
  {
    // As Start does it, up to just before the spawn.
    const auto made = MakeAttemptDir(AttemptDir(), Spec({"exit 0"}));
    COHORT_ASSERT_OK(made);
  }
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kNotStarted);
  COHORT_EXPECT_OK(daemon.Remove());
}

TEST_F(KeeperAdoptionTest, AdoptsAKeeperThatIsBeingBorn) {
  ASSERT_TRUE(std::filesystem::create_directories(dir_.File("attempts")));
  // Holds the lock as a keeper does between exec and its first file, then dies.
  auto made = MakeAttemptDir(AttemptDir(), Spec({"exit 0"}));
  COHORT_ASSERT_OK(made);
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kRunning);
  made->lock.Reset();
  EXPECT_EQ(daemon.Next<RankExited>().status.cause, Cause::kKeeperLost);
  daemon.Next<KeeperLost>();
}

TEST_F(KeeperAdoptionTest, AdoptsWhatAnotherBootOfTheMachineLeft) {
  ASSERT_TRUE(std::filesystem::create_directories(dir_.File("attempts")));
  {
    COHORT_ASSERT_OK(MakeAttemptDir(AttemptDir(), Spec({"exit 0", "exit 0"})));
  }
  keeper::KeeperReport keeper;
  keeper.attempt = Attempt();
  keeper.pid = getpid();  // a living process that is not the keeper
  keeper.boot_id = "another boot";
  std::ofstream(AttemptFile("keeper")) << keeper::Encode(keeper);
  keeper::StartedReport started = {0, getpid(), 1};
  std::ofstream(AttemptFile("rank-0.started")) << keeper::Encode(started);
  keeper::ExitReport exit;
  exit.rank = 0;
  exit.exit_code = 9;
  std::ofstream(AttemptFile("rank-0.exit")) << keeper::Encode(exit);
  std::ofstream(AttemptFile("rank-1.exit")) << "";  // lost with the power
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kKeeperLost);
  EXPECT_THAT(adopted->message, HasSubstr("machine restarted"));
  daemon.Next<RankStarted>();
  const RankExited first = daemon.Next<RankExited>();
  EXPECT_EQ(first.status.exit_code, 9);
  EXPECT_EQ(first.status.cause, Cause::kItself);
  const RankExited second = daemon.Next<RankExited>();
  EXPECT_EQ(second.rank, 1);
  EXPECT_EQ(second.status.cause, Cause::kKeeperLost);
  daemon.Next<KeeperLost>();
}

TEST_F(KeeperAdoptionTest, AdoptRefusesNamesThatAreNoAttempts) {
  Daemon daemon(dir_.path());
  EXPECT_THAT(daemon.Adopt("../attempts"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(daemon.Adopt("ffff"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::worker
