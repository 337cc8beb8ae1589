#include "worker/keeper/proc.h"

#include <unistd.h>

#include <map>
#include <optional>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::keeper {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

TEST(ProcessStat, SurvivesAnyProgramName) {
  const std::optional<ProcessStat> stat = ParseProcessStat(
      "42 (a) Z 9 (b) S 1 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 "
      "2 3 4");
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->pid, 42);
  EXPECT_EQ(stat->state, 'S');
  EXPECT_EQ(stat->parent, 1);
  EXPECT_EQ(stat->group, 42);
  EXPECT_EQ(stat->session, 41);
  EXPECT_EQ(stat->start_time, 987654u);
  EXPECT_EQ(ParseProcessStat("42 (a) S 1"), std::nullopt);
  EXPECT_EQ(ParseProcessStat(""), std::nullopt);
}

TEST(ProcessStat, KnowsThisProcess) {
  const std::optional<ProcessStat> stat = ReadProcessStat(getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->parent, getppid());
  EXPECT_EQ(stat->session, getsid(0));
  EXPECT_EQ(ReadProcesses().count(getpid()), 1u);
}

TEST(DescendantsOf, FollowsTheWholeTreeAndNoCircle) {
  std::map<pid_t, ProcessStat> processes;
  const auto add = [&processes](pid_t pid, pid_t parent) {
    processes[pid].pid = pid;
    processes[pid].parent = parent;
  };
  add(2, 1);
  add(3, 2);
  add(4, 3);
  add(5, 1);
  add(6, 7);
  add(7, 6);
  EXPECT_THAT(DescendantsOf(2, processes), UnorderedElementsAre(3, 4));
  EXPECT_THAT(DescendantsOf(6, processes), UnorderedElementsAre(7));
  EXPECT_THAT(DescendantsOf(9, processes), IsEmpty());
}

TEST(ValueOf, LooksForTheWholeName) {
  EXPECT_EQ(ValueOf({"A=1", "B=2=3"}, "B"), "2=3");
  EXPECT_EQ(ValueOf({"B=", "AB=2"}, "B"), "");
  EXPECT_EQ(ValueOf({"AB=2"}, "B"), "");
}

}  // namespace
}  // namespace cohort::keeper
