#include "worker/device_occupants.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/printable_text.h"
#include "common/unique_fd.h"
#include "worker/process_mark.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

const std::string kProcess = std::string(32, 'a') + ".3.12";

// A process that waits, with this environment.
class Waiter {
 public:
  explicit Waiter(std::vector<std::string> environment) {
    int to[2];
    int from[2];
    EXPECT_EQ(pipe2(to, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from, O_CLOEXEC), 0);
    to_ = UniqueFd(to[1]);
    const UniqueFd in(to[0]);
    const UniqueFd out(from[1]);
    const UniqueFd answers(from[0]);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
    char program[] = "/bin/cat";
    char* argv[] = {program, nullptr};
    std::vector<char*> envp;
    for (std::string& entry : environment) envp.push_back(entry.data());
    envp.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, program, &files, nullptr, argv, envp.data()),
              0);
    posix_spawn_file_actions_destroy(&files);
    // It shows its environment some time after posix_spawn returns, and surely
    // once the program answers.
    char byte = 'x';
    EXPECT_EQ(write(to_.get(), &byte, 1), 1);
    EXPECT_EQ(read(answers.get(), &byte, 1), 1);
  }
  ~Waiter() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Dead, and not yet reaped.
  void Die() const {
    kill(pid_, SIGKILL);
    siginfo_t end;
    EXPECT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT),
              0);
  }
  Occupant Inspected() const {
    Occupant occupant{.pid = pid_};
    InspectProcess(occupant);
    return occupant;
  }

 private:
  pid_t pid_ = 0;
  UniqueFd to_;
};

TEST(DeviceOccupantsTest, AProcessSaysWhoseItIs) {
  const Waiter rank({"A=b", "COHORT_KEEPER_PROCESS=" + kProcess});
  const Occupant seen = rank.Inspected();
  EXPECT_EQ(seen.process, kProcess);
  EXPECT_FALSE(seen.untold);
  EXPECT_EQ(seen.command, "cat");
  EXPECT_NE(seen.start_time, 0u);
}

TEST(DeviceOccupantsTest, OneThatNamesNoProcessIsAStrangers) {
  const Waiter stranger({"A=b"});
  EXPECT_EQ(stranger.Inspected().process, "");
  EXPECT_FALSE(stranger.Inspected().untold);
}

// DV-8
TEST(DeviceOccupantsTest, OneThatIsDyingTellsNothing) {
  const Waiter rank({"COHORT_KEEPER_PROCESS=" + kProcess});
  const uint64_t start_time = rank.Inspected().start_time;
  rank.Die();
  const Occupant seen = rank.Inspected();
  EXPECT_TRUE(seen.untold);
  EXPECT_EQ(seen.process, "");
  EXPECT_EQ(seen.start_time, start_time);
  EXPECT_THAT(OccupantText(seen), HasSubstr("(cat)"));
}

TEST(DeviceOccupantsTest, OneWithoutAnEnvironmentTellsNothing) {
  const Waiter cleared({});
  EXPECT_TRUE(cleared.Inspected().untold);
}

TEST(DeviceOccupantsTest, OneThatIsNotThereIsNobodys) {
  Occupant gone{.pid = 1 << 30};
  InspectProcess(gone);
  EXPECT_FALSE(gone.untold);
  EXPECT_EQ(gone.start_time, 0u);
}

// A process may call itself anything.
TEST(DeviceOccupantsTest, ANameThatCannotBeShownIsEscaped) {
  const std::string text =
      OccupantText({.pid = 17, .command = "\x1b[31mred\xff"});
  EXPECT_TRUE(IsPrintableUtf8(text)) << text;
  EXPECT_THAT(text, HasSubstr("process 17 ("));
}

TEST(ProcessMarkTest, ACgroupNamesItsProcess) {
  const std::string other = std::string(32, 'b') + ".0.1";
  const std::string process = "cohort-" + kProcess;
  const std::string keeper = "0::/user.slice/cohort-k-a-cohort-0a1b/";
  EXPECT_EQ(ProcessInCgroup(keeper + process + "\n"), kProcess);
  EXPECT_EQ(ProcessInCgroup(keeper + process + "/below\n"), kProcess);
  EXPECT_EQ(ProcessInCgroup(keeper + process + " (deleted)\n"), kProcess);
  // A cluster in a cluster.
  EXPECT_EQ(ProcessInCgroup(keeper + process + "/cohort-k-b-c/cohort-" + other +
                            "\n"),
            other);
  for (const std::string& none :
       {std::string(), std::string("0::/\n"),
        keeper + "cohort-worker.service\n", keeper + "cohort-abc\n",
        "4:memory:/" + process + "\n"}) {
    EXPECT_EQ(ProcessInCgroup(none), "") << none;
  }
}

}  // namespace
}  // namespace cohort::worker
