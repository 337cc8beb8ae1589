#include "client/cli/kept_results.h"

#include <cstdlib>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::cli {
namespace {

TEST(KeptResultsTest, MakesNothingWhereNothingWasWritten) {
  const TempDir temp;
  const std::string to = temp.File("kept");
  COHORT_EXPECT_OK(KeepResults(temp.File("none"), to));
  std::filesystem::create_directories(temp.File("results/job/out"));
  // The worker's.
  COHORT_ASSERT_OK(
      WriteFileAtomically(temp.File("results/job/.mark"), "", 0600));
  COHORT_EXPECT_OK(KeepResults(temp.File("results"), to));
  EXPECT_FALSE(std::filesystem::exists(to));
}

TEST(KeptResultsTest, MovesWhatJobsLeft) {
  const TempDir temp;
  std::filesystem::create_directories(temp.File("results/a/out/deep"));
  std::filesystem::create_directories(temp.File("results/b/out"));
  std::filesystem::create_directories(temp.File("kept/before"));
  COHORT_ASSERT_OK(
      WriteFileAtomically(temp.File("results/a/out/deep/x"), "1", 0600));
  COHORT_EXPECT_OK(KeepResults(temp.File("results"), temp.File("kept")));
  EXPECT_THAT(ReadFile(temp.File("kept/a/out/deep/x")), IsOkAndHolds("1"));
  EXPECT_TRUE(std::filesystem::exists(temp.File("kept/before")));
  EXPECT_FALSE(std::filesystem::exists(temp.File("kept/b")));
}

// /dev/shm is another file system than that of temporary directories, or the
// same: then this is as above.
TEST(KeptResultsTest, CopiesToAnotherFileSystem) {
  const TempDir temp;
  std::string from = "/dev/shm/cohort-kept-XXXXXX";
  ASSERT_NE(mkdtemp(from.data()), nullptr);
  std::filesystem::create_directories(from + "/a/out");
  COHORT_ASSERT_OK(WriteFileAtomically(from + "/a/out/x", "1", 0600));
  COHORT_EXPECT_OK(KeepResults(from, temp.File("kept")));
  EXPECT_THAT(ReadFile(temp.File("kept/a/out/x")), IsOkAndHolds("1"));
  COHORT_EXPECT_OK(RemoveTree(from));
}

TEST(KeptResultsTest, SaysWhatIsLost) {
  const TempDir temp;
  std::filesystem::create_directories(temp.File("results/a/out"));
  COHORT_ASSERT_OK(
      WriteFileAtomically(temp.File("results/a/out/x"), "1", 0600));
  COHORT_ASSERT_OK(WriteFileAtomically(temp.File("kept"), "a file", 0600));
  const absl::Status lost =
      KeepResults(temp.File("results"), temp.File("kept"));
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(std::string(lost.message()),
              ::testing::HasSubstr("results are lost: "));
}

}  // namespace
}  // namespace cohort::cli
