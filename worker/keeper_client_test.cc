// The real cohort-keeper with real children: what only processes can show.
//
// Nothing here sleeps: tests wait for events, for files' readers, or for the
// end of a process, with a deadline that only a broken build meets.
#include "worker/keeper_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/strand.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/thread_pool.h"
#include "worker/attempt_dir.h"
#include "worker/delegated_cgroup.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/record.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_spawn.h"
#include "worker/log_reader.h"
#include "worker/process_identity.h"
#include "worker/process_tree.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Cause = ExitStatus::Cause;

constexpr absl::Duration kDeadline = absl::Seconds(40);
// Tests run at once and look for their processes by this: no two share it.
const std::string& Attempt() {
  static const std::string attempt = absl::StrCat("a1", absl::Hex(getpid()));
  return attempt;
}

// Empty when the process is gone, even while it is read.
std::string ReadProcFile(const std::string& path) {
  int error = 0;
  return keeper::ReadWhole(path, 1 << 20, &error).value_or("");
}

// A worker daemon of one attempt: a KeeperClient and what it has heard.
class Daemon {
 public:
  explicit Daemon(const std::string& root,
                  const std::string& program = COHORT_KEEPER_PROGRAM,
                  bool takes_orphans = false) {
    KeeperClientOptions options;
    options.attempts_dir = root + "/attempts";
    options.keeper_program = program;
    options.takes_orphans = takes_orphans;
    auto client = KeeperClient::Create(
        options, strand_,
        [this](const std::string& attempt, const KeeperEvent& event) {
          EXPECT_EQ(attempt, Attempt());
          Push(event);
        });
    COHORT_EXPECT_OK(client);
    client_ = *std::move(client);
  }

  ~Daemon() {
    client_.reset();
    strand_.Stop();
  }

  KeeperClient& client() { return *client_; }

  absl::Status Start(const KeeperSpec& spec) {
    return Await<absl::Status>(
        [&](auto done) { client_->Start(spec, std::move(done)); });
  }

  absl::StatusOr<AdoptedAttempt> Adopt(const std::string& attempt = Attempt()) {
    return Await<absl::StatusOr<AdoptedAttempt>>(
        [&](auto done) { client_->Adopt(attempt, std::move(done)); });
  }

  absl::Status Remove() {
    return Await<absl::Status>(
        [&](auto done) { client_->Remove(Attempt(), std::move(done)); });
  }

  KeeperEvent NextEvent() {
    MutexLock lock(mutex_);
    while (events_.empty()) {
      if (!changed_.WaitFor(mutex_, kDeadline)) break;
    }
    if (events_.empty()) {
      ADD_FAILURE() << "no event came";
      return AllDone{};
    }
    const KeeperEvent event = events_.front();
    events_.pop_front();
    return event;
  }

  // The next event, which has to be a T.
  template <typename T>
  T Next() {
    const KeeperEvent event = NextEvent();
    if (const T* expected = std::get_if<T>(&event)) return *expected;
    ADD_FAILURE() << "event " << event.index() << " came instead";
    return T{};
  }

  // For an attempt of one rank that runs: its start, its end, and the end.
  ExitStatus RunOut() {
    Next<RankStarted>();
    const RankExited exited = Next<RankExited>();
    Next<AllDone>();
    return exited.status;
  }

 private:
  void Push(const KeeperEvent& event) {
    MutexLock lock(mutex_);
    events_.push_back(event);
    changed_.SignalAll();
  }

  template <typename Result, typename Call>
  Result Await(Call call) {
    struct Waiting {
      Mutex mutex;
      CondVar changed;
      std::optional<Result> result;
    };
    // Shared: the callback may come after the deadline of a failing test.
    auto waiting = std::make_shared<Waiting>();
    call([waiting](Result result) {
      MutexLock lock(waiting->mutex);
      waiting->result = std::move(result);
      waiting->changed.SignalAll();
    });
    MutexLock lock(waiting->mutex);
    while (!waiting->result) {
      if (!waiting->changed.WaitFor(waiting->mutex, kDeadline)) break;
    }
    if (!waiting->result) return absl::DeadlineExceededError("no answer");
    return *std::move(waiting->result);
  }

  ThreadPool pool_{1};
  Strand strand_{pool_};
  Mutex mutex_;
  CondVar changed_;
  std::deque<KeeperEvent> events_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<KeeperClient> client_;
};

class KeeperClientTest : public ::testing::Test {
 protected:
  // Before a test forks: it is made of this process's pid.
  KeeperClientTest() { Attempt(); }
  ~KeeperClientTest() override {
    // Whatever a test left, also a failing one.
    COHORT_EXPECT_OK(KillLeftovers({.attempt = Attempt()}, kDeadline));
    KillKeepers();
  }

  KeeperSpec Spec(const std::vector<std::string>& scripts) {
    KeeperSpec spec;
    spec.attempt = Attempt();
    spec.runtime_dir = dir_.File("run");
    spec.log_dir = dir_.File("logs");
    for (const std::string& script : scripts) {
      keeper::RankSpec rank;
      rank.rank = static_cast<int>(spec.ranks.size());
      rank.argv = {"/bin/sh", "-c", script};
      rank.env = {"PATH=/usr/bin:/bin"};
      rank.cwd = "/";
      spec.ranks.push_back(rank);
    }
    return spec;
  }

  std::string AttemptDir() {
    return absl::StrCat(dir_.path(), "/attempts/", Attempt());
  }

  std::string AttemptFile(const std::string& name) {
    return absl::StrCat(AttemptDir(), "/", name);
  }

  // All of a stream that is complete.
  std::string ReadLog(int rank, LogStream stream) {
    const LogReader reader(dir_.File("logs"), rank, stream);
    std::string all;
    while (true) {
      const absl::StatusOr<LogChunk> chunk = reader.Read(all.size(), 1 << 20);
      COHORT_EXPECT_OK(chunk);
      if (!chunk.ok()) return all;
      EXPECT_EQ(chunk->offset, all.size());
      all += chunk->bytes;
      if (chunk->eof) return all;
      if (chunk->bytes.empty()) {
        ADD_FAILURE() << "the stream has no end";
        return all;
      }
    }
  }

  // Makes a fifo that a rank blocks on or tells something through.
  std::string Fifo(const std::string& name) {
    const std::string path = dir_.File(name);
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  // What a rank writes into a fifo, up to its end.
  static std::string ReadFifo(const std::string& path) {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  // Lets what reads the fifo go on.
  static void OpenGate(const std::string& path) { std::ofstream(path) << "\n"; }

  static int64_t PidIn(const std::string& fifo) {
    int64_t pid = 0;
    EXPECT_TRUE(absl::SimpleAtoi(ReadFifo(fifo), &pid));
    return pid;
  }

  // Not there, or a zombie that its new parent has not reaped yet.
  static bool IsGone(int64_t pid) {
    const auto stat = keeper::ReadProcessStat(static_cast<pid_t>(pid));
    return !stat || stat->dead();
  }

  static void AwaitDeath(int64_t pid) {
    const absl::StatusOr<ProcessIdentity> process = IdentityOf(pid);
    if (process.ok()) AwaitDeath(*process);
  }

  static void AwaitDeath(const ProcessIdentity& process) {
    const absl::StatusOr<int> pidfd = OpenPidfd(process);
    if (!pidfd.ok()) return;
    pollfd ended = {*pidfd, POLLIN, 0};
    EXPECT_EQ(poll(&ended, 1, absl::ToInt64Milliseconds(kDeadline)), 1)
        << process.pid << " lives on";
    close(*pidfd);
  }

  // Pids of keepers whose argument lies in this test's directory.
  std::vector<pid_t> Keepers() {
    std::vector<pid_t> keepers;
    for (const auto& [pid, process] : keeper::ReadProcesses()) {
      const std::string line =
          ReadProcFile(absl::StrCat("/proc/", pid, "/cmdline"));
      const bool is_keeper = absl::StrContains(line, "cohort-keeper") &&
                             absl::StrContains(line, dir_.path());
      if (is_keeper && !process.dead()) keepers.push_back(pid);
    }
    return keepers;
  }

  pid_t KeeperPid() {
    const std::vector<pid_t> keepers = Keepers();
    EXPECT_EQ(keepers.size(), 1u);
    return keepers.empty() ? 0 : keepers[0];
  }

  void KillKeepers() {
    for (const pid_t pid : Keepers()) {
      kill(pid, SIGKILL);
      AwaitDeath(pid);
    }
  }

  const TempDir dir_;
};

TEST_F(KeeperClientTest, ReportsExitCodesOfEachRank) {
  Daemon daemon(dir_.path());
  COHORT_ASSERT_OK(daemon.Start(Spec({"exit 0", "exit 3"})));
  std::vector<int> codes(2, -1);
  for (int i = 0; i < 4; ++i) {  // the ranks' events come interleaved
    const KeeperEvent event = daemon.NextEvent();
    if (const auto* exited = std::get_if<RankExited>(&event)) {
      EXPECT_EQ(exited->status.signal, 0);
      EXPECT_EQ(exited->status.cause, Cause::kItself);
      EXPECT_LE(exited->status.started_at, exited->status.ended_at);
      codes.at(static_cast<size_t>(exited->rank)) = exited->status.exit_code;
    }
  }
  daemon.Next<AllDone>();
  EXPECT_THAT(codes, ElementsAre(0, 3));
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
      Spec({"env | sort; pwd; ulimit -c; ls -l /proc/self/fd | wc -l; "
            "grep -E 'SigBlk|SigIgn' /proc/self/status; cat; "
            "awk '{ print ($1 == $5) ($1 == $6) }' /proc/$$/stat"});
  spec.ranks[0].env = {"PATH=/usr/bin:/bin", "X=two\nlines",
                       "COHORT_ATTEMPT_ID=forged"};
  spec.ranks[0].cwd = dir_.path();
  spec.ranks[0].limits = {{"core", 512, 512}};
  COHORT_ASSERT_OK(daemon.Start(spec));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  EXPECT_EQ(ReadLog(0, LogStream::kStdout),
            absl::StrCat("COHORT_ATTEMPT_ID=", Attempt(),
                         "\nCOHORT_KEEPER_RANK=0\n"
                         "PATH=/usr/bin:/bin\nPWD=",
                         dir_.path(), "\nX=two\nlines\n", dir_.path(),
                         "\n1\n5\n"  // total, 0, 1, 2, ls's own
                         "SigBlk:\t0000000000000000\n"
                         "SigIgn:\t0000000000000000\n11\n"));
  EXPECT_EQ(ReadLog(0, LogStream::kStderr), "");
}

TEST_F(KeeperClientTest, KeepsEveryByteOfTenMegabytesOverRotations) {
  Daemon daemon(dir_.path());
  KeeperSpec spec = Spec({"seq 1 1500000"});
  spec.log_segment_bytes = 1 << 20;
  COHORT_ASSERT_OK(daemon.Start(spec));
  EXPECT_EQ(daemon.RunOut().exit_code, 0);
  std::string expected;
  for (int i = 1; i <= 1500000; ++i) absl::StrAppend(&expected, i, "\n");
  EXPECT_GT(expected.size(), 10u << 20);
  // Not EXPECT_EQ: nobody reads ten megabytes.
  EXPECT_TRUE(ReadLog(0, LogStream::kStdout) == expected);
}

TEST_F(KeeperClientTest, KeepsTheLastBytesWhenAStreamIsTooLong) {
  Daemon daemon(dir_.path());
  KeeperSpec spec = Spec({"seq 100000 299999; echo end"});
  spec.log_segment_bytes = 100'000;
  spec.log_stream_bytes = 200'000;
  COHORT_ASSERT_OK(daemon.Start(spec));
  daemon.RunOut();
  const LogReader reader(dir_.File("logs"), 0, LogStream::kStdout);
  const auto chunk = reader.Read(0, 10 << 20);
  COHORT_ASSERT_OK(chunk);
  EXPECT_TRUE(chunk->eof);
  EXPECT_EQ(chunk->next_offset, 200'000u * 7 + 4);
  // Of the bytes from 1'200'000 on the first three are the end of a line.
  EXPECT_EQ(chunk->offset, 1'200'003u);
  EXPECT_THAT(chunk->bytes, ::testing::EndsWith("\n299999\nend\n"));
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

// ---- TL-1 ----

TEST_F(KeeperClientTest, StopsItsRanksAtTheTimeLimit) {
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

TEST_F(KeeperClientTest, KillsAtTheTimeLimitWhatIgnoresIt) {
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

TEST_F(KeeperClientTest, TheTimeLimitIsNoMatterForWhatEndedBefore) {
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

TEST_F(KeeperClientTest, AStopBeforeTheTimeLimitStaysAStop) {
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

TEST_F(KeeperClientTest, KeepsTheTimeLimitWithoutADaemon) {
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

TEST_F(KeeperClientTest, RanksGoOnAndWriteWithoutTheirDaemon) {
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
  EXPECT_THAT(daemon.client().List(), IsOkAndHolds(ElementsAre(Attempt())));
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kRunning);
  EXPECT_EQ(adopted->spec.ranks.size(), 1u);
  daemon.Next<RankStarted>();
  OpenGate(gate);
  EXPECT_EQ(daemon.Next<RankExited>().status.exit_code, 5);
  daemon.Next<AllDone>();
  EXPECT_EQ(ReadLog(0, LogStream::kStdout), "before\nafter\n");
}

TEST_F(KeeperClientTest, TheWholeStoryIsThereWhenAllEndedWithoutADaemon) {
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

TEST_F(KeeperClientTest, KillingTheKeeperEndsItsRanksAtOnce) {
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

TEST_F(KeeperClientTest, KillingTheKeeperEndsWhatHidFromIt) {
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

TEST_F(KeeperClientTest, LeftoversOfADeadKeeperAreFoundByARestartedDaemon) {
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

TEST_F(KeeperClientTest, SigtermToTheKeeperIsAStop) {
  Daemon daemon(dir_.path());
  const std::string ready = Fifo("ready");
  COHORT_ASSERT_OK(daemon.Start(
      Spec({absl::StrCat("echo > ", ready, "; exec sleep 1000")})));
  daemon.Next<RankStarted>();
  ReadFifo(ready);
  kill(KeeperPid(), SIGTERM);
  const ExitStatus status = daemon.Next<RankExited>().status;
  EXPECT_EQ(status.signal, SIGTERM);
  EXPECT_EQ(status.cause, Cause::kStopped);
  daemon.Next<AllDone>();
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
    EXPECT_THAT(daemon.client().List(), IsOkAndHolds(IsEmpty()));
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
  EXPECT_THAT(daemon.client().List(), IsOkAndHolds(IsEmpty()));
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
  EXPECT_THAT(daemon.client().List(), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(daemon.Adopt(), StatusIs(absl::StatusCode::kNotFound));
}

// Every state in which a daemon can have died, one a test (the table of
// docs/design/0002-keeper.md).

TEST_F(KeeperClientTest, AdoptsADirectoryWithoutASpec) {
  ASSERT_TRUE(std::filesystem::create_directories(AttemptDir()));
  Daemon daemon(dir_.path());
  const auto adopted = daemon.Adopt();
  COHORT_ASSERT_OK(adopted);
  EXPECT_EQ(adopted->phase, AttemptPhase::kNoSpec);
  COHORT_EXPECT_OK(daemon.Remove());
}

TEST_F(KeeperClientTest, AdoptsADamagedSpec) {
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

TEST_F(KeeperClientTest, LeavesAKeeperAloneWhoseSpecWasDamagedUnderIt) {
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

TEST_F(KeeperClientTest, AdoptsASpecThatNoKeeperTook) {
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
  EXPECT_EQ(adopted->spec, Spec({"exit 0"}));
  COHORT_EXPECT_OK(daemon.Remove());
}

TEST_F(KeeperClientTest, AdoptsAKeeperThatIsBeingBorn) {
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

TEST_F(KeeperClientTest, AdoptsWhatAnotherBootOfTheMachineLeft) {
  ASSERT_TRUE(std::filesystem::create_directories(dir_.File("attempts")));
  {
    COHORT_ASSERT_OK(MakeAttemptDir(AttemptDir(), Spec({"exit 0", "exit 0"})));
  }
  keeper::KeeperReport keeper;
  keeper.attempt = Attempt();
  keeper.pid = getpid();  // a living process that is not the keeper
  keeper.boot_id = "another boot";
  std::ofstream(AttemptFile("keeper")) << keeper::Encode(keeper);
  keeper::StartedReport started = {0, getpid(), 1, 1};
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

TEST_F(KeeperClientTest, AdoptRefusesNamesThatAreNoAttempts) {
  Daemon daemon(dir_.path());
  EXPECT_THAT(daemon.Adopt("../attempts"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(daemon.Adopt("ffff"), StatusIs(absl::StatusCode::kNotFound));
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
  EXPECT_EQ(status.cause, Cause::kStopped);
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
  EXPECT_THAT(groups,
              HasSubstr(absl::StrCat("0::/cohort-", Attempt(), "/rank-0\n")));
  daemon.client().Kill(Attempt());
  daemon.Next<RankExited>();
  daemon.Next<AllDone>();
  EXPECT_EQ(access((*parent + "/cohort-" + Attempt()).c_str(), F_OK), -1);
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
