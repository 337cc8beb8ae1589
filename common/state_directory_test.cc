#include "common/state_directory.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <filesystem>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/unique_fd.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;

class StateDirectoryTest : public testing::Test {
 protected:
  static absl::StatusOr<std::unique_ptr<StateDirectory>> Take(
      const std::string& path, absl::Status check = absl::OkStatus()) {
    return StateDirectory::Take(path, "test", [check] { return check; });
  }
  void Write(const std::string& name) {
    COHORT_EXPECT_OK(WriteFileAtomically(name, "x", 0600));
  }

  TempDir temp_;
  const std::string above_ = temp_.File("above");
  const std::string path_ = above_ + "/state";
};

// SD-1.
TEST_F(StateDirectoryTest, OneThatWasMadeGoesWithAllThatIsInIt) {
  auto taken = Take(path_);
  COHORT_ASSERT_OK(taken);
  fs::create_directories(path_ + "/store/deep");
  Write(path_ + "/store/deep/file");
  taken->reset();
  EXPECT_FALSE(fs::exists(above_));
}

TEST_F(StateDirectoryTest, OneThatWasEmptyIsEmptyAgain) {
  fs::create_directories(path_);
  auto taken = Take(path_);
  COHORT_ASSERT_OK(taken);
  Write(path_ + "/file");
  taken->reset();
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(StateDirectoryTest, WhatWasThereStays) {
  fs::create_directories(path_);
  Write(path_ + "/file");
  COHORT_ASSERT_OK(Take(path_));
  EXPECT_TRUE(fs::exists(path_ + "/file"));
}

// SD-1: not to see what is there is not to see that it is empty.
TEST_F(StateDirectoryTest, OneThatCannotBeListedIsRefusedAndStays) {
  fs::create_directories(path_);
  Write(path_ + "/file");
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit one_more = before;
  // Room for the directory, none for more.
  one_more.rlim_cur = static_cast<rlim_t>(
      UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)).get() + 1);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &one_more), 0);
  auto taken = Take(path_);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(taken, StatusIs(testing::_, testing::HasSubstr(path_)));
  taken = absl::CancelledError("dropped");
  EXPECT_TRUE(fs::exists(path_ + "/file"));
}

TEST_F(StateDirectoryTest, WhatIsKeptStays) {
  auto taken = Take(path_);
  COHORT_ASSERT_OK(taken);
  Write(path_ + "/file");
  (*taken)->Keep();
  taken->reset();
  EXPECT_TRUE(fs::exists(path_ + "/file"));
  EXPECT_TRUE(fs::exists(path_ + "/LOCK"));
}

TEST_F(StateDirectoryTest, ARefusalBeforeTheLockLeavesNothing) {
  EXPECT_THAT(Take(path_, absl::InvalidArgumentError("no")),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(fs::exists(above_));
}

// Another daemon's start is not undone by ours.
TEST_F(StateDirectoryTest, WhoIsLockedOutLeavesAllAsItIs) {
  auto first = Take(path_);
  COHORT_ASSERT_OK(first);
  const auto second = Take(path_);
  EXPECT_EQ(GetReason(second.status()), "locked");
  EXPECT_TRUE(fs::exists(path_ + "/LOCK"));
}

}  // namespace
}  // namespace cohort
