#include "common/node_labels.h"

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

using Labels = std::map<std::string, std::string>;

TEST(NodeLabels, AreNamesWithPrintableValues) {
  COHORT_EXPECT_OK(CheckNodeLabels({}));
  COHORT_EXPECT_OK(CheckNodeLabels({{"rack", "r 1"}, {"my zone", ""}}));
  for (const Labels& labels :
       {Labels{{"", "x"}}, Labels{{" rack", "x"}}, Labels{{"ra\nck", "x"}},
        Labels{{std::string(65, 'k'), "x"}}, Labels{{"rack", "\x1b[31m"}},
        Labels{{"rack", std::string(257, 'v')}}, Labels{{"rack", "\xff"}}}) {
    EXPECT_THAT(CheckNodeLabels(labels),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("key")));
  }
}

TEST(NodeLabels, LeaveHostToTheNode) {
  EXPECT_THAT(CheckNodeLabels({{"host", "x"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"host=x\" cannot be given")));
}

TEST(NodeLabels, AreNotWithoutNumber) {
  Labels labels;
  for (int i = 0; i < 257; ++i) labels.emplace(absl::StrCat("k", i), "");
  EXPECT_THAT(CheckNodeLabels(labels),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("257 labels, at most 256")));
}

}  // namespace
}  // namespace cohort
