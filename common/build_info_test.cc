#include "common/build_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace cohort {
namespace {

TEST(BuildInfoTest, SaysVersionCommitAndBuild) {
  const BuildInfo info = GetBuildInfo();
  EXPECT_THAT(std::string(info.version),
              testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_THAT(std::string(info.commit),
              testing::MatchesRegex("unknown|[0-9a-f]{12}(\\+changes)?"));
  EXPECT_THAT(std::string(info.build), testing::Not(testing::IsEmpty()));
}

}  // namespace
}  // namespace cohort
