#pragma once

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <deque>
#include <fstream>
#include <map>
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
#include "worker/keeper/files.h"
#include "worker/keeper/proc.h"
#include "worker/keeper_client.h"
#include "worker/keeper_dir.h"
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

// The keeper of a test that has one.
inline const std::string& KeeperId() { return Attempt(); }
// Of a test's processes: the first incarnation of their slots.
inline ProcessKey Key(int slot = 0) { return {Attempt(), slot, 1}; }

// Empty when the process is gone, even while it is read.
inline std::string ReadProcFile(const std::string& path) {
  int error = 0;
  return keeper::ReadWhole(path, 1 << 20, &error).value_or("");
}

struct DaemonOptions {
  std::string program = COHORT_KEEPER_PROGRAM;
  bool takes_orphans = false;
  std::string logs_dir = "";
  std::string runtime_dir = "";  // empty: `run` in its directory
  std::string cgroup_parent = "";
  absl::Duration keeper_idle_timeout = absl::ZeroDuration();
  absl::Duration begin_timeout = kDeadline;
};

// A worker daemon: a KeeperClient and what it has heard.
class Daemon {
 public:
  explicit Daemon(const std::string& root, const DaemonOptions& own = {}) {
    KeeperClientOptions options;
    options.keepers_dir = root + "/keepers";
    options.logs_dir = own.logs_dir;
    options.runtime_dir =
        own.runtime_dir.empty() ? root + "/run" : own.runtime_dir;
    options.keeper_program = own.program;
    options.cgroup_parent = own.cgroup_parent;
    options.takes_orphans = own.takes_orphans;
    options.keeper_idle_timeout = own.keeper_idle_timeout;
    options.begin_timeout = own.begin_timeout;
    auto client = KeeperClient::Create(
        options, strand_,
        [this](const std::string& keeper, const KeeperEvent& event) {
          EXPECT_EQ(keeper, KeeperId());
          Push(event);
        });
    COHORT_EXPECT_OK(client);
    client_ = *std::move(client);
  }

  ~Daemon() {
    client_.reset();
    strand_.Stop();
  }

  absl::Status Begin(const std::vector<ProcessSpec>& specs,
                     const std::string& keeper = KeeperId()) {
    for (const ProcessSpec& spec : specs) begun_.push_back(spec.key());
    return Await<absl::Status>(
        [&](auto done) { client_->Begin(keeper, specs, std::move(done)); });
  }

  absl::StatusOr<AdoptedKeeper> Adopt(const std::string& keeper = KeeperId()) {
    auto adopted = Await<absl::StatusOr<AdoptedKeeper>>(
        [&](auto done) { client_->Adopt(keeper, std::move(done)); });
    if (adopted.ok()) begun_ = adopted->known;
    return adopted;
  }

  // All processes, or these.
  void Stop(absl::Duration grace) { Stop(begun_, grace); }
  void Stop(const std::vector<ProcessKey>& which, absl::Duration grace) {
    client_->Stop(KeeperId(), which, grace);
  }
  void Kill() { client_->Kill(KeeperId(), begun_); }

  absl::Status Forget(const std::vector<ProcessKey>& which) {
    return Await<absl::Status>([&](auto done) {
      client_->Forget(KeeperId(), which, std::move(done));
    });
  }

  absl::Status Close() {
    return Await<absl::Status>(
        [&](auto done) { client_->Close(KeeperId(), std::move(done)); });
  }

  absl::Status CheckProgram() {
    return Await<absl::Status>(
        [&](auto done) { client_->CheckProgram(std::move(done)); });
  }

  KeeperEvent NextEvent() {
    MutexLock lock(mutex_);
    while (events_.empty()) {
      if (!changed_.WaitFor(mutex_, kDeadline)) break;
    }
    if (events_.empty()) {
      ADD_FAILURE() << "no event came";
      return ProcessEnded{};
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

  // For one process that runs: its start and its end.
  ExitReport RunOut() {
    Next<ProcessStarted>();
    return End();
  }
  // The same of one that was told to have started, or cannot.
  ExitReport End() {
    const ProcessExited exited = Next<ProcessExited>();
    EXPECT_EQ(Next<ProcessEnded>().process, exited.process);
    return exited;
  }
  // The ends of so many processes, by their slots, and how many started.
  std::map<int, ExitReport> Ends(size_t count, int* started = nullptr) {
    std::map<int, ExitReport> ends;
    for (size_t ended = 0; ended < count && !::testing::Test::HasFailure();) {
      const KeeperEvent event = NextEvent();
      if (const auto* exited = std::get_if<ProcessExited>(&event)) {
        ends[exited->process.slot] = *exited;
      }
      ended += std::holds_alternative<ProcessEnded>(event) ? 1 : 0;
      if (started != nullptr && std::holds_alternative<ProcessStarted>(event)) {
        ++*started;
      }
    }
    return ends;
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
  std::vector<ProcessKey> begun_;
  std::unique_ptr<KeeperClient> client_;
};

class KeeperClientTest : public ::testing::Test {
 protected:
  // Before a test forks: it is made of this process's pid.
  KeeperClientTest() { Attempt(); }
  ~KeeperClientTest() override {
    // Whatever a test left, also a failing one.
    COHORT_EXPECT_OK(KillLeftovers({.place = Place()}, kDeadline));
    KillKeepers();
  }

  // Processes of slots 0, 1, ...
  std::vector<ProcessSpec> Specs(const std::vector<std::string>& scripts) {
    std::vector<ProcessSpec> specs;
    for (const std::string& script : scripts) {
      ProcessSpec spec;
      spec.attempt = Attempt();
      spec.slot = static_cast<int>(specs.size());
      spec.incarnation = 1;
      spec.log_dir = dir_.File("logs");
      spec.argv = {"/bin/sh", "-c", script};
      spec.env = {"PATH=/usr/bin:/bin"};
      spec.cwd = "/";
      specs.push_back(spec);
    }
    return specs;
  }

  std::string Place() { return KeeperPlace(dir_.File("run"), KeeperId()); }
  std::string KeeperDir() {
    return absl::StrCat(dir_.path(), "/keepers/", KeeperId());
  }

  // Names of the keepers' directories.
  std::vector<std::string> KeepersOnDisk() {
    int error = 0;
    return keeper::ListDirectory(dir_.File("keepers"), &error);
  }

  std::string KeeperFile(const std::string& name) {
    return absl::StrCat(KeeperDir(), "/", name);
  }

  // All of a stream that is complete.
  std::string ReadLog(int slot, v1::LogStream stream,
                      uint64_t incarnation = 1) {
    const LogReader reader(dir_.File("logs"), slot, incarnation, stream);
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

  // Makes a fifo that a process blocks on or tells something through.
  std::string Fifo(const std::string& name) {
    const std::string path = dir_.File(name);
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    return path;
  }

  // What a process writes into a fifo, up to its end.
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
    // A process has its keeper's command line until it executes its program.
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
