#include "head/http_message.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<HttpRequest> Parse(const std::string& lines) {
  return ParseHttpHead(lines + "\r\n\r\n");
}

TEST(HttpMessage, ReadsWhatARequestAsks) {
  const auto request = Parse(
      "GET /v1/jobs?state=RUNNING&limit=5&name=a%20b+c&flag HTTP/1.1\r\n"
      "Host: localhost:7711\r\nAUTHORIZATION:  Bearer aa \r\n"
      "Accept: text/plain\r\nX-Other: 1");
  COHORT_ASSERT_OK(request);
  EXPECT_EQ(request->method, "GET");
  EXPECT_EQ(request->path, "/v1/jobs");
  EXPECT_THAT(request->query,
              ElementsAre(Pair("state", "RUNNING"), Pair("limit", "5"),
                          Pair("name", "a b c"), Pair("flag", "")));
  EXPECT_EQ(request->authorization, "Bearer aa");
  EXPECT_EQ(request->accept, "text/plain");
  EXPECT_TRUE(request->keep_alive);
  EXPECT_FALSE(request->has_body);
}

TEST(HttpMessage, KnowsWhenAConnectionEnds) {
  EXPECT_FALSE(Parse("GET / HTTP/1.0")->keep_alive);
  EXPECT_FALSE(
      Parse("GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close")->keep_alive);
}

TEST(HttpMessage, KnowsABodyWhenThereIsOne) {
  EXPECT_TRUE(
      Parse("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3")->has_body);
  EXPECT_FALSE(
      Parse("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0")->has_body);
  EXPECT_TRUE(Parse("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked")
                  ->has_body);
}

TEST(HttpMessage, TakesTheFormOfAProxy) {
  EXPECT_EQ(Parse("GET http://head:1/v1/status HTTP/1.0")->path, "/v1/status");
  EXPECT_EQ(Parse("GET http://head HTTP/1.0")->path, "/");
}

// HM-1.
TEST(HttpMessage, RefusesWhatCouldBeReadInTwoWays) {
  for (const char* head :
       {"", "GET /", "GET / HTTP/2.0", "GET  / HTTP/1.1", "G@T / HTTP/1.0",
        "GET nowhere HTTP/1.0", "GET /%zz HTTP/1.0", "GET /%00 HTTP/1.0",
        "GET /?a=%1 HTTP/1.0", "GET / HTTP/1.1", "GET / HTTP/1.0\r\nnoname",
        "GET / HTTP/1.0\r\na b: c", "GET / HTTP/1.0\r\n folded: c",
        "GET / HTTP/1.0\r\na: x\ny",
        "GET / HTTP/1.0\r\nContent-Length: 1\r\nContent-Length: 2",
        "GET / HTTP/1.0\r\nContent-Length: -1",
        "GET / HTTP/1.0\r\nContent-Length: 1\r\nTransfer-Encoding: chunked",
        "GET / HTTP/1.0\r\nAuthorization: a\r\nAuthorization: b",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b"}) {
    EXPECT_THAT(Parse(head).status(),
                StatusIs(absl::StatusCode::kInvalidArgument))
        << head;
  }
  std::string many = "GET / HTTP/1.0";
  for (size_t i = 0; i <= kHttpFieldsMax; ++i) many += "\r\na: b";
  EXPECT_THAT(Parse(many).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(HttpMessage, FindsTheEndOfAHead) {
  EXPECT_EQ(EndOfHttpHead("GET / HTTP/1.0\r\n"), absl::string_view::npos);
  EXPECT_EQ(EndOfHttpHead("A\r\n\r\nGET"), 5u);
}

TEST(HttpMessage, WritesAnAnswerWithItsLength) {
  HttpResponse response;
  response.status = 503;
  response.body = "{}\n";
  response.headers = {{"Retry-After", "1"}};
  const absl::Time now = absl::FromUnixSeconds(784111777);
  const std::string text = RenderHttpResponse(response, now, /*close=*/true,
                                              /*head_only=*/false);
  EXPECT_THAT(text, HasSubstr("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(text, HasSubstr("Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"));
  EXPECT_THAT(text, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(text, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(text, HasSubstr("Connection: close\r\n\r\n{}\n"));
  EXPECT_THAT(RenderHttpResponse(response, now, false, /*head_only=*/true),
              testing::EndsWith("\r\n\r\n"));
}

}  // namespace
}  // namespace cohort::head
