#include "worker/run_as.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/latch.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uid_t kAnn = 71'001;

RunAs ParseOrDie(const std::vector<std::string>& entries) {
  return RunAs::Parse(entries).value();
}

TEST(RunAsTest, OffUnlessItIsSaid) {
  EXPECT_FALSE(RunAs().is_on());
  EXPECT_EQ(RunAs().AccountOf("user/ann").value(), std::nullopt);
}

TEST(RunAsTest, NamesAccountsByUserOrAllOthers) {
  const RunAs run_as = ParseOrDie(
      {"ann=71001", "cluster=71002", "*=71003", "user/cluster=71004"});
  EXPECT_EQ(run_as.AccountOf("user/ann").value()->uid, kAnn);
  EXPECT_EQ(run_as.AccountOf("cluster").value()->uid, 71'002u);
  EXPECT_EQ(run_as.AccountOf("user/bob").value()->uid, 71'003u);
  EXPECT_EQ(run_as.AccountOf("user/cluster").value()->uid, 71'004u);
}

TEST(RunAsTest, RefusesWhoHasNoAccountAndSaysTheFix) {
  const auto refused = ParseOrDie({"ann=71001"}).AccountOf("user/bob");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(refused.status().message(), HasSubstr("--run-as bob=ACCOUNT"));
}

TEST(RunAsTest, RefusesWhatIsNoEntry) {
  for (const char* entry : {"ann", "=ann", "ann=", "ann=no-such-user-here",
                            "ann=0", "ann=root", "ann=4294967295"}) {
    const auto parsed = RunAs::Parse({entry});
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(parsed.status().message(), HasSubstr(entry));
  }
  EXPECT_THAT(RunAs::Parse({"ann=71001", "user/ann=71002"}).status().message(),
              HasSubstr("twice"));
}

TEST(RunAsTest, EnvironmentIsTheirs) {
  const std::vector<std::string> environment = EnvironmentOf(
      {.uid = kAnn, .name = "ann", .home = "/home/ann"},
      {"HOME=/root", "USER=root", "PATH=/bin", "XDG_RUNTIME_DIR=/run/user/0"});
  EXPECT_THAT(environment, Contains("HOME=/home/ann"));
  EXPECT_THAT(environment, Contains("LOGNAME=ann"));
  EXPECT_THAT(environment, Contains("PATH=/bin"));
  EXPECT_THAT(environment, Not(Contains(HasSubstr("root"))));
  EXPECT_THAT(environment, Not(Contains(HasSubstr("XDG"))));
}

TEST(RunAsTest, ActsWithTheirRightsOnThisThreadAlone) {
  if (geteuid() != 0) GTEST_SKIP() << "may not be another user";
  TempDir directory;
  const std::string secret = directory.File("secret");
  COHORT_ASSERT_OK(WriteFileAtomically(secret, "x", 0600));
  COHORT_ASSERT_OK(MakeDirectories(directory.File("theirs"), 0700));
  chmod(ParentDirectory(secret).c_str(), 0711);
  const OsAccount ann = {.uid = kAnn, .gid = kAnn, .groups = {kAnn}};
  COHORT_ASSERT_OK(GiveTo(ann, directory.File("theirs")));
  // As a user would lay it.
  ASSERT_EQ(symlink(secret.c_str(), directory.File("theirs/link").c_str()), 0);
  Latch acts;
  std::thread other([&] {
    acts.Wait();
    COHORT_EXPECT_OK(ReadFile(secret).status());
  });
  {
    const ActingAs acting(ann);
    EXPECT_FALSE(ReadFile(directory.File("theirs/link")).ok());
    COHORT_EXPECT_OK(
        WriteFileAtomically(directory.File("theirs/new"), "y", 0600));
    acts.Open();
    other.join();
  }
  COHORT_EXPECT_OK(ReadFile(secret).status());
  EXPECT_EQ(OwnerOf(directory.File("theirs/new"))->uid, kAnn);
  EXPECT_EQ(OwnerOf(secret), std::nullopt);
}

}  // namespace
}  // namespace cohort::worker
