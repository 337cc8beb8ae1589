#include "worker/keeper/spec.h"

#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::keeper {
namespace {

using ::testing::HasSubstr;

ProcessSpec GoodSpec() {
  ProcessSpec spec;
  spec.attempt = "0af1";
  spec.slot = 3;
  spec.incarnation = 12;
  spec.log_dir = "/logs";
  spec.argv = {"echo", "two\nlines"};
  spec.env = {"A=b", "EMPTY="};
  spec.cwd = "/";
  return spec;
}

TEST(ProcessSpec, IsGoldenOnDisk) {
  // These bytes lie on disks: a change is a new version.
  ProcessSpec spec = GoodSpec();
  spec.time_limit_ms = 5'000;
  spec.memory_bytes = 1 << 20;
  spec.cpu_weight = 150;
  spec.cpus = {0, 5};
  EXPECT_EQ(EncodeSpec(spec),
            "cohort-keeper spec 1\n"
            "process 9:0af1.3.12\n"
            "log_dir 5:/logs\n"
            "grace_ms 5:10000\n"
            "time_limit_ms 4:5000\n"
            "cwd 1:/\n"
            "arg 4:echo\n"
            "arg 9:two\nlines\n"
            "env 3:A=b\n"
            "env 6:EMPTY=\n"
            "cpu 1:0\n"
            "cpu 1:5\n"
            "memory_bytes 7:1048576\n"
            "cpu_weight 3:150\n"
            "crc32 33fe90ae\n");
}

TEST(ProcessSpec, ComesBackAsItWas) {
  ProcessSpec spec = GoodSpec();
  std::string error;
  EXPECT_EQ(ParseSpec(EncodeSpec(spec), &error), spec) << error;
  spec.user = {.uid = 1000, .gid = 100, .groups = {100, 44}};
  EXPECT_EQ(ParseSpec(EncodeSpec(spec), &error), spec) << error;
  spec.time_limit_ms = 1;
  spec.memory_bytes = 64 << 20;
  spec.cpu_weight = 1;
  spec.env.clear();
  spec.incarnation = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ParseSpec(EncodeSpec(spec), &error), spec) << error;
}

struct BadCase {
  const char* wrong;
  std::function<void(ProcessSpec&)> spoil;
};

TEST(ProcessSpec, SaysWhatCannotBeRun) {
  const BadCase cases[] = {
      {"not 1 to 64 lower-case hex",
       [](ProcessSpec& s) { s.attempt = "../x"; }},
      {"log_dir", [](ProcessSpec& s) { s.log_dir = ""; }},
      {"log_dir \"logs\" is not an absolute path",
       [](ProcessSpec& s) { s.log_dir = "logs"; }},
      {"grace_ms", [](ProcessSpec& s) { s.grace_ms = -1; }},
      {"time_limit_ms", [](ProcessSpec& s) { s.time_limit_ms = 0; }},
      {"memory_bytes", [](ProcessSpec& s) { s.memory_bytes = -1; }},
      {"cpu_weight", [](ProcessSpec& s) { s.cpu_weight = kCpuWeightMax + 1; }},
      {"process 0af1.-1.12: the slot", [](ProcessSpec& s) { s.slot = -1; }},
      {"incarnation",
       [](ProcessSpec& s) { s.incarnation = uint64_t{1} << 63; }},
      {"argv is empty", [](ProcessSpec& s) { s.argv.clear(); }},
      {"NUL", [](ProcessSpec& s) { s.argv[1] += '\0'; }},
      {"\"X\" is not NAME=VALUE", [](ProcessSpec& s) { s.env = {"X"}; }},
      {"cwd", [](ProcessSpec& s) { s.cwd = "."; }},
      {"cpus",
       [](ProcessSpec& s) {
         s.cpus = {2, 1};
       }},
      {"cpus", [](ProcessSpec& s) { s.cpus = {4096}; }},
  };
  EXPECT_EQ(Validate(GoodSpec()), "");
  for (const BadCase& bad : cases) {
    ProcessSpec spec = GoodSpec();
    bad.spoil(spec);
    EXPECT_THAT(Validate(spec), HasSubstr(bad.wrong));
    std::string error;
    EXPECT_EQ(ParseSpec(EncodeSpec(spec), &error), std::nullopt) << bad.wrong;
    EXPECT_NE(error, "") << bad.wrong;
  }
}

TEST(ProcessKey, IsReadAsItIsWritten) {
  const ProcessKey key = {"0af1", 3, 12};
  EXPECT_EQ(key.ToString(), "0af1.3.12");
  EXPECT_EQ(ParseProcessKey("0af1.3.12"), key);
  for (const char* other :
       {"", "0af1", "0af1.3", "0af1..3", ".3.12", "x.3.12", "0af1.3.12.4",
        "0af1.03.12", "0af1.3.-1", "0af1.-3.1", "0af1.2147483648.1",
        "0af1.3.9223372036854775808", "../0af1.3.12"}) {
    EXPECT_EQ(ParseProcessKey(other), std::nullopt) << other;
  }
}

TEST(KeeperId, NamesNoOtherDirectory) {
  EXPECT_TRUE(IsKeeperId("k-0af1"));
  for (const char* other : {"", "..", "a/b", "A", "a.b"}) {
    EXPECT_FALSE(IsKeeperId(other)) << other;
  }
  EXPECT_FALSE(IsKeeperId(std::string(65, 'a')));
}

TEST(CgroupName, IsOfThisNodesKeeper) {
  EXPECT_EQ(CgroupName("/dev/shm/cohort-01/k-a"), "cohort-k-a-cohort-01");
  EXPECT_EQ(CgroupName(ProcessKey{"0af1", 3, 12}), "cohort-0af1.3.12");
}

}  // namespace
}  // namespace cohort::keeper
