#include "common/host_port.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

TEST(HostPortTest, ReadsAndPrints) {
  for (const char* text :
       {"127.0.0.1:7710", "node-7.rack_1:0", "[::1]:65535", "localhost:1"}) {
    const absl::StatusOr<HostPort> parsed = ParseHostPort(text);
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(parsed->ToString(), text);
  }
  EXPECT_EQ(ParseHostPort("[::1]:5")->host, "::1");
}

TEST(HostPortTest, RefusesTheRestAndSaysWhatIsAccepted) {
  for (const char* text :
       {"", "host", ":80", "host:", "host:65536", "host:-1", "::1:80",
        "[::g]:80", "[]:80", "a b:80", "host:80x", "unix:/x", "host:000080"}) {
    EXPECT_THAT(ParseHostPort(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("is not HOST:PORT")))
        << text;
  }
}

TEST(HostPortTest, KnowsWhatStaysOnTheMachine) {
  EXPECT_TRUE((HostPort{"127.0.0.1", 1}).IsLoopback());
  EXPECT_TRUE((HostPort{"127.9.9.9", 1}).IsLoopback());
  EXPECT_TRUE((HostPort{"LocalHost", 1}).IsLoopback());
  EXPECT_TRUE((HostPort{"::1", 1}).IsLoopback());
  EXPECT_FALSE((HostPort{"0.0.0.0", 1}).IsLoopback());
  EXPECT_FALSE((HostPort{"::", 1}).IsLoopback());
  EXPECT_FALSE((HostPort{"127.example.org", 1}).IsLoopback());
}

}  // namespace
}  // namespace cohort
