#include "actor/call_failure.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_error.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"

namespace cohort::actor {
namespace {

TEST(CallFailureTest, KeepsCodeReasonAndMessage) {
  const absl::Status status =
      SetReason(absl::AbortedError("try again"), "lost_race");
  const absl::Status back = FromCallFailure(ToCallFailure(status));
  EXPECT_THAT(back, StatusIs(absl::StatusCode::kAborted, "try again"));
  EXPECT_EQ(GetReason(back), "lost_race");
  EXPECT_EQ(GetReason(FromCallFailure(ToCallFailure(absl::AbortedError("")))),
            "");
}

TEST(CallFailureTest, IsNeverOk) {
  v1::CallFailure failure;
  for (const int code : {-1, 0, 17, 1'000}) {
    failure.set_code(code);
    EXPECT_THAT(FromCallFailure(failure), StatusIs(absl::StatusCode::kUnknown));
  }
}

TEST(CallFailureTest, IsBoundedAndFitsTheWire) {
  const absl::Status status = SetReason(
      absl::InternalError(std::string(1 << 20, 'x')), "no \xFF reason");
  const v1::CallFailure failure = ToCallFailure(status);
  EXPECT_EQ(failure.message().size(), kFailureMessageBytesMax);
  EXPECT_EQ(failure.reason(), "");
}

TEST(CallFailureTest, SaysWhatIsTooLarge) {
  const absl::Status status = TooLarge("the result is", 10, 4);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               "the result is too large: 10 bytes, where 4 are "
                               "the most (pass large values in files)"));
  EXPECT_EQ(GetReason(status), kReasonTooLarge);
}

}  // namespace
}  // namespace cohort::actor
