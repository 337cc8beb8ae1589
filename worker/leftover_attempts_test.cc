// Real processes, as earlier daemons left them.
#include "worker/leftover_attempts.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/strong_id.h"
#include "common/testing/status_matchers.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/record.h"
#include "worker/keeper/reports.h"
#include "worker/keeper_dir.h"
#include "worker/keeper_spawn.h"
#include "worker/testing/keeper_fixture.h"

namespace cohort::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class LeftoverAttemptsTest : public KeeperClientTest {
 protected:
  // A keeper with one process, which a daemon over `paths` started.
  KeeperProcess StartKeeper(const KeeperPaths& paths,
                            const std::string& keeper) {
    const KeeperStart start = {.program = COHORT_KEEPER_PROGRAM,
                               .dir = In(paths, keeper),
                               .place = KeeperPlace(paths.runtime_dir, keeper),
                               .idle_timeout = absl::Hours(1)};
    const std::vector<ProcessSpec> specs = Specs({"exec sleep 1000"});
    COHORT_EXPECT_OK(WriteSpec(start.dir, specs[0]));
    const auto locked = LockKeeperDir(start.dir);
    const auto listener = ListenForKeeper(start.place);
    const auto connection = ConnectToKeeper(start.place);
    COHORT_EXPECT_OK(locked);
    COHORT_EXPECT_OK(listener);
    COHORT_EXPECT_OK(connection);
    auto process = SpawnKeeper(start, *locked, *listener);
    COHORT_EXPECT_OK(process);
    const std::string begin = keeper::Encode(
        keeper::Command{keeper::Command::Kind::kBegin, 1, 0, {specs[0].key()}});
    EXPECT_EQ(send(connection->get(), begin.data(), begin.size(), 0),
              static_cast<ssize_t>(begin.size()));
    for (std::string kind; kind != keeper::StartedReport::kKind;) {
      pollfd packet = {connection->get(), POLLIN, 0};
      EXPECT_EQ(poll(&packet, 1, absl::ToInt64Milliseconds(kDeadline)), 1);
      char buffer[keeper::kPacketBytesMax];
      const ssize_t n = recv(connection->get(), buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      kind = keeper::RecordKind(std::string(buffer, static_cast<size_t>(n)));
    }
    return *std::move(process);
  }
  static std::string In(const KeeperPaths& paths, const std::string& keeper) {
    return absl::StrCat(paths.keepers_dir, "/", keeper);
  }
  // Whether it has been killed; ends it.
  static bool WasKilled(const KeeperProcess& keeper) {
    kill(keeper.pid, SIGTERM);
    int status = 0;
    EXPECT_EQ(waitpid(keeper.pid, &status, 0), keeper.pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  // What a daemon does when it starts.
  static absl::Status BeginOver(const KeeperPaths& paths,
                                const std::set<std::string>& keepers = {}) {
    const absl::Status status = CheckIsNoCopy(paths);
    if (!status.ok()) return status;
    EndLeftoverAttempts(paths, {.keepers = keepers}, "", kDeadline);
    return absl::OkStatus();
  }
  static fs::path StateOf(const KeeperPaths& paths) {
    return fs::path(paths.keepers_dir).parent_path();
  }
  KeeperPaths Moved() const {
    return {dir_.File("moved/keepers"), paths_.runtime_dir};
  }

  // A process of keeper `k`, by its environment.
  pid_t StartMarked(const std::string& keeper, uid_t user = geteuid()) {
    const std::string place = KeeperPlace(paths_.runtime_dir, keeper);
    const std::string mark = absl::StrCat(keeper::kPlaceVariable, "=", place);
    const char* const variables[] = {mark.c_str(), nullptr};
    const pid_t pid = fork();
    if (pid == 0) {
      if (setuid(user) == 0) {
        execle("/bin/sleep", "sleep", "1000", nullptr, variables);
      }
      _exit(1);
    }
    while (keeper::ValueOf(keeper::ReadEnvironment(pid),
                           keeper::kPlaceVariable) != place) {
      sched_yield();
    }
    return pid;
  }
  // The signal that ended it.
  static int Reap(pid_t pid) {
    kill(pid, SIGTERM);
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

  const KeeperPaths paths_{dir_.File("state/keepers"), dir_.File("run")};
};

TEST_F(LeftoverAttemptsTest, AfterARenameItKeepsWhatItKnowsAndEndsTheRest) {
  const KeeperProcess known = StartKeeper(paths_, "known");
  const KeeperProcess unknown = StartKeeper(paths_, "unknown");
  fs::rename(StateOf(paths_), StateOf(Moved()));
  COHORT_EXPECT_OK(BeginOver(Moved(), {"known", "another"}));
  EXPECT_TRUE(WasKilled(unknown));
  EXPECT_FALSE(WasKilled(known));
  EXPECT_FALSE(fs::exists(KeeperPlace(paths_.runtime_dir, "unknown")));
  EXPECT_TRUE(fs::exists(KeeperPlace(paths_.runtime_dir, "known")));
}

// By any name: nobody can start on it.
TEST_F(LeftoverAttemptsTest, WhoseDirectoryIsNoMoreIsEnded) {
  const KeeperProcess keeper = StartKeeper(paths_, "k");
  fs::remove_all(StateOf(paths_));
  fs::create_directories(Moved().keepers_dir);
  COHORT_EXPECT_OK(BeginOver(Moved(), {"k"}));
  EXPECT_TRUE(WasKilled(keeper));
}

TEST_F(LeftoverAttemptsTest, OverACopyItDoesNotBegin) {
  const KeeperProcess keeper = StartKeeper(paths_, "k");
  fs::copy(StateOf(paths_), StateOf(Moved()), fs::copy_options::recursive);
  EXPECT_THAT(BeginOver(Moved(), {"k"}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(absl::StrCat("kill ", keeper.pid))));
  EXPECT_FALSE(WasKilled(keeper));
}

// Of a gang that has processes on two nodes of this machine.
TEST_F(LeftoverAttemptsTest, AnotherNodesKeeperIsNotOursWhateverBecomesOfIt) {
  const KeeperPaths other = {dir_.File("other/keepers"),
                             dir_.File("run-other")};
  fs::create_directories(KeeperPlace(paths_.runtime_dir, "k"));
  const KeeperProcess keeper = StartKeeper(other, "k");
  COHORT_EXPECT_OK(BeginOver(paths_));
  fs::remove_all(In(other, "k"));
  COHORT_EXPECT_OK(BeginOver(paths_));
  EXPECT_FALSE(WasKilled(keeper));
}

TEST_F(LeftoverAttemptsTest, TwoNodesThatSwappedDirectoriesEndTheirOwn) {
  const KeeperPaths other = {dir_.File("other/keepers"),
                             dir_.File("run-other")};
  const KeeperProcess ours = StartKeeper(paths_, "k");
  const KeeperProcess theirs = StartKeeper(other, "k");
  fs::rename(StateOf(paths_), StateOf(Moved()));
  fs::rename(StateOf(other), StateOf(paths_));
  fs::rename(StateOf(Moved()), StateOf(other));
  COHORT_EXPECT_OK(BeginOver({other.keepers_dir, paths_.runtime_dir}));
  EXPECT_TRUE(WasKilled(ours));
  EXPECT_FALSE(WasKilled(theirs));
}

// Who can give it any marks.
TEST_F(LeftoverAttemptsTest, AnotherUsersProcessIsNotOursWhateverItSays) {
  if (geteuid() != 0) GTEST_SKIP() << "may not be another user";
  const pid_t pid = StartMarked("k", /*user=*/65534);
  COHORT_EXPECT_OK(BeginOver(paths_));
  EXPECT_EQ(Reap(pid), SIGTERM);
}

// DV-1: one process that cannot be killed, as one that hangs in a driver, does
// not keep the daemon from starting, nor the others from being ended.
TEST_F(LeftoverAttemptsTest, WhatDoesNotDieInTimeIsLeftBehind) {
  const std::string runtime = KeeperPlace(paths_.runtime_dir, "first");
  std::filesystem::create_directories(runtime);
  const pid_t of_first = StartMarked("first");
  const pid_t of_second = StartMarked("second");
  // Killed, but nobody waits until they are dead.
  EndLeftoverAttempts(paths_, {}, "", absl::ZeroDuration());
  EXPECT_EQ(Reap(of_first), SIGKILL);
  EXPECT_EQ(Reap(of_second), SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(runtime));
}

TEST_F(LeftoverAttemptsTest, RuntimeDirectoriesOfUnknownAttemptsGo) {
  SystemRandom random;
  const AttemptId known = AttemptId::New(random);
  const AttemptId unknown = AttemptId::New(random);
  for (const AttemptId& attempt : {known, unknown}) {
    fs::create_directories(fs::path(paths_.runtime_dir) / attempt.ToHex());
  }
  std::ofstream(fs::path(paths_.runtime_dir) / "LOCK") << "";
  EndLeftoverAttempts(paths_, {.attempts = {known}}, "", kDeadline);
  EXPECT_TRUE(fs::exists(fs::path(paths_.runtime_dir) / known.ToHex()));
  EXPECT_TRUE(fs::exists(fs::path(paths_.runtime_dir) / "LOCK"));
  EXPECT_FALSE(fs::exists(fs::path(paths_.runtime_dir) / unknown.ToHex()));
}

}  // namespace
}  // namespace cohort::worker
