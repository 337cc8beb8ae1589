#include "common/job_id.h"

#include <string>

#include "absl/hash/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

const char kHex[] = "00112233445566778899aabbccddeeff";

TEST(JobIdTest, TextAndBytesComeBackAsTheyWere) {
  for (const std::string suffix : {"", ".0", ".7", ".99999", ".999999999"}) {
    const std::string text = kHex + suffix;
    const absl::StatusOr<JobId> id = JobId::FromText(text);
    ASSERT_THAT(id, IsOk()) << text;
    EXPECT_EQ(id->ToText(), text);
    EXPECT_THAT(JobId::FromBytes(id->bytes()), IsOkAndHolds(*id));
  }
}

TEST(JobIdTest, AnElementKnowsItsArrayAndIndex) {
  const JobId array = *JobId::FromText(kHex);
  const JobId element = array.Element(12);
  EXPECT_EQ(element.ToText(), std::string(kHex) + ".12");
  EXPECT_TRUE(element.IsElement());
  EXPECT_EQ(element.index(), 12);
  EXPECT_EQ(element.array(), array);
  EXPECT_FALSE(array.IsElement());
  EXPECT_EQ(array.array(), array);
  EXPECT_EQ(element.bytes().size(), JobId::kElementBytes);
  EXPECT_EQ(array.bytes().size(), JobId::kBytes);
}

// Tables rely on it: an array's elements lie behind it, by index.
TEST(JobIdTest, ElementsFollowTheirArrayInOrder) {
  const JobId array = *JobId::FromText(kHex);
  EXPECT_LT(array, array.Element(0));
  EXPECT_LT(array.Element(9), array.Element(10));
  EXPECT_LT(array.Element(JobId::kIndexMax),
            *JobId::FromText("00112233445566778899aabbccddef00"));
  EXPECT_NE(absl::HashOf(array), absl::HashOf(array.Element(0)));
}

TEST(JobIdTest, NewOnesAreNotNil) {
  SeededRandom random(1);
  EXPECT_FALSE(JobId::New(random).IsNil());
  EXPECT_TRUE(JobId().IsNil());
}

TEST(JobIdTest, OtherTextIsRefused) {
  for (const std::string suffix :
       {".", ".x", ".-1", ".01", ".+1", ". 1", ".1.2", ".1000000000",
        ".99999999999999999999", "0", "00", " "}) {
    EXPECT_THAT(JobId::FromText(kHex + suffix),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(".INDEX for an element")))
        << suffix;
  }
  EXPECT_THAT(JobId::FromText(""),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(JobId::FromText("zz"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(JobIdTest, OtherBytesAreRefused) {
  for (const size_t size : {0, 1, 15, 17, 19, 21, 32}) {
    EXPECT_THAT(JobId::FromBytes(std::string(size, 'a')),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << size;
  }
  EXPECT_THAT(JobId::FromBytes(std::string(16, 'a') + "\xff\xff\xff\xff"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("at most 999999999")));
}

}  // namespace
}  // namespace cohort
