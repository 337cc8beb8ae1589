#include "worker/runtime_directory.h"

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Taken = absl::StatusOr<std::unique_ptr<RuntimeDirectory>>;

class RuntimeDirectoryTest : public testing::Test {
 protected:
  const TempDir temp_;
  const std::string path_ = temp_.path() + "/cohort-0";
};

TEST_F(RuntimeDirectoryTest, IsMadeAndGoesWithItsLastHolder) {
  {
    const Taken taken = RuntimeDirectory::Take(path_);
    COHORT_ASSERT_OK(taken.status());
    EXPECT_TRUE(std::filesystem::is_directory(path_));
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
  COHORT_EXPECT_OK(RuntimeDirectory::Take(path_).status());
}

// RD-1.
TEST_F(RuntimeDirectoryTest, ASecondDaemonIsToldOfTheFirstAndTouchesNothing) {
  const Taken taken = RuntimeDirectory::Take(path_);
  COHORT_ASSERT_OK(taken.status());
  for (int times = 0; times < 2; ++times) {
    EXPECT_THAT(RuntimeDirectory::Take(path_).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(absl::StrCat("process ", getpid())),
                               HasSubstr("remove node_id"))));
    EXPECT_TRUE(std::filesystem::exists(path_ + "/LOCK"));
  }
}

TEST_F(RuntimeDirectoryTest, IsMadeAgainWithItsLockWhenSomebodyRemovedIt) {
  const Taken taken = RuntimeDirectory::Take(path_);
  COHORT_ASSERT_OK(taken.status());
  EXPECT_THAT((*taken)->Renew(), IsOkAndHolds(false));
  std::filesystem::remove_all(path_);
  EXPECT_THAT((*taken)->Renew(), IsOkAndHolds(true));
  EXPECT_THAT((*taken)->Renew(), IsOkAndHolds(false));
  EXPECT_THAT(RuntimeDirectory::Take(path_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("remove node_id")));
}

// RD-1.
TEST_F(RuntimeDirectoryTest, WhatAnotherDaemonMadeMeanwhileIsNotTouched) {
  Taken taken = RuntimeDirectory::Take(path_);
  COHORT_ASSERT_OK(taken.status());
  std::filesystem::remove_all(path_);
  const Taken other = RuntimeDirectory::Take(path_);
  COHORT_ASSERT_OK(other.status());
  EXPECT_THAT((*taken)->Renew(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                          HasSubstr("remove node_id")));
  taken->reset();
  EXPECT_TRUE(std::filesystem::exists(path_ + "/LOCK"));
  EXPECT_THAT((*other)->Renew(), IsOkAndHolds(false));
}

TEST_F(RuntimeDirectoryTest, WhatLiesThereIsForTheNextDaemon) {
  const std::string attempt = path_ + "/0123";
  {
    const Taken taken = RuntimeDirectory::Take(path_);
    COHORT_ASSERT_OK(taken.status());
    std::filesystem::create_directory(attempt);
  }
  EXPECT_TRUE(std::filesystem::exists(attempt));
  COHORT_EXPECT_OK(RuntimeDirectory::Take(path_).status());
}

}  // namespace
}  // namespace cohort::worker
