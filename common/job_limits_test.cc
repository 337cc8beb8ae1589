#include "common/job_limits.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ExpectBad(const absl::Status& status, const std::string& part) {
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(part)));
  EXPECT_LT(status.message().size(), 1'000u);
}

TEST(JobLimits, WhatIsComparedByItsNameIsOne) {
  for (const std::string text :
       {" ", "  H100", "rack ", "a\nb", "\xff", "\xc2\x9b"}) {
    ExpectBad(CheckAcceleratorType(text), "the accelerator type");
    ExpectBad(CheckNamespace(text), "the namespace");
    ExpectBad(CheckTopologyLevel(text), "the level");
    ExpectBad(CheckLabels({{text, "v"}}), "the label");
    ExpectBad(CheckJobName(text), "the name");
  }
  COHORT_EXPECT_OK(CheckAcceleratorType(""));
  COHORT_EXPECT_OK(CheckAcceleratorType("NVIDIA H100 80GB"));
  COHORT_EXPECT_OK(CheckJobName(""));
  COHORT_EXPECT_OK(CheckJobName("my run"));
}

TEST(JobLimits, ARequestIdIsShortAndPrintable) {
  COHORT_EXPECT_OK(CheckRequestId("run 7, again"));
  for (const std::string& id : {std::string(), std::string(129, 'x'),
                                std::string("a\nb"), std::string("\xff")}) {
    ExpectBad(CheckRequestId(id), "the request id");
  }
}

TEST(JobLimits, ALevelIsALabelsKey) {
  COHORT_EXPECT_OK(CheckTopologyLevel(""));
  COHORT_EXPECT_OK(CheckTopologyLevel("host"));
  COHORT_EXPECT_OK(CheckTopologyLevel("nvlink-domain"));
  for (const char* level : {"a=b", "rack in (a,b)", "!rack", "\"rack\""}) {
    ExpectBad(CheckTopologyLevel(level), "is an expression");
  }
}

TEST(JobLimits, ASelectorAsksForSomething) {
  COHORT_EXPECT_OK(CheckSelectors({"rack=r1", "gpu exists"}));
  ExpectBad(CheckSelectors({"rack=r1", "  "}), "a selector is blank");
}

TEST(JobLimits, WhatIsTooLongIsNotSaidAgainInFull) {
  const std::string huge(70'000, 'x');
  ExpectBad(CheckJobName(huge), "xxx...\" is not one line of at most 256");
  ExpectBad(CheckSelectors({huge}), "70000 bytes, at most");
  ExpectBad(CheckTolerations({{.key = huge, .value = huge}}), "xxx...\"");
  ExpectBad(CheckArray(huge), "column 1");
  ExpectBad(CheckCommand({"true"}, {{huge, ""}}), "xxx...\"");
  EXPECT_THAT(CheckSelectors({std::string(1'000, 'x')}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("xxx...\""), HasSubstr("column 1"))));
}

}  // namespace
}  // namespace cohort
