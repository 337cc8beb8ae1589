#include "examples/loss_log.h"

#include <sstream>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::examples {
namespace {

using ::testing::HasSubstr;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class LossLogTest : public ::testing::Test {
 protected:
  TempDir directory_;
  const std::string path_ = directory_.File("loss.log");
};

TEST_F(LossLogTest, HasEachLineBeforeItIsClosed) {
  LossLog log;
  COHORT_ASSERT_OK(log.Open(path_, std::vector<double>{}));
  log.Add(1, 0.25);
  EXPECT_EQ(Slurp(path_), "1 0.25\n");
  log.Add(2, 0.1);
  EXPECT_EQ(Slurp(path_), "1 0.25\n2 0.10000000000000001\n");
}

TEST_F(LossLogTest, TellsTheWholeOfARunThatGoesOn) {
  std::ofstream(path_) << "what was here\n";
  LossLog log;
  COHORT_ASSERT_OK(log.Open(path_, std::vector<double>{3, 2}));
  EXPECT_EQ(Slurp(path_), "1 3\n2 2\n");
  log.Add(3, 1);
  EXPECT_EQ(Slurp(path_), "1 3\n2 2\n3 1\n");
}

TEST_F(LossLogTest, IsNoneWithoutAPath) {
  LossLog log;
  COHORT_ASSERT_OK(log.Open("", std::vector<double>{1}));
  log.Add(2, 1);
  EXPECT_EQ(Slurp(path_), "");
}

TEST_F(LossLogTest, NamesAFileThatCannotBeWritten) {
  EXPECT_THAT(LossLog().Open(directory_.File("absent/log"), {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("absent/log: No such file")));
}

}  // namespace
}  // namespace cohort::examples
