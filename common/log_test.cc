#include "common/log.h"

#include <string>

#include "absl/time/civil_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/job_id.h"

namespace cohort {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Time ATime() {
  return absl::FromCivil(absl::CivilSecond(2026, 11, 21, 10, 0, 0),
                         absl::UTCTimeZone()) +
         absl::Milliseconds(123);
}

std::string Line(std::initializer_list<LogField> fields) {
  return FormatLogLine(ATime(), LogLevel::kInfo, "event", fields, "");
}

TEST(LogTest, FormatsAnEventOnOneLine) {
  EXPECT_EQ(FormatLogLine(ATime(), LogLevel::kWarning, "node_dead",
                          {{"node", "a1"}, {"attempt", 3}}, "head"),
            "2026-11-21T10:00:00.123Z W node_dead node=a1 attempt=3 "
            "program=head\n");
}

TEST(LogTest, QuotesWhatWouldNotReadBack) {
  EXPECT_THAT(Line({{"a", "two words"}}), EndsWith(" a=\"two words\"\n"));
  EXPECT_THAT(Line({{"a", ""}}), EndsWith(" a=\"\"\n"));
  EXPECT_THAT(Line({{"a", "x\ny"}}), EndsWith(" a=\"x\\ny\"\n"));
  EXPECT_THAT(Line({{"a", "k=\"v\""}}), EndsWith(" a=\"k=\\\"v\\\"\"\n"));
  EXPECT_THAT(Line({{"a", "größe"}}), EndsWith(" a=größe\n"));
}

TEST(LogTest, CutsLongValues) {
  const std::string line = Line({{"a", std::string(100000, 'x')}});
  EXPECT_LT(line.size(), 4096u);
  EXPECT_THAT(line, EndsWith("x...\n"));
}

TEST(LogTest, FormatsTheTypesWeHave) {
  EXPECT_THAT(Line({{"d", absl::Seconds(90)}}), EndsWith(" d=1m30s\n"));
  EXPECT_THAT(Line({{"b", true}, {"f", 0.5}}), EndsWith(" b=true f=0.5\n"));
  EXPECT_THAT(Line({{"id", JobId()}}),
              EndsWith(" id=00000000000000000000000000000000\n"));
  EXPECT_THAT(Line({{"s", absl::NotFoundError("no job")}}),
              EndsWith(" s=\"NOT_FOUND: no job\"\n"));
  EXPECT_THAT(Line({{"t", ATime()}}),
              HasSubstr(" t=2026-11-21T10:00:00.123+00:00"));
}

TEST(LogTest, WritesWhatTheLevelLetsThrough) {
  SetLogLevel(LogLevel::kWarning);
  ::testing::internal::CaptureStderr();
  COHORT_LOG(kInfo, "quiet");
  COHORT_LOG(kWarning, "loud", {"n", 1});
  const std::string written = ::testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kInfo);
  EXPECT_THAT(written, EndsWith(" W loud n=1\n"));
  EXPECT_THAT(written, ::testing::Not(HasSubstr("quiet")));
}

}  // namespace
}  // namespace cohort
