#include "bench/report.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <nlohmann/json.hpp>

namespace cohort::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Print(const Figure& figure, bool json) {
  Report report("demo", Flags{.json = json});
  ::testing::internal::CaptureStdout();
  report.Add(figure);
  return ::testing::internal::GetCapturedStdout();
}

TEST(ReportTest, PrintsOneObjectALineWithEveryKey) {
  const std::string line = Print({.name = "hot/4B",
                                  .samples = {{3.0, 1.0, 2.0}},
                                  .unit = "us",
                                  .floor = 1.0,
                                  .peer = "gloo",
                                  .peer_value = 20.0},
                                 /*json=*/true);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto object = nlohmann::ordered_json::parse(line);
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  EXPECT_THAT(keys, ElementsAre("bench", "case", "value", "unit", "floor",
                                "ratio", "peer", "peer_value", "runs", "min",
                                "max", "load", "commit", "build"));
  EXPECT_EQ(object["bench"], "demo");
  EXPECT_EQ(object["case"], "hot/4B");
  EXPECT_EQ(object["value"], 2.0);
  EXPECT_EQ(object["ratio"], 2.0);
  EXPECT_EQ(object["peer_value"], 20.0);
  EXPECT_EQ(object["runs"], 3);
  EXPECT_EQ(object["min"], 1.0);
  EXPECT_EQ(object["max"], 3.0);
}

// A rate of half the floor's is twice as bad as the floor.
TEST(ReportTest, SaysHowManyTimesWorseThanTheFloorForRatesToo) {
  const std::string line = Print({.name = "calls",
                                  .samples = {{50.0}},
                                  .unit = "calls/s",
                                  .less_is_better = false,
                                  .floor = 100.0},
                                 /*json=*/true);
  EXPECT_EQ(nlohmann::json::parse(line)["ratio"], 2.0);
}

TEST(ReportTest, LeavesUnknownValuesNull) {
  const auto object = nlohmann::json::parse(
      Print({.name = "x", .samples = {{1.0, 2.0}}, .unit = "s"}, true));
  EXPECT_TRUE(object["floor"].is_null());
  EXPECT_TRUE(object["ratio"].is_null());
  EXPECT_TRUE(object["peer"].is_null());
  EXPECT_TRUE(object["peer_value"].is_null());
  EXPECT_EQ(object["value"], 1.5);
}

// As tools/gpu_check.sh reads it: the same keys first.
TEST(ReportTest, NamesWhatIsNotMeasured) {
  for (const bool json : {true, false}) {
    Report report("demo", Flags{.json = json});
    ::testing::internal::CaptureStdout();
    report.Leave("hot/4B", "us", "no GPU");
    EXPECT_EQ(::testing::internal::GetCapturedStdout(),
              json ? R"({"bench":"demo","case":"hot/4B","value":null,)"
                     R"("unit":"us","floor":null,"ratio":null,)"
                     R"("why":"no GPU"})"
                     "\n"
                   : "demo hot/4B                   not measured: no GPU\n");
  }
}

TEST(ReportTest, PrintsALineForPeople) {
  const std::string line = Print({.name = "hot/4B",
                                  .samples = {{2.0}},
                                  .unit = "us",
                                  .floor = 1.0,
                                  .peer = "gloo",
                                  .peer_value = 20.0},
                                 /*json=*/false);
  EXPECT_THAT(line, HasSubstr("floor 1: 2.00x"));
  EXPECT_THAT(line, HasSubstr("gloo 20: 10.0x better"));
}

}  // namespace
}  // namespace cohort::bench
