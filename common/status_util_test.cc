#include "common/status_util.h"

#include <cerrno>
#include <memory>

#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_macros.h"
#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::Eq;

TEST(StatusUtilTest, AnnotateKeepsCodeAndReason) {
  const absl::Status status = Annotate(
      SetReason(absl::UnavailableError("port 7710 is taken"), "busy_port"),
      "starting the head");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               Eq("starting the head: port 7710 is taken")));
  EXPECT_EQ(GetReason(status), "busy_port");
}

TEST(StatusUtilTest, OkStaysOk) {
  EXPECT_THAT(Annotate(absl::OkStatus(), "x"), IsOk());
  EXPECT_THAT(SetReason(absl::OkStatus(), "x"), IsOk());
  EXPECT_EQ(GetReason(absl::OkStatus()), "");
}

TEST(StatusUtilTest, OnlyWaitingCuresSomeCodes) {
  EXPECT_TRUE(IsRetryable(absl::UnavailableError("")));
  EXPECT_TRUE(IsRetryable(absl::ResourceExhaustedError("")));
  EXPECT_FALSE(IsRetryable(absl::AbortedError("")));
  EXPECT_FALSE(IsRetryable(absl::DeadlineExceededError("")));
  EXPECT_FALSE(IsRetryable(absl::OkStatus()));
}

TEST(StatusUtilTest, ErrnoStatusNamesTheThing) {
  EXPECT_THAT(ErrnoStatus(ENOENT, "open /no/such"),
              StatusIs(absl::StatusCode::kNotFound,
                       Eq("open /no/such: No such file or directory")));
}

absl::StatusOr<std::unique_ptr<int>> Make(int n) {
  if (n < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(n);
}

absl::StatusOr<int> Sum(int a, int b) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<int> second, Make(b));
  COHORT_RETURN_IF_ERROR(Make(*first + *second).status());
  return *first + *second;
}

TEST(StatusMacrosTest, ReturnTheFirstErrorOrGoOn) {
  EXPECT_THAT(Sum(1, 2), IsOkAndHolds(3));
  EXPECT_THAT(Sum(1, -2), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort
