#include "head/state/request_table.h"

#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

using ::testing::IsEmpty;
using ::testing::IsNull;
using ::testing::NotNull;
using ::testing::SizeIs;

RequestRecord Request(const std::string& id, const std::string& body) {
  RequestRecord record;
  record.set_principal("cluster");
  record.set_request_id(id);
  record.set_body_hash(body);
  record.set_answer(absl::StrCat("answer to ", id));
  return record;
}

void Add(RequestTable& table, RequestRecord record) {
  const size_t bytes = StoredBytes(record);
  table.Add(std::move(record), bytes);
}

class RequestTableTest : public ::testing::Test {
 protected:
  ManualExecutor time_;
  RequestTable table_{{.count_max = 3,
                       .bytes_max = 1 << 20,
                       .age_max = absl::Hours(24),
                       .age_min = absl::Minutes(2),
                       .age_begins_anew = true},
                      time_};
};

// RQ-1.
TEST_F(RequestTableTest, GivesARepetitionTheFirstAnswer) {
  EXPECT_THAT(table_.Find("cluster", "r", "body"), IsOkAndHolds(IsNull()));
  Add(table_, Request("r", "body"));
  const auto found = table_.Find("cluster", "r", "body");
  COHORT_ASSERT_OK(found);
  EXPECT_EQ((*found)->answer(), "answer to r");
}

// RQ-1.
TEST_F(RequestTableTest, RefusesAnotherBodyUnderTheSameId) {
  Add(table_, Request("r", "body"));
  const auto found = table_.Find("cluster", "r", "another");
  EXPECT_THAT(found, StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(GetReason(found.status()), "request_id_reused");
}

TEST_F(RequestTableTest, KeepsPrincipalsApart) {
  Add(table_, Request("r", "body"));
  EXPECT_THAT(table_.Find("somebody else", "r", "another"),
              IsOkAndHolds(IsNull()));
}

TEST_F(RequestTableTest, RefusesIdsThatCannotBe) {
  EXPECT_THAT(table_.Find("cluster", "", "body"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(table_.Find("cluster", std::string(129, 'x'), "body"),
              StatusIs(absl::StatusCode::kInvalidArgument));
  COHORT_EXPECT_OK(table_.Find("cluster", std::string(128, 'x'), "body"));
}

TEST_F(RequestTableTest, ForgetsAfterADayOfTheHeadsLife) {
  Add(table_, Request("r", "body"));
  time_.AdvanceBy(absl::Hours(24) - absl::Seconds(1));
  EXPECT_THAT(table_.Trim(10), IsEmpty());
  time_.AdvanceBy(absl::Seconds(1));
  EXPECT_THAT(table_.Trim(10), SizeIs(1));
  EXPECT_THAT(table_.Find("cluster", "r", "body"), IsOkAndHolds(IsNull()));
}

TEST_F(RequestTableTest, ForgetsTheOldestBeyondItsBound) {
  RequestRecord second = Request("2", "body");
  second.set_at_us(2'000'000);
  RequestRecord first = Request("1", "body");
  first.set_at_us(1'000'000);
  table_.Load({second, first});
  Add(table_, Request("3", "body"));
  Add(table_, Request("4", "body"));
  Add(table_, Request("5", "body"));
  EXPECT_THAT(table_.Trim(10), IsEmpty()) << "a client may still ask again";
  time_.AdvanceBy(absl::Minutes(2));
  const auto gone = table_.Trim(1);
  ASSERT_THAT(gone, SizeIs(1));
  EXPECT_EQ(gone[0].request_id(), "1");
  EXPECT_EQ(table_.Trim(10)[0].request_id(), "2");
  EXPECT_EQ(table_.size(), 3);
}

// HI-1.
TEST(RequestTableBytesTest, ForgetsTheOldestBeyondItsBytes) {
  ManualExecutor time;
  RequestTable table(
      {.count_max = 1'000'000, .bytes_max = 10'000, .age_max = absl::Hours(24)},
      time);
  for (int i = 0; i < 1'000; ++i) {
    Add(table, Request(absl::StrCat(i), std::string(100, 'h')));
    table.Trim(2);
    ASSERT_LE(table.Level().bytes, 10'000);
  }
  EXPECT_GT(table.size(), 40);
  EXPECT_THAT(table.Find("cluster", "999", std::string(100, 'h')),
              IsOkAndHolds(NotNull()));
  EXPECT_THAT(table.Find("cluster", "0", std::string(100, 'h')),
              IsOkAndHolds(IsNull()));
}

}  // namespace
}  // namespace cohort::head
