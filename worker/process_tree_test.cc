// Real processes: what is found and killed, and what is spared.
#include "worker/process_tree.h"

#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "worker/keeper/proc.h"
#include "worker/process_identity.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kDeadline = absl::Seconds(40);

// A child that sleeps, in a session of its own; killed and reaped at the end.
class Sleeper {
 public:
  explicit Sleeper(const std::string& variable,
                   const std::string& another = "A=b") {
    std::string words[] = {"sleep", "1000", variable, another};
    char* argv[] = {words[0].data(), words[1].data(), nullptr};
    char* environment[] = {words[2].data(), words[3].data(), nullptr};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    EXPECT_EQ(posix_spawn(&pid_, "/bin/sleep", nullptr, &attributes, argv,
                          environment),
              0);
    posix_spawnattr_destroy(&attributes);
    // It is shown a moment after exec has let go of us.
    while (keeper::ReadEnvironment(pid_).empty()) sched_yield();
  }
  ~Sleeper() { Reap(); }

  pid_t pid() const { return pid_; }
  // It was reaped by others.
  void Forget() { pid_ = 0; }

  // The signal that ended it.
  int Reap() {
    if (pid_ == 0) return 0;
    kill(pid_, SIGTERM);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

 private:
  pid_t pid_ = 0;
};

std::string UniqueAttempt() { return absl::StrCat("b2", absl::Hex(getpid())); }

// A place that no other run of this test has.
const std::string& OwnPlace() {
  static const std::string place = absl::StrCat("/run/a/", getpid());
  return place;
}
std::string Mark() { return absl::StrCat("COHORT_KEEPER_PLACE=", OwnPlace()); }

// Keepers of one machine, of this node or another, may have processes of one
// attempt.
TEST(ProcessTree, KillsWhatCarriesThePlaceAndSparesOthers) {
  Sleeper ours(Mark());
  Sleeper longer(Mark() + "0");
  Sleeper theirs(absl::StrCat("COHORT_ATTEMPT_ID=", UniqueAttempt()),
                 "COHORT_KEEPER_PLACE=/run/b/1");
  const LeftoverQuery query = {.place = OwnPlace()};
  EXPECT_THAT(FindLeftovers(query), ElementsAre(ours.pid()));
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(1));
  EXPECT_THAT(FindLeftovers(query), IsEmpty());
  EXPECT_EQ(ours.Reap(), SIGKILL);
  EXPECT_EQ(longer.Reap(), SIGTERM);
  EXPECT_EQ(theirs.Reap(), SIGTERM);
}

// Anybody may have set that one.
TEST(ProcessTree, SparesWhatOnlyNamesTheAttempt) {
  Sleeper named(absl::StrCat("COHORT_ATTEMPT_ID=", UniqueAttempt()));
  EXPECT_THAT(KillLeftovers({.place = OwnPlace()}, kDeadline), IsOkAndHolds(0));
  EXPECT_EQ(named.Reap(), SIGTERM);
}

TEST(ProcessTree, SparesWhatAnotherUserHasMarked) {
  if (geteuid() != 0) GTEST_SKIP() << "may not be another user";
  const std::string mark = Mark();
  const pid_t pid = fork();
  if (pid == 0) {
    if (setuid(65534) != 0) _exit(1);
    execle("/bin/sleep", "sleep", "1000", nullptr,
           std::array{mark.c_str(), static_cast<const char*>(nullptr)}.data());
    _exit(1);
  }
  while (keeper::ValueOf(keeper::ReadEnvironment(pid), "COHORT_KEEPER_PLACE") !=
         OwnPlace()) {
    sched_yield();
  }
  EXPECT_THAT(KillLeftovers({.place = OwnPlace()}, kDeadline), IsOkAndHolds(0));
  kill(pid, SIGTERM);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

// Whatever it dropped itself.
TEST(ProcessTree, WhatDescendsFromItGoesWithIt) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const std::string mark = Mark();
  const pid_t parent = fork();
  if (parent == 0) {
    dup2(told[1], 1);
    execle("/bin/sh", "sh", "-c",
           "exec 3>&1; env -i setsid sh -c 'echo $$ >&3; exec 3>&-; "
           "exec sleep 1000' & exec 3>&-; exec 1>&-; wait",
           nullptr,
           std::array{mark.c_str(), "PATH=/usr/bin:/bin",
                      static_cast<const char*>(nullptr)}
               .data());
    _exit(1);
  }
  close(told[1]);
  char text[16] = {};
  ASSERT_GT(read(told[0], text, sizeof(text) - 1), 0);
  close(told[0]);
  EXPECT_THAT(FindLeftovers({.place = OwnPlace()}),
              UnorderedElementsAre(parent, atoi(text)));
  EXPECT_THAT(KillLeftovers({.place = OwnPlace()}, kDeadline), IsOkAndHolds(2));
  waitpid(parent, nullptr, 0);
}

TEST(ProcessTree, FindsMembersOfGroupsThatAProcessMade) {
  const TempDir temp;
  Sleeper hidden("A=b");
  const std::string below = temp.File("cohort-a/cohort-p/sub/deeper");
  std::filesystem::create_directories(below);
  std::ofstream(below + "/cgroup.procs") << hidden.pid() << "\n";
  const LeftoverQuery query = {.place = OwnPlace(),
                               .cgroup = temp.File("cohort-a")};
  EXPECT_THAT(FindLeftovers(query), ElementsAre(hidden.pid()));
}

TEST(ProcessTree, EndsAndReapsChildrenThatAreNotItsOwn) {
  Sleeper own("A=b");
  Sleeper orphan("A=b");
  const pid_t pid = orphan.pid();
  const LeftoverQuery query = {.place = OwnPlace(),
                               .children = Children{.own = {own.pid()}}};
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(1));
  EXPECT_FALSE(keeper::ReadProcessStat(pid).has_value()) << "not reaped";
  EXPECT_EQ(own.Reap(), SIGTERM);
  orphan.Forget();
}

// As of a program that was started with `sidecar & exec cohort-worker`.
TEST(ProcessTree, SparesChildrenFromBeforeAndWhatTheyMayHaveLeft) {
  Sleeper sidecar("A=b");
  Children children;
  children.before = ReadChildren();
  EXPECT_FALSE(children.OthersAreOrphans());
  Sleeper orphan("A=b");
  Sleeper marked(Mark());
  const LeftoverQuery query = {.place = OwnPlace(), .children = children};
  EXPECT_THAT(FindLeftovers(query), ElementsAre(marked.pid()));
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(1));
  marked.Forget();
  EXPECT_EQ(sidecar.Reap(), SIGTERM);
  EXPECT_EQ(orphan.Reap(), SIGTERM);
}

// As of a container, where whatever was started beside it becomes its child.
TEST(ProcessTree, TheFirstProcessIsSureOfNoOrphan) {
  EXPECT_TRUE(Children().OthersAreOrphans());
  const pid_t pid = fork();
  if (pid == 0) {
    if (unshare(CLONE_NEWPID) != 0) _exit(2);
    const pid_t first = fork();
    if (first == 0) _exit(Children().OthersAreOrphans() ? 1 : 0);
    int status = 0;
    _exit(waitpid(first, &status, 0) == first ? WEXITSTATUS(status) : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "may not make a namespace";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ProcessTree, FindsTheSessionOfALeader) {
  Sleeper ours("A=b");
  const auto leader = IdentityOf(ours.pid());
  COHORT_ASSERT_OK(leader);
  const LeftoverQuery query = {.place = OwnPlace(), .leaders = {*leader}};
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(1));
}

TEST(ProcessTree, SparesASessionOfALaterProcessWithThePid) {
  Sleeper other("A=b");
  const auto identity = IdentityOf(other.pid());
  COHORT_ASSERT_OK(identity);
  ProcessIdentity earlier = *identity;
  earlier.start_time -= 1;
  ProcessIdentity before_boot = *identity;
  before_boot.boot_id = "another boot";
  const LeftoverQuery query = {.place = OwnPlace(),
                               .leaders = {earlier, before_boot}};
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(0));
  EXPECT_EQ(other.Reap(), SIGTERM);
}

TEST(ProcessTree, RemovesACgroupWithThoseBelowItUnlessItIsNotEmpty) {
  const TempDir temp;
  const std::string cgroup = temp.File("cohort-a");
  std::filesystem::create_directories(cgroup + "/cohort-p/of its own");
  std::filesystem::create_directories(cgroup + "/cohort-q");
  RemoveCgroup(cgroup);
  EXPECT_FALSE(std::filesystem::exists(cgroup));
  std::filesystem::create_directories(cgroup + "/cohort-p/of its own");
  std::ofstream(cgroup + "/cohort-p/of its own/member");
  RemoveCgroup(cgroup);
  EXPECT_TRUE(std::filesystem::exists(cgroup + "/cohort-p/of its own"));
  RemoveCgroup("");
}

TEST(ProcessIdentity, IsOfOneProcessOnly) {
  Sleeper sleeper("A=b");
  const auto identity = IdentityOf(sleeper.pid());
  COHORT_ASSERT_OK(identity);
  ProcessIdentity later = *identity;
  later.start_time += 1;
  EXPECT_THAT(OpenPidfd(later), StatusIs(absl::StatusCode::kNotFound));
  const auto pidfd = OpenPidfd(*identity);
  COHORT_ASSERT_OK(pidfd);
  kill(sleeper.pid(), SIGKILL);
  pollfd ended = {*pidfd, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, absl::ToInt64Milliseconds(kDeadline)), 1);
  close(*pidfd);
  sleeper.Reap();
  EXPECT_THAT(IdentityOf(identity->pid), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::worker
