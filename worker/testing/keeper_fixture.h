#pragma once

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/mutex.h"
#include "common/strand.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/thread_pool.h"
#include "worker/attempt_dir.h"
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"
#include "worker/keeper_client.h"
#include "worker/log_reader.h"
#include "worker/process_identity.h"
#include "worker/process_tree.h"

// The real cohort-keeper with real children: what only processes can show.
//
// Nothing sleeps: tests wait for events, for files' readers, or for the end of
// a process, with a deadline that only a broken build meets.
namespace cohort::worker {

inline constexpr absl::Duration kDeadline = absl::Seconds(40);
// Tests run at once and look for their processes by this: no two share it.
inline const std::string& Attempt() {
  static const std::string attempt = absl::StrCat("a1", absl::Hex(getpid()));
  return attempt;
}

// Empty when the process is gone, even while it is read.
inline std::string ReadProcFile(const std::string& path) {
  int error = 0;
  return keeper::ReadWhole(path, 1 << 20, &error).value_or("");
}

// A worker daemon of one attempt: a KeeperClient and what it has heard.
class Daemon {
 public:
  explicit Daemon(const std::string& root,
                  const std::string& program = COHORT_KEEPER_PROGRAM,
                  bool takes_orphans = false, const std::string& logs_dir = "",
                  const std::string& runtime_dir = "/nowhere") {
    KeeperClientOptions options;
    options.attempts_dir = root + "/attempts";
    options.logs_dir = logs_dir;
    options.runtime_dir = runtime_dir;
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

  absl::Status CheckProgram() {
    return Await<absl::Status>(
        [&](auto done) { client_->CheckProgram(std::move(done)); });
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
    COHORT_EXPECT_OK(
        KillLeftovers({.part = {Attempt(), dir_.File("run")}}, kDeadline));
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

  // Names of the attempts' directories.
  std::vector<std::string> AttemptsOnDisk() {
    int error = 0;
    return keeper::ListDirectory(dir_.File("attempts"), &error);
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
    const auto processes = keeper::ReadProcesses();
    for (const auto& [pid, process] : processes) {
      const std::string line =
          ReadProcFile(absl::StrCat("/proc/", pid, "/cmdline"));
      const bool is_keeper = absl::StrContains(line, "cohort-keeper") &&
                             absl::StrContains(line, dir_.path());
      if (is_keeper && !process.dead()) keepers.push_back(pid);
    }
    // A rank has its keeper's command line until it executes its program.
    std::erase_if(keepers, [&, all = keepers](pid_t pid) {
      return absl::c_linear_search(all, processes.at(pid).parent);
    });
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

}  // namespace cohort::worker
