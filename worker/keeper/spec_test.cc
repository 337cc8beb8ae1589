#include "worker/keeper/spec.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::keeper {
namespace {

using ::testing::HasSubstr;

KeeperSpec GoodSpec() {
  KeeperSpec spec;
  spec.attempt = "0af1";
  spec.runtime_dir = "/run/a";
  spec.log_dir = "/logs";
  RankSpec rank;
  rank.rank = 3;
  rank.argv = {"echo", "two\nlines"};
  rank.env = {"A=b", "EMPTY="};
  rank.cwd = "/";
  spec.ranks = {rank};
  return spec;
}

TEST(KeeperSpec, IsGoldenOnDisk) {
  // These bytes lie on disks: a change is a new version.
  KeeperSpec spec = GoodSpec();
  spec.time_limit_ms = 5'000;
  spec.ranks[0].cpus = {0, 5};
  EXPECT_EQ(EncodeSpec(spec),
            "cohort-keeper spec 1\n"
            "attempt 4:0af1\n"
            "runtime_dir 6:/run/a\n"
            "log_dir 5:/logs\n"
            "grace_ms 5:10000\n"
            "time_limit_ms 4:5000\n"
            "cgroup_parent 0:\n"
            "rank 1:3\n"
            "cwd 1:/\n"
            "arg 4:echo\n"
            "arg 9:two\nlines\n"
            "env 3:A=b\n"
            "env 6:EMPTY=\n"
            "cpu 1:0\n"
            "cpu 1:5\n"
            "crc32 5be26104\n");
}

TEST(KeeperSpec, ComesBackAsItWas) {
  KeeperSpec spec = GoodSpec();
  spec.cgroup_parent = "/sys/fs/cgroup/x";
  spec.ranks.push_back(spec.ranks[0]);
  spec.ranks[1].rank = 0;
  spec.ranks[1].env.clear();
  std::string error;
  EXPECT_EQ(ParseSpec(EncodeSpec(spec), &error), spec) << error;
}

struct BadCase {
  const char* wrong;
  std::function<void(KeeperSpec&)> spoil;
};

TEST(KeeperSpec, SaysWhatCannotBeRun) {
  const BadCase cases[] = {
      {"not 1 to 64 lower-case hex", [](KeeperSpec& s) { s.attempt = "../x"; }},
      {"runtime_dir \"run\" is not an absolute path",
       [](KeeperSpec& s) { s.runtime_dir = "run"; }},
      {"log_dir", [](KeeperSpec& s) { s.log_dir = ""; }},
      {"cgroup_parent", [](KeeperSpec& s) { s.cgroup_parent = "x"; }},
      {"grace_ms", [](KeeperSpec& s) { s.grace_ms = -1; }},
      {"time_limit_ms", [](KeeperSpec& s) { s.time_limit_ms = 0; }},
      {"it has 0 ranks", [](KeeperSpec& s) { s.ranks.clear(); }},
      {"it has 1025 ranks",
       [](KeeperSpec& s) { s.ranks.resize(1025, s.ranks[0]); }},
      {"rank 3: the number is there twice",
       [](KeeperSpec& s) { s.ranks.resize(2, s.ranks[0]); }},
      {"rank -1", [](KeeperSpec& s) { s.ranks[0].rank = -1; }},
      {"argv is empty", [](KeeperSpec& s) { s.ranks[0].argv.clear(); }},
      {"NUL", [](KeeperSpec& s) { s.ranks[0].argv[1] += '\0'; }},
      {"\"X\" is not NAME=VALUE",
       [](KeeperSpec& s) { s.ranks[0].env = {"X"}; }},
      {"cwd", [](KeeperSpec& s) { s.ranks[0].cwd = "."; }},
      {"cpus",
       [](KeeperSpec& s) {
         s.ranks[0].cpus = {2, 1};
       }},
      {"cpus", [](KeeperSpec& s) { s.ranks[0].cpus = {4096}; }},
  };
  EXPECT_EQ(Validate(GoodSpec()), "");
  for (const BadCase& bad : cases) {
    KeeperSpec spec = GoodSpec();
    bad.spoil(spec);
    EXPECT_THAT(Validate(spec), HasSubstr(bad.wrong));
    std::string error;
    EXPECT_EQ(ParseSpec(EncodeSpec(spec), &error), std::nullopt) << bad.wrong;
    EXPECT_NE(error, "") << bad.wrong;
  }
}

}  // namespace
}  // namespace cohort::keeper
