#include "worker/delegated_cgroup.h"

#include <sys/stat.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::worker {
namespace {

TEST(DelegatedCgroup, ReadsWhereItIs) {
  EXPECT_EQ(CgroupPathIn("4:memory:/x\n0::/a.slice/b.scope\n"),
            "/a.slice/b.scope");
  EXPECT_EQ(CgroupPathIn("4:memory:/x\n"), "");
  EXPECT_EQ(
      CgroupMountIn("24 1 0:22 / /sys rw - sysfs sysfs rw\n"
                    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 "
                    "cgroup2 rw,nsdelegate\n"),
      "/sys/fs/cgroup");
  EXPECT_EQ(CgroupMountIn("30 24 0:26 / /c rw - cgroup cgroup rw,cpu\n"), "");
}

TEST(DelegatedCgroup, NamesTheControllersThatAreMissing) {
  EXPECT_EQ(ControllersMissing("cpuset cpu io memory hugetlb pids\n"), "");
  EXPECT_EQ(ControllersMissing("cpu hugetlb\n"), "memory, pids");
  EXPECT_EQ(ControllersMissing(""), "memory, cpu, pids");
}

TEST(DelegatedCgroup, IsADirectoryOrAReason) {
  const absl::StatusOr<std::string> dir = DelegatedCgroup();
  if (dir.ok()) {
    struct stat file {};
    EXPECT_EQ(stat((*dir + "/cgroup.procs").c_str(), &file), 0);
  } else {
    EXPECT_THAT(dir, StatusIs(absl::StatusCode::kFailedPrecondition,
                              ::testing::Not("")));
  }
}

}  // namespace
}  // namespace cohort::worker
