// Real processes: what is found and killed, and what is spared.
#include "worker/process_tree.h"

#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
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

// Nodes on one machine have parts of one attempt.
TEST(ProcessTree, SparesAnotherNodesPartOfTheAttempt) {
  Sleeper theirs(absl::StrCat("COHORT_ATTEMPT_ID=", UniqueAttempt()),
                 "COHORT_KEEPER_PLACE=/run/b/1");
  const LeftoverQuery ours = {.attempt = UniqueAttempt(), .place = "/run/a/1"};
  EXPECT_THAT(FindLeftovers(ours), IsEmpty());
  const LeftoverQuery query = {.attempt = UniqueAttempt(), .place = "/run/b/1"};
  EXPECT_THAT(KillLeftovers(query, absl::Seconds(30)), IsOkAndHolds(1));
}

TEST(ProcessTree, KillsWhatCarriesTheAttemptAndSparesOthers) {
  Sleeper ours(absl::StrCat("COHORT_ATTEMPT_ID=", UniqueAttempt()));
  Sleeper longer(absl::StrCat("COHORT_ATTEMPT_ID=", UniqueAttempt(), "0"));
  const LeftoverQuery query = {.attempt = UniqueAttempt()};
  EXPECT_THAT(FindLeftovers(query), ElementsAre(ours.pid()));
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(1));
  EXPECT_THAT(FindLeftovers(query), IsEmpty());
  EXPECT_EQ(ours.Reap(), SIGKILL);
  EXPECT_EQ(longer.Reap(), SIGTERM);
}

TEST(ProcessTree, EndsAndReapsChildrenThatAreNotItsOwn) {
  Sleeper own("A=b");
  Sleeper orphan("A=b");
  const pid_t pid = orphan.pid();
  const LeftoverQuery query = {.attempt = UniqueAttempt(),
                               .own_children = std::set<pid_t>{own.pid()}};
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(1));
  EXPECT_FALSE(keeper::ReadProcessStat(pid).has_value()) << "not reaped";
  EXPECT_EQ(own.Reap(), SIGTERM);
  orphan.Forget();
}

TEST(ProcessTree, FindsTheSessionOfARank) {
  Sleeper ours("A=b");
  const auto rank = IdentityOf(ours.pid());
  COHORT_ASSERT_OK(rank);
  const LeftoverQuery query = {.attempt = UniqueAttempt(), .ranks = {*rank}};
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(1));
}

TEST(ProcessTree, SparesASessionWhoseLeaderOnlyHasTheRanksPid) {
  Sleeper other("A=b");
  const auto identity = IdentityOf(other.pid());
  COHORT_ASSERT_OK(identity);
  ProcessIdentity earlier = *identity;
  earlier.start_time -= 1;
  ProcessIdentity before_boot = *identity;
  before_boot.boot_id = "another boot";
  const LeftoverQuery query = {.attempt = UniqueAttempt(),
                               .ranks = {earlier, before_boot}};
  EXPECT_THAT(KillLeftovers(query, kDeadline), IsOkAndHolds(0));
  EXPECT_EQ(other.Reap(), SIGTERM);
}

TEST(ProcessTree, RemovesACgroupWithThoseOfItsRanksUnlessItIsNotEmpty) {
  const TempDir temp;
  const std::string cgroup = temp.File("cohort-a");
  std::filesystem::create_directories(cgroup + "/rank-0");
  std::filesystem::create_directories(cgroup + "/rank-1");
  RemoveCgroup(cgroup);
  EXPECT_FALSE(std::filesystem::exists(cgroup));
  std::filesystem::create_directories(cgroup + "/rank-0/of a rank");
  RemoveCgroup(cgroup);
  EXPECT_TRUE(std::filesystem::exists(cgroup + "/rank-0"));
  RemoveCgroup("");
}

TEST(ProcessIdentity, IsOfOneProcessOnly) {
  Sleeper sleeper("A=b");
  const auto identity = IdentityOf(sleeper.pid());
  COHORT_ASSERT_OK(identity);
  EXPECT_TRUE(IsAlive(*identity));
  ProcessIdentity later = *identity;
  later.start_time += 1;
  EXPECT_FALSE(IsAlive(later));
  EXPECT_THAT(OpenPidfd(later), StatusIs(absl::StatusCode::kNotFound));
  const auto pidfd = OpenPidfd(*identity);
  COHORT_ASSERT_OK(pidfd);
  kill(sleeper.pid(), SIGKILL);
  pollfd ended = {*pidfd, POLLIN, 0};
  EXPECT_EQ(poll(&ended, 1, absl::ToInt64Milliseconds(kDeadline)), 1);
  EXPECT_FALSE(IsAlive(*identity)) << "a zombie does not live";
  close(*pidfd);
  sleeper.Reap();
  EXPECT_THAT(IdentityOf(identity->pid), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::worker
