#include "client/cli/shell_environment.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ShellEnvironment, KeepsWhatIsNotOfTheTerminalOrSetByWorkers) {
  std::vector<std::string> all = {"PATH=/venv/bin:/bin",
                                  "HF_HOME=/data",
                                  "TERM=xterm",
                                  "SSH_AUTH_SOCK=/tmp/s",
                                  "RANK=3",
                                  "COHORT_ADDRESS=h:1",
                                  "BASH_FUNC_f%%=() {}",
                                  "EMPTY=",
                                  "SLURM_JOB_ID=7",
                                  "TOO_LONG=" + std::string(200'000, 'x')};
  std::vector<char*> pointers;
  for (std::string& each : all) pointers.push_back(each.data());
  pointers.push_back(nullptr);
  EXPECT_THAT(ShellEnvironment(pointers.data()),
              ElementsAre(Pair("EMPTY", ""), Pair("HF_HOME", "/data"),
                          Pair("PATH", "/venv/bin:/bin")));
}

}  // namespace
}  // namespace cohort::cli
