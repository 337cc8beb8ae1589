// Real processes, as earlier daemons left them.
#include "worker/stray_attempts.h"

#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"
#include "common/strong_id.h"
#include "common/testing/temp_dir.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {
namespace {

class StrayAttemptsTest : public ::testing::Test {
 protected:
  // A rank of `attempt`, by its environment, over this copy of the directory.
  pid_t StartRank(const AttemptId& attempt) {
    std::vector<std::string> words = {"sleep", "1000"};
    std::vector<std::string> environment = {
        absl::StrCat(keeper::kAttemptVariable, "=", attempt.ToHex()),
        absl::StrCat("COHORT_WORKER_SOCKET=", directories_.WorkerSocket()),
        absl::StrCat("TORCHELASTIC_ERROR_FILE=", directories_.Work(attempt),
                     "/error.json")};
    char* argv[] = {words[0].data(), words[1].data(), nullptr};
    char* variables[] = {environment[0].data(), environment[1].data(),
                         environment[2].data(), nullptr};
    pid_t pid = 0;
    EXPECT_EQ(
        posix_spawn(&pid, "/bin/sleep", nullptr, nullptr, argv, variables), 0);
    // It is shown a moment after exec has let go of us.
    while (keeper::ReadEnvironment(pid).empty()) sched_yield();
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
  const TempDir temp_;
  const NodeDirectories directories_{temp_.File("state"), temp_.File("run")};
};

// DV-1: one process that cannot be killed, as one that hangs in a driver, does
// not keep the daemon from starting, nor the others from being ended.
TEST_F(StrayAttemptsTest, WhatDoesNotDieInTimeIsLeftBehind) {
  const AttemptId first = AttemptId::New(random_);
  const AttemptId second = AttemptId::New(random_);
  std::filesystem::create_directories(directories_.Runtime(first));
  const pid_t of_first = StartRank(first);
  const pid_t of_second = StartRank(second);
  // Killed, but nobody waits until they are dead.
  EndStrayAttempts({.directories = directories_,
                    .known = {},
                    .live = {},
                    .cgroup_parent = ""},
                   absl::ZeroDuration());
  EXPECT_EQ(Reap(of_first), SIGKILL);
  EXPECT_EQ(Reap(of_second), SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(directories_.Runtime(first)));
}

}  // namespace
}  // namespace cohort::worker
