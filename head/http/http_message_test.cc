#include "head/http/http_message.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(HttpMessage, ReadsPathAndQuery) {
  HttpRequest request;
  COHORT_ASSERT_OK(ParseHttpTarget(
      "/v1/jobs?state=RUNNING&limit=5&name=a%20b+c&flag#part", request));
  EXPECT_EQ(request.path, "/v1/jobs");
  EXPECT_THAT(request.query,
              ElementsAre(Pair("state", "RUNNING"), Pair("limit", "5"),
                          Pair("name", "a b c"), Pair("flag", "")));
}

TEST(HttpMessage, TakesTheFormOfAProxy) {
  HttpRequest request;
  COHORT_ASSERT_OK(ParseHttpTarget("http://head:1/v1/status", request));
  EXPECT_EQ(request.path, "/v1/status");
  COHORT_ASSERT_OK(ParseHttpTarget("http://head", request));
  EXPECT_EQ(request.path, "/");
}

TEST(HttpMessage, RefusesWhatIsNoPath) {
  for (const char* target :
       {"", "nowhere", "*", "/%zz", "/%00", "/%0a", "/?a=%1", "/?%=1"}) {
    HttpRequest request;
    EXPECT_THAT(ParseHttpTarget(target, request),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << target;
  }
}

}  // namespace
}  // namespace cohort::head
