// Real processes, as earlier daemons left them.
#include "worker/stray_attempts.h"

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

#include "common/hex_text.h"
#include "common/random.h"
#include "common/strong_id.h"
#include "common/testing/status_matchers.h"
#include "worker/attempt_dir.h"
#include "worker/keeper/proc.h"
#include "worker/keeper/record.h"
#include "worker/keeper_spawn.h"
#include "worker/testing/keeper_fixture.h"

namespace cohort::worker {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StrayAttemptsTest : public KeeperClientTest {
 protected:
  // A keeper with one rank, which a daemon over `directories` started.
  KeeperProcess StartKeeper(const NodeDirectories& directories,
                            const AttemptId& attempt) {
    KeeperSpec spec = Spec({"exec sleep 1000"});
    spec.attempt = attempt.ToHex();
    spec.runtime_dir = directories.Runtime(attempt);
    EXPECT_EQ(keeper::MakeDirectories(directories.Attempts()), "");
    const std::string in = In(directories, attempt);
    const auto made = MakeAttemptDir(in, spec);
    const auto listener = ListenForKeeper(spec.runtime_dir);
    const auto connection = ConnectToKeeper(spec.runtime_dir);
    COHORT_EXPECT_OK(made);
    COHORT_EXPECT_OK(listener);
    COHORT_EXPECT_OK(connection);
    auto process =
        SpawnKeeper(COHORT_KEEPER_PROGRAM, in, {spec.attempt, spec.runtime_dir},
                    *made, *listener);
    COHORT_EXPECT_OK(process);
    for (std::string kind; kind != keeper::kStartedKind;) {
      pollfd packet = {connection->get(), POLLIN, 0};
      EXPECT_EQ(poll(&packet, 1, absl::ToInt64Milliseconds(kDeadline)), 1);
      char buffer[keeper::kPacketBytesMax];
      const ssize_t n = recv(connection->get(), buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      kind = keeper::RecordKind(std::string(buffer, static_cast<size_t>(n)));
    }
    return *std::move(process);
  }
  static std::string In(const NodeDirectories& directories,
                        const AttemptId& attempt) {
    return absl::StrCat(directories.Attempts(), "/", attempt.ToHex());
  }
  static void DamageSpec(const NodeDirectories& directories,
                         const AttemptId& attempt) {
    std::ofstream(In(directories, attempt) + "/spec") << "garbage";
  }
  // Whether it has been killed; ends it.
  static bool WasKilled(const KeeperProcess& keeper) {
    kill(keeper.pid, SIGTERM);
    int status = 0;
    EXPECT_EQ(waitpid(keeper.pid, &status, 0), keeper.pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  // What a daemon does when it starts.
  static absl::Status BeginOver(const NodeDirectories& directories,
                                const std::set<std::string>& live = {}) {
    const absl::Status status = CheckIsNoCopy(directories);
    if (!status.ok()) return status;
    std::vector<JournalEntry> journal;
    for (const std::string& attempt : live) {
      journal.emplace_back().desired.set_attempt_id(HexToBytes(attempt));
      journal.back().observed.set_phase(v1::PHASE_RUNNING);
    }
    EndStrayAttempts(directories, journal, "", kDeadline);
    return absl::OkStatus();
  }
  NodeDirectories Moved() const {
    return NodeDirectories(dir_.File("moved"), directories_.runtime());
  }

  // A rank of `attempt`, by its environment.
  pid_t StartRank(const AttemptId& attempt, uid_t user = geteuid()) {
    const std::string id =
        absl::StrCat(keeper::kAttemptVariable, "=", attempt.ToHex());
    const std::string place = absl::StrCat(keeper::kPlaceVariable, "=",
                                           directories_.Runtime(attempt));
    const char* const variables[] = {id.c_str(), place.c_str(), nullptr};
    const pid_t pid = fork();
    if (pid == 0) {
      if (setuid(user) == 0) {
        execle("/bin/sleep", "sleep", "1000", nullptr, variables);
      }
      _exit(1);
    }
    while (!keeper::Carries(keeper::ReadEnvironment(pid),
                            keeper::kAttemptVariable, attempt.ToHex())) {
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

  SystemRandom random_;
  const AttemptId attempt_ = AttemptId::New(random_);
  const NodeDirectories directories_{dir_.File("state"), dir_.File("run")};
};

TEST_F(StrayAttemptsTest, AfterARenameItKeepsWhatItKnowsAndEndsTheRest) {
  const KeeperProcess known = StartKeeper(directories_, attempt_);
  const AttemptId lost = AttemptId::New(random_);
  const KeeperProcess stray = StartKeeper(directories_, lost);
  const AttemptId damaged = AttemptId::New(random_);
  const KeeperProcess unreadable = StartKeeper(directories_, damaged);
  fs::rename(directories_.state(), Moved().state());
  DamageSpec(Moved(), damaged);
  COHORT_EXPECT_OK(BeginOver(Moved(), {attempt_.ToHex(), damaged.ToHex()}));
  EXPECT_TRUE(WasKilled(stray));
  EXPECT_TRUE(WasKilled(unreadable));
  EXPECT_FALSE(WasKilled(known));
}

// By any name: nobody can start on it.
TEST_F(StrayAttemptsTest, WhoseDirectoryIsNoMoreIsEnded) {
  const KeeperProcess keeper = StartKeeper(directories_, attempt_);
  fs::remove_all(directories_.state());
  fs::create_directories(Moved().Attempts());
  COHORT_EXPECT_OK(BeginOver(Moved()));
  EXPECT_TRUE(WasKilled(keeper));
}

// Also where its spec does not tell whose it is.
TEST_F(StrayAttemptsTest, OverACopyItDoesNotBegin) {
  const KeeperProcess keeper = StartKeeper(directories_, attempt_);
  fs::copy(directories_.state(), Moved().state(), fs::copy_options::recursive);
  for (const bool damaged : {false, true}) {
    if (damaged) DamageSpec(directories_, attempt_);
    EXPECT_THAT(BeginOver(Moved(), {attempt_.ToHex()}),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(absl::StrCat("kill ", keeper.pid))));
  }
  EXPECT_FALSE(WasKilled(keeper));
}

// Of a gang that two nodes of this machine have parts of.
TEST_F(StrayAttemptsTest, AnotherNodesPartIsNotOursWhateverBecomesOfIt) {
  const NodeDirectories other(dir_.File("other"), dir_.File("run-other"));
  fs::create_directories(directories_.Runtime(attempt_));
  const KeeperProcess keeper = StartKeeper(other, attempt_);
  DamageSpec(other, attempt_);
  COHORT_EXPECT_OK(BeginOver(directories_));
  fs::remove_all(In(other, attempt_));
  COHORT_EXPECT_OK(BeginOver(directories_));
  EXPECT_FALSE(WasKilled(keeper));
}

TEST_F(StrayAttemptsTest, TwoNodesThatSwappedDirectoriesEndTheirOwn) {
  const NodeDirectories other(dir_.File("other"), dir_.File("run-other"));
  const KeeperProcess ours = StartKeeper(directories_, attempt_);
  const KeeperProcess theirs = StartKeeper(other, attempt_);
  fs::rename(directories_.state(), Moved().state());
  fs::rename(other.state(), directories_.state());
  fs::rename(Moved().state(), other.state());
  COHORT_EXPECT_OK(
      BeginOver(NodeDirectories(other.state(), directories_.runtime())));
  EXPECT_TRUE(WasKilled(ours));
  EXPECT_FALSE(WasKilled(theirs));
}

// Who can give it any marks.
TEST_F(StrayAttemptsTest, AnotherUsersProcessIsNotOursWhateverItSays) {
  if (geteuid() != 0) GTEST_SKIP() << "may not be another user";
  const pid_t pid = StartRank(attempt_, /*user=*/65534);
  COHORT_EXPECT_OK(BeginOver(directories_));
  EXPECT_EQ(Reap(pid), SIGTERM);
}

// DV-1: one process that cannot be killed, as one that hangs in a driver, does
// not keep the daemon from starting, nor the others from being ended.
TEST_F(StrayAttemptsTest, WhatDoesNotDieInTimeIsLeftBehind) {
  const AttemptId first = AttemptId::New(random_);
  const AttemptId second = AttemptId::New(random_);
  std::filesystem::create_directories(directories_.Runtime(first));
  const pid_t of_first = StartRank(first);
  const pid_t of_second = StartRank(second);
  // Killed, but nobody waits until they are dead.
  EndStrayAttempts(directories_, {}, "", absl::ZeroDuration());
  EXPECT_EQ(Reap(of_first), SIGKILL);
  EXPECT_EQ(Reap(of_second), SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(directories_.Runtime(first)));
}

}  // namespace
}  // namespace cohort::worker
