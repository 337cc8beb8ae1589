#include "head/state/exchange_table.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pointee;
using ::testing::SizeIs;

class ExchangeTableTest : public ::testing::Test {
 protected:
  SeededRandom random_{1};
  const AttemptId attempt_ = AttemptId::New(random_);
  ExchangeTable table_;
};

TEST_F(ExchangeTableTest, IsCompleteWhenAllRanksGave) {
  EXPECT_THAT(table_.Give(attempt_, 3, {0, 1}, {{"t", 0, "a"}, {"t", 1, "b"}}),
              IsEmpty());
  EXPECT_THAT(table_.CompleteOf(attempt_), IsEmpty());
  const Exchange whole{attempt_, "t", {"a", "b", "c"}};
  EXPECT_THAT(table_.Give(attempt_, 3, {2}, {{"t", 2, "c"}}),
              ElementsAre(Pointee(whole)));
  EXPECT_THAT(table_.CompleteOf(attempt_), ElementsAre(Pointee(whole)));
  table_.Drop(attempt_);
  EXPECT_THAT(table_.CompleteOf(attempt_), IsEmpty());
}

TEST_F(ExchangeTableTest, KeepsTheFirstBlobAndTellsOfCompletionOnce) {
  EXPECT_THAT(table_.Give(attempt_, 1, {0}, {{"t", 0, "a"}}), SizeIs(1));
  EXPECT_THAT(table_.Give(attempt_, 1, {0}, {{"t", 0, "another"}}), IsEmpty());
  EXPECT_THAT(table_.CompleteOf(attempt_),
              ElementsAre(Pointee(Exchange{attempt_, "t", {"a"}})));
}

TEST_F(ExchangeTableTest, HearsOnlyTheRanksOfTheNode) {
  EXPECT_THAT(table_.Give(attempt_, 2, {0}, {{"t", 0, "a"}, {"t", 1, "x"}}),
              IsEmpty());
  EXPECT_THAT(table_.Give(attempt_, 2, {0}, {{"t", -1, "x"}, {"t", 7, "x"}}),
              IsEmpty());
  EXPECT_THAT(table_.CompleteOf(attempt_), IsEmpty());
}

TEST_F(ExchangeTableTest, TakesNothingBeyondItsBounds) {
  const std::string long_tag(ExchangeTable::kTagBytesMax + 1, 't');
  const std::string big(ExchangeTable::kBlobBytesMax + 1, 'b');
  EXPECT_THAT(table_.Give(attempt_, 1, {0}, {{long_tag, 0, "a"}}), IsEmpty());
  EXPECT_THAT(table_.Give(attempt_, 1, {0}, {{"t", 0, big}}), IsEmpty());
  for (size_t i = 0; i < 2 * ExchangeTable::kTagsMax; ++i) {
    table_.Give(attempt_, 1, {0}, {{std::to_string(i), 0, "a"}});
  }
  EXPECT_THAT(table_.CompleteOf(attempt_), SizeIs(ExchangeTable::kTagsMax));
}

TEST_F(ExchangeTableTest, NamesWhoHasNotGivenUnderTheLastTag) {
  EXPECT_THAT(table_.MissingOf(attempt_), IsEmpty());
  table_.Give(attempt_, 3, {0, 1, 2}, {{"t", 0, "a"}, {"t", 2, "c"}});
  EXPECT_THAT(table_.MissingOf(attempt_), ElementsAre(1));
  table_.Give(attempt_, 3, {0, 1, 2}, {{"t", 1, "b"}});
  EXPECT_THAT(table_.MissingOf(attempt_), IsEmpty());
  table_.Give(attempt_, 3, {0, 1, 2}, {{"u", 1, ""}});
  EXPECT_THAT(table_.MissingOf(attempt_), ElementsAre(0, 2));
}

}  // namespace
}  // namespace cohort::head
