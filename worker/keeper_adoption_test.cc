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
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "worker/delegated_cgroup.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_dir.h"
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
using Cause = ExitCause;

class KeeperAdoptionTest : public KeeperClientTest {
 protected:
  // A keeper's directory with processes that are to begin, as it is just before
  // the keeper is started; the test holds its lock.
  absl::StatusOr<LockedKeeperDir> MakeLockedDir(
      const std::vector<std::string>& scripts) {
    for (const ProcessSpec& spec : Specs(scripts)) {
      COHORT_EXPECT_OK(WriteSpec(KeeperDir(), spec));
    }
    return LockKeeperDir(KeeperDir());
  }
};

TEST_F(KeeperAdoptionTest, RanksGoOnAndWriteWithoutTheirDaemon) {
  const std::string gate = Fifo("gate");
  const std::string told = Fifo("told");
  // The daemon is a process of its own, killed without warning.
  const pid_t daemon_pid = fork();
  if (daemon_pid == 0) {
    Daemon daemon(dir_.path());
    const bool started =
        daemon
            .Begin(Specs({absl::StrCat("echo before; read x < ", gate,
                                       "; echo after; echo > ", told,
                                       "; read x < ", gate, "; exit 5")}))
            .ok();
    daemon.Next<ProcessStarted>();
    if (started) kill(getpid(), SIGKILL);
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(daemon_pid, &status, 0), daemon_pid);
  ASSERT_TRUE(WIFSIGNALED(status));
  OpenGate(gate);
  ReadFifo(told);  // it ran on while nobody was there
  Daemon daemon(dir_.path());
  EXPECT_THAT(KeepersOnDisk(), ElementsAre(KeeperId()));
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_THAT(adopted->known, ElementsAre(Key()));
  EXPECT_EQ(adopted->message, "");
  daemon.Next<ProcessStarted>();
  OpenGate(gate);
  EXPECT_EQ(daemon.End().exit_code, 5);
  EXPECT_EQ(ReadLog(0, v1::LOG_STREAM_STDOUT), "before\nafter\n");
}

// A keeper writes where its directory is, not where it was.
TEST_F(KeeperAdoptionTest, ADirectoryThatWasRenamedHasTheWholeStory) {
  const std::string gate = Fifo("gate");
  const std::string state = dir_.File("state");
  std::vector<ProcessSpec> specs = Specs(
      {absl::StrCat("echo before; read x < ", gate, "; echo after; exit 5")});
  specs[0].log_dir = state + "/logs/job/1";
  {
    Daemon daemon(state, {.runtime_dir = dir_.File("run")});
    COHORT_ASSERT_OK(daemon.Begin(specs));
    daemon.Next<ProcessStarted>();
  }
  const std::string moved = dir_.File("moved");
  std::filesystem::rename(state, moved);
  Daemon daemon(moved,
                {.logs_dir = moved + "/logs", .runtime_dir = dir_.File("run")});
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  OpenGate(gate);
  EXPECT_EQ(daemon.RunOut().exit_code, 5);
  const LogReader logs(moved + "/logs/job/1", 0, 1, v1::LOG_STREAM_STDOUT);
  const absl::StatusOr<LogChunk> all = logs.Read(0, 4096);
  COHORT_ASSERT_OK(all);
  EXPECT_EQ(all->bytes, "before\nafter\n");
  EXPECT_TRUE(all->eof);
  EXPECT_FALSE(std::filesystem::exists(state));
}

// Also where the daemon is the one that has to end the logs.
TEST_F(KeeperAdoptionTest, LogsOfALostKeeperAreSealedWhereTheyAreNow) {
  const std::string state = dir_.File("state");
  std::vector<ProcessSpec> specs = Specs({"echo before; exec sleep 1000"});
  specs[0].log_dir = state + "/logs/job/1";
  {
    Daemon daemon(state, {.runtime_dir = dir_.File("run")});
    COHORT_ASSERT_OK(daemon.Begin(specs));
    daemon.Next<ProcessStarted>();
  }
  KillKeepers();
  const std::string moved = dir_.File("moved");
  std::filesystem::rename(state, moved);
  Daemon daemon(moved,
                {.logs_dir = moved + "/logs", .runtime_dir = dir_.File("run")});
  COHORT_ASSERT_OK(daemon.Adopt());
  daemon.Next<ProcessStarted>();
  EXPECT_EQ(daemon.End().cause, Cause::kKeeperLost);
  const LogReader logs(moved + "/logs/job/1", 0, 1, v1::LOG_STREAM_STDOUT);
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
        daemon.Begin(Specs({absl::StrCat("read x < ", gate, "; exit 5")})));
    daemon.Next<ProcessStarted>();
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
    EXPECT_EQ(adopted->message, "");
    EXPECT_EQ(daemon.RunOut().exit_code, 5);
  }
}

TEST_F(KeeperAdoptionTest, KillingTheKeeperEndsItsRanksAtOnce) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Begin(
      Specs({absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                          "; exec sleep 1000' &) ; echo hello; sleep 1000"),
             "exit 4"})));
  const int64_t daemonised = PidIn(ready);
  int64_t leader = 0;
  for (int i = 0; i < 4; ++i) {  // two began, one ended
    const KeeperEvent event = daemon.NextEvent();
    if (const auto* started = std::get_if<ProcessStarted>(&event)) {
      if (started->process.slot == 0) leader = started->pid;
    }
  }
  kill(KeeperPid(), SIGKILL);
  const ProcessExited exited = daemon.Next<ProcessExited>();
  EXPECT_EQ(exited.process, Key(0));
  EXPECT_EQ(exited.cause, Cause::kKeeperLost);
  EXPECT_EQ(exited.signal, SIGKILL);
  EXPECT_THAT(exited.message, HasSubstr("keeper died"));
  daemon.Next<ProcessEnded>();
  EXPECT_TRUE(IsGone(leader));
  EXPECT_TRUE(IsGone(daemonised));
  // Sealed by the daemon: what the keeper had read by then is all there is.
  EXPECT_THAT(ReadLog(0, v1::LOG_STREAM_STDOUT), AnyOf("", "hello\n"));
  COHORT_EXPECT_OK(daemon.Close());
}

TEST_F(KeeperAdoptionTest, KillingTheKeeperEndsWhatHidFromIt) {
  // In no cgroup, without session and marker: descent is all there is.
  absl::Cleanup restore = [] { prctl(PR_SET_CHILD_SUBREAPER, 0); };
  Daemon daemon(dir_.path(), {.takes_orphans = true});
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Begin(
      Specs({absl::StrCat("(env -i setsid sh -c 'echo $$ > ", ready,
                          "; sleep 1000; :' &) ; sleep 1000")})));
  daemon.Next<ProcessStarted>();
  const auto hidden = static_cast<pid_t>(PidIn(ready));
  kill(KeeperPid(), SIGKILL);
  EXPECT_THAT(daemon.End().message, HasSubstr("keeper died"));
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
  Daemon daemon(dir_.path(), {.takes_orphans = true});
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(
      daemon.Begin(Specs({absl::StrCat("(setsid sh -c 'echo $$ > ", ready,
                                       "; sleep 1000; :' &) ; sleep 1000")})));
  daemon.Next<ProcessStarted>();
  const auto marked = static_cast<pid_t>(PidIn(ready));
  kill(KeeperPid(), SIGKILL);
  daemon.End();
  EXPECT_FALSE(keeper::ReadProcessStat(marked).has_value())
      << "lives on or was not reaped";
  kill(sidecar, SIGTERM);
  int status = 0;
  EXPECT_EQ(waitpid(sidecar, &status, 0), sidecar);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

class KeeperDamageTest : public KeeperAdoptionTest {
 protected:
  void DamageSpec() {
    std::ofstream(KeeperFile(keeper::SpecFile(Key()))) << "garbage";
  }
};

// By a daemon that has begun it, and by one that has not.
TEST_F(KeeperDamageTest, WhatALostKeeperLeavesIsFoundWithoutItsSpec) {
  for (const bool restarts : {false, true}) {
    const std::string ready = Fifo(restarts ? "ready again" : "ready");
    auto daemon = std::make_unique<Daemon>(dir_.path());
    COHORT_ASSERT_OK(daemon->Begin(
        Specs({absl::StrCat("(setsid sh -c 'echo $$ > \"", ready,
                            "\"; sleep 1000; :' &) ; sleep 1000")})));
    daemon->Next<ProcessStarted>();
    const int64_t marked = PidIn(ready);
    if (restarts) daemon.reset();
    DamageSpec();
    KillKeepers();
    if (restarts) {
      daemon = std::make_unique<Daemon>(dir_.path());
      const auto adopted = daemon->Adopt();
      COHORT_ASSERT_OK(adopted);
      EXPECT_THAT(adopted->known, ElementsAre(Key()));
      daemon->Next<ProcessStarted>();
    }
    EXPECT_EQ(daemon->End().cause, Cause::kKeeperLost);
    EXPECT_TRUE(IsGone(marked));
    COHORT_ASSERT_OK(daemon->Close());
  }
}

// Its files' names say what runs; the keeper has read the rest.
TEST_F(KeeperDamageTest, AProcessWhoseSpecWasDamagedRunsOn) {
  const std::string gate = Fifo("gate");
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(
        daemon.Begin(Specs({absl::StrCat("read x < ", gate, "; exit 5")})));
    daemon.Next<ProcessStarted>();
  }
  DamageSpec();
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  daemon.Next<ProcessStarted>();
  OpenGate(gate);
  EXPECT_EQ(daemon.End().exit_code, 5);
}

// Not adopted, it is told as lost and may begin again elsewhere (PR-1).
TEST_F(KeeperDamageTest, AProcessWithoutFilesIsEnded) {
  const std::string gate = Fifo("gate");
  int64_t pid = 0;
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(
        daemon.Begin(Specs({absl::StrCat("read x < ", gate), "sleep 1000"})));
    for (int i = 0; i < 2; ++i) {
      const ProcessStarted started = daemon.Next<ProcessStarted>();
      if (started.process == Key(1)) pid = started.pid;
    }
  }
  COHORT_ASSERT_OK(RemoveRecords(KeeperDir(), Key(1)));
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_THAT(adopted->known, ElementsAre(Key(0)));
  AwaitDeath(pid);
  daemon.Next<ProcessStarted>();
  OpenGate(gate);
  EXPECT_EQ(daemon.End().cause, Cause::kItself);
  COHORT_EXPECT_OK(daemon.Close());
}

// Without its mark: the records of the processes tell their sessions.
TEST_F(KeeperDamageTest, SessionsAreKnownWithoutTheSpec) {
  const std::string ready = Fifo("ready");
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat(
        "env -i sleep 1000 & echo $! > ", ready, "; sleep 1000")})));
    daemon.Next<ProcessStarted>();
  }
  const int64_t child = PidIn(ready);
  DamageSpec();
  KillKeepers();
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  AwaitDeath(child);
}

TEST_F(KeeperDamageTest, ALockOnAReadOnlyDiskIsALock) {
  const auto locked = MakeLockedDir({"exit 0"});
  COHORT_ASSERT_OK(locked);
  const std::string seen = dir_.File("seen");
  ASSERT_TRUE(std::filesystem::create_directories(seen));
  if (mount(KeeperDir().c_str(), seen.c_str(), "", MS_BIND, "") != 0) {
    GTEST_SKIP() << "may not mount";
  }
  const bool read_only =
      mount("", seen.c_str(), "", MS_BIND | MS_REMOUNT | MS_RDONLY, "") == 0;
  const absl::StatusOr<KeeperSurvey> survey = SurveyKeeper(seen);
  EXPECT_EQ(umount2(seen.c_str(), MNT_DETACH), 0);
  EXPECT_TRUE(read_only);
  COHORT_ASSERT_OK(survey);
  EXPECT_TRUE(survey->locked);
}

// Told as lost, it begins again elsewhere: nothing of it may go on here.
TEST_F(KeeperDamageTest, WhatCannotBeAdoptedIsEnded) {
  int64_t pid = 0;
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(daemon.Begin(Specs({"exec sleep 1000"})));
    pid = daemon.Next<ProcessStarted>().pid;
  }
  // No error of a disk is to be had here; what cannot be opened is the same.
  std::filesystem::remove(KeeperFile("lock"));
  std::filesystem::create_symlink("lock", KeeperFile("lock"));
  Daemon daemon(dir_.path());
  EXPECT_THAT(daemon.Close(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(std::filesystem::exists(KeeperFile(keeper::SpecFile(Key()))));
  EXPECT_FALSE(IsGone(pid));
  EXPECT_THAT(daemon.Adopt(), StatusIs(absl::StatusCode::kUnavailable,
                                       HasSubstr(KeeperFile("lock"))));
  EXPECT_TRUE(IsGone(pid));
  EXPECT_THAT(Keepers(), IsEmpty());
}

TEST_F(KeeperAdoptionTest, LeftoversOfADeadKeeperAreFoundByARestartedDaemon) {
  const std::string ready = Fifo("ready");
  {
    Daemon daemon(dir_.path());
    // Without its marker: the session tells whose it is.
    COHORT_ASSERT_OK(daemon.Begin(Specs({absl::StrCat(
        "env -i sleep 1000 & echo $! > ", ready, "; sleep 1000")})));
    daemon.Next<ProcessStarted>();
  }
  const int64_t child = PidIn(ready);
  const auto keeper = IdentityOf(KeeperPid());
  COHORT_ASSERT_OK(keeper);
  kill(static_cast<pid_t>(keeper->pid), SIGKILL);
  AwaitDeath(*keeper);
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_THAT(adopted->message, HasSubstr("keeper died"));
  daemon.Next<ProcessStarted>();
  EXPECT_EQ(daemon.End().cause, Cause::kKeeperLost);
  AwaitDeath(child);
}

TEST_F(KeeperAdoptionTest, OfAKeeperThatDiedJustAfterItsEndNoCgroupIsLeft) {
  const absl::StatusOr<std::string> parent = DelegatedCgroup();
  if (!parent.ok()) GTEST_SKIP() << parent.status();
  {
    Daemon daemon(dir_.path(), {.cgroup_parent = *parent,
                                .keeper_idle_timeout = absl::Hours(1)});
    COHORT_ASSERT_OK(daemon.Begin(Specs({"exit 0"})));
    EXPECT_EQ(daemon.RunOut().exit_code, 0);
  }
  KillKeepers();
  const std::string group =
      absl::StrCat(*parent, "/", keeper::CgroupName(Place()));
  ASSERT_TRUE(std::filesystem::exists(group));
  std::filesystem::create_directories(group + "/below");
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  COHORT_EXPECT_OK(daemon.Close());
  EXPECT_FALSE(std::filesystem::exists(group));
}

// ---- a keeper whose directory takes or says nothing any more ----

TEST_F(KeeperAdoptionTest, ADirectoryThatIsRemovedKeepsNoEndBack) {
  Daemon daemon(dir_.path());
  const std::string gate = Fifo("gate");
  COHORT_ASSERT_OK(
      daemon.Begin(Specs({absl::StrCat("read x < ", gate, "; exit 5")})));
  // It writes into the directory until then.
  daemon.Next<ProcessStarted>();
  const pid_t keeper = KeeperPid();
  std::filesystem::remove_all(KeeperDir());
  OpenGate(gate);
  EXPECT_EQ(daemon.End().exit_code, 5);
  COHORT_EXPECT_OK(daemon.Close());
  EXPECT_TRUE(IsGone(keeper));
}

TEST_F(KeeperAdoptionTest, WhatHasNoDirectoryAnyMoreCanBeStopped) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exec sleep 1000"})));
  daemon.Next<ProcessStarted>();
  std::filesystem::remove_all(KeeperDir());
  daemon.Stop(absl::Hours(1));
  EXPECT_EQ(daemon.End().cause, Cause::kStopped);
}

TEST_F(KeeperAdoptionTest, AKeeperThatCanRecordNothingWaitsForSomebodyToTell) {
  const std::string gate = Fifo("gate");
  int64_t pid = 0;
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(
        daemon.Begin(Specs({absl::StrCat("read x < ", gate, "; exit 5")})));
    pid = daemon.Next<ProcessStarted>().pid;
  }
  const pid_t keeper = KeeperPid();
  // A copy of hard links in its place, which the keeper does not write to.
  const std::string keepers = dir_.File("keepers");
  const std::string copy = dir_.File("copy");
  std::filesystem::copy(keepers, copy,
                        std::filesystem::copy_options::recursive |
                            std::filesystem::copy_options::create_hard_links);
  std::filesystem::remove_all(keepers);
  std::filesystem::rename(copy, keepers);
  OpenGate(gate);
  AwaitDeath(pid);
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  EXPECT_EQ(daemon.RunOut().exit_code, 5);
  COHORT_EXPECT_OK(daemon.Close());
  EXPECT_TRUE(IsGone(keeper));
}

TEST_F(KeeperAdoptionTest, WithoutADirectoryADeadKeeperIsLost) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  // The one in the rank's session tells that it is known, too.
  COHORT_ASSERT_OK(daemon.Begin(
      Specs({absl::StrCat("env -i sleep 1000 & echo $! > ", ready, "; wait"),
             "exit 4"})));
  const int64_t child = PidIn(ready);
  for (int i = 0; i < 4; ++i) daemon.NextEvent();  // two began, one ended
  std::filesystem::remove_all(KeeperDir());
  kill(KeeperPid(), SIGKILL);
  const ProcessExited exited = daemon.Next<ProcessExited>();
  EXPECT_EQ(exited.process, Key(0));
  EXPECT_EQ(exited.cause, Cause::kKeeperLost);
  EXPECT_THAT(exited.message,
              AllOf(HasSubstr("keeper died"), HasSubstr(KeeperDir())));
  daemon.Next<ProcessEnded>();
  EXPECT_TRUE(IsGone(child));
}

TEST_F(KeeperAdoptionTest, ADirectoryThatCannotBeReadIsNotWaitedForForever) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Begin(Specs({"exec sleep 1000"})));
  daemon.Next<ProcessStarted>();
  const std::string lock = KeeperFile("lock");
  std::filesystem::remove(lock);
  std::filesystem::create_symlink(lock, lock);
  KillKeepers();
  const ExitReport status = daemon.End();
  EXPECT_EQ(status.cause, Cause::kKeeperLost);
  EXPECT_THAT(status.message, HasSubstr(lock));
}

// The keeper is this test: none dies just between its words.
TEST_F(KeeperAdoptionTest, OfADeadKeeperTheExitsThatItToldCount) {
  const auto locked = MakeLockedDir({"exit 5"});
  COHORT_ASSERT_OK(locked);
  const auto listener = ListenForKeeper(Place());
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
  hello.pid = pid;
  hello.start_time = static_cast<int64_t>(identity->start_time);
  hello.boot_id = identity->boot_id;
  std::ofstream(KeeperFile("keeper")) << keeper::Encode(hello);
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  // It connects on a thread of its own.
  pollfd comes = {.fd = listener->get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&comes, 1, 20'000), 1);
  const keeper::UniqueFd connection(
      accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(connection);
  keeper::ExitReport exit;
  exit.process = Key();
  exit.exit_code = 5;
  for (const std::string& packet :
       {keeper::Encode(hello), keeper::Encode(exit)}) {
    ASSERT_EQ(send(connection.get(), packet.data(), packet.size(), 0),
              static_cast<ssize_t>(packet.size()));
  }
  EXPECT_EQ(daemon.Next<ProcessExited>().exit_code, 5);
  std::filesystem::remove_all(KeeperDir());
  kill(pid, SIGKILL);
  daemon.Next<ProcessEnded>();
}

// Every state in which a daemon can have died, one a test (the table of
// docs/design/0002-keeper.md).

TEST_F(KeeperAdoptionTest, AdoptsADirectoryWithoutASpec) {
  ASSERT_TRUE(std::filesystem::create_directories(KeeperDir()));
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_THAT(adopted->known, IsEmpty());
  COHORT_EXPECT_OK(daemon.Close());
  EXPECT_THAT(KeepersOnDisk(), IsEmpty());
}

TEST_F(KeeperAdoptionTest, AdoptsSpecsThatNoKeeperTook) {
  // As Begin does it, up to just before the keeper is started.
  COHORT_ASSERT_OK(MakeLockedDir({"exit 0", "exit 0"}));
  std::ofstream(KeeperFile(keeper::SpecFile(Key(1)))) << "damaged";
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_THAT(adopted->known, ElementsAre(Key(0), Key(1)));
  // PR-2: they are lost; nobody begins them now.
  for (const auto& [slot, status] : daemon.Ends(2)) {
    EXPECT_EQ(status.cause, Cause::kKeeperLost) << slot;
  }
  COHORT_EXPECT_OK(daemon.Close());
}

TEST_F(KeeperAdoptionTest, AdoptsAKeeperThatIsBeingStarted) {
  // Holds the lock as a keeper does between exec and its first file, then dies.
  auto locked = MakeLockedDir({"exit 0"});
  COHORT_ASSERT_OK(locked);
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->message, "");
  locked->lock.Reset();
  EXPECT_EQ(daemon.End().cause, Cause::kKeeperLost);
}

// PR-2: the daemon died between the spec and the answer.
TEST_F(KeeperAdoptionTest, BeginsAgainWhatALivingKeeperMayNotHaveTaken) {
  const std::string gate = Fifo("gate");
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(
        daemon.Begin(Specs({absl::StrCat("read x < ", gate, "; echo once")})));
    daemon.Next<ProcessStarted>();
  }
  std::vector<ProcessSpec> specs = Specs({"", "echo later; exit 3", "exit 4"});
  COHORT_ASSERT_OK(WriteSpec(KeeperDir(), specs[1]));
  // As if it was not recorded yet that the first has started.
  std::filesystem::remove(KeeperFile(keeper::StartedFile(Key())));
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_THAT(adopted->known, ElementsAre(Key(0), Key(1)));
  int started = 0;
  EXPECT_EQ(daemon.Ends(1, &started)[1].exit_code, 3);
  EXPECT_EQ(started, 2);
  OpenGate(gate);
  EXPECT_EQ(daemon.End().exit_code, 0);
  EXPECT_EQ(ReadLog(0, v1::LOG_STREAM_STDOUT), "once\n");
  EXPECT_EQ(ReadLog(1, v1::LOG_STREAM_STDOUT), "later\n");
  // And by the daemon's own request, whatever the spec says now.
  specs[1].argv = {"/bin/false"};
  COHORT_ASSERT_OK(daemon.Begin({specs[1], specs[2]}));
  EXPECT_EQ(daemon.Next<ProcessStarted>().process, Key(2));
  EXPECT_EQ(daemon.End().exit_code, 4);
}

// PR-2: the next keeper does not begin what its predecessor lost, also when the
// daemon restarts.
TEST_F(KeeperAdoptionTest, WhatIsLostIsNotBegunByTheNextKeeper) {
  const std::string gate = Fifo("gate");
  std::vector<ProcessSpec> specs =
      Specs({"exec sleep 1000", absl::StrCat("read x < ", gate)});
  {
    Daemon daemon(dir_.path());
    COHORT_ASSERT_OK(daemon.Begin({specs[0]}));
    daemon.Next<ProcessStarted>();
    KillKeepers();
    EXPECT_EQ(daemon.End().cause, Cause::kKeeperLost);
    COHORT_ASSERT_OK(daemon.Begin(specs));
    EXPECT_EQ(daemon.Next<ProcessStarted>().process, Key(1));
  }
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Adopt());
  int started = 0;
  const std::map<int, ExitReport> lost = daemon.Ends(1, &started);
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost.at(0).cause, Cause::kKeeperLost);
  OpenGate(gate);
  EXPECT_EQ(daemon.Ends(1, &started)[1].cause, Cause::kItself);
  EXPECT_EQ(started, 2);
}

TEST_F(KeeperAdoptionTest, AdoptsWhatAnotherBootOfTheMachineLeft) {
  { COHORT_ASSERT_OK(MakeLockedDir({"exit 0", "exit 0"})); }
  keeper::KeeperReport keeper;
  keeper.pid = getpid();  // a living process that is not the keeper
  keeper.boot_id = "another boot";
  std::ofstream(KeeperFile("keeper")) << keeper::Encode(keeper);
  const keeper::StartedReport started = {Key(0), getpid(), 1};
  std::ofstream(KeeperFile(keeper::StartedFile(Key(0))))
      << keeper::Encode(started);
  keeper::ExitReport exit;
  exit.process = Key(0);
  exit.exit_code = 9;
  std::ofstream(KeeperFile(keeper::ExitFile(Key(0)))) << keeper::Encode(exit);
  std::ofstream(KeeperFile(keeper::ExitFile(Key(1)))) << "";  // lost
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_THAT(adopted->message, HasSubstr("machine restarted"));
  daemon.Next<ProcessStarted>();
  std::map<int, ExitReport> ends = daemon.Ends(2);
  EXPECT_EQ(ends[0].exit_code, 9);
  EXPECT_EQ(ends[0].cause, Cause::kItself);
  EXPECT_EQ(ends[1].cause, Cause::kKeeperLost);
}

TEST_F(KeeperAdoptionTest, AdoptRefusesNamesThatAreNoKeepers) {
  Daemon daemon(dir_.path());
  EXPECT_THAT(daemon.Adopt("../keepers"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(daemon.Adopt("ffff"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::worker
