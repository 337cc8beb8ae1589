#include "head/state/exchange_table.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/random.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Blob {
  std::string tag;
  int rank;
  std::string blob;
};

// What all gave under a tag.
using Whole = std::pair<std::string, std::vector<std::string>>;

class ExchangeTableTest : public ::testing::Test {
 protected:
  static constexpr int64_t kEpoch = 3;

  // Gives the tags that became complete.
  std::vector<Whole> Give(int world_size, const std::set<int>& ranks,
                          const std::vector<Blob>& blobs,
                          int64_t epoch = kEpoch) {
    ExchangeTable::Given given;
    for (const Blob& each : blobs) {
      v1::PendingExchange* const added = given.Add();
      added->set_tag(each.tag);
      added->set_rank(each.rank);
      added->set_blob(each.blob);
    }
    return Told(table_.Give(attempt_, epoch, world_size, ranks, given), epoch);
  }
  std::vector<Whole> Complete(int64_t epoch = kEpoch) {
    return Told(table_.CompleteOf(attempt_), epoch);
  }
  std::vector<Whole> Told(const std::vector<SharedExchange>& exchanges,
                          int64_t epoch) {
    std::vector<Whole> told;
    for (const SharedExchange& each : exchanges) {
      EXPECT_EQ(each->attempt_id(), attempt_.bytes());
      EXPECT_EQ(each->epoch(), epoch);
      told.emplace_back(
          each->tag(),
          std::vector<std::string>(each->blobs().begin(), each->blobs().end()));
    }
    return told;
  }

  SeededRandom random_{1};
  const AttemptId attempt_ = AttemptId::New(random_);
  ExchangeTable table_;
};

TEST_F(ExchangeTableTest, IsCompleteWhenAllRanksGave) {
  EXPECT_THAT(Give(3, {0, 1}, {{"t", 0, "a"}, {"t", 1, "b"}}), IsEmpty());
  EXPECT_THAT(Complete(), IsEmpty());
  const Whole whole{"t", {"a", "b", "c"}};
  EXPECT_THAT(Give(3, {2}, {{"t", 2, "c"}}), ElementsAre(whole));
  EXPECT_THAT(Complete(), ElementsAre(whole));
  table_.Drop(attempt_);
  EXPECT_THAT(Complete(), IsEmpty());
}

TEST_F(ExchangeTableTest, KeepsTheFirstBlobAndTellsOfCompletionOnce) {
  EXPECT_THAT(Give(1, {0}, {{"t", 0, "a"}}), SizeIs(1));
  EXPECT_THAT(Give(1, {0}, {{"t", 0, "another"}}), IsEmpty());
  EXPECT_THAT(Complete(), ElementsAre(Whole{"t", {"a"}}));
}

TEST_F(ExchangeTableTest, HearsOnlyTheRanksOfTheNode) {
  EXPECT_THAT(Give(2, {0}, {{"t", 0, "a"}, {"t", 1, "x"}}), IsEmpty());
  EXPECT_THAT(Give(2, {0}, {{"t", -1, "x"}, {"t", 7, "x"}}), IsEmpty());
  EXPECT_THAT(Complete(), IsEmpty());
}

TEST_F(ExchangeTableTest, IsOfOneEpoch) {
  Give(2, {0, 1}, {{"t", 0, "a"}, {"t", 1, "b"}, {"u", 0, "a"}});
  EXPECT_THAT(Complete(), SizeIs(1));
  EXPECT_THAT(Give(2, {1}, {{"u", 1, "new"}}, kEpoch + 1), IsEmpty());
  EXPECT_THAT(Complete(), IsEmpty());
  EXPECT_THAT(table_.MissingOf(attempt_), ElementsAre(0));
  const Whole whole{"u", {"newer", "new"}};
  EXPECT_THAT(Give(2, {0}, {{"u", 0, "newer"}}, kEpoch + 1),
              ElementsAre(whole));
  EXPECT_THAT(Complete(kEpoch + 1), ElementsAre(whole));
}

TEST_F(ExchangeTableTest, TakesNothingBeyondItsBounds) {
  const std::string long_tag(ExchangeTable::kTagBytesMax + 1, 't');
  const std::string big(ExchangeTable::kBlobBytesMax + 1, 'b');
  EXPECT_THAT(Give(1, {0}, {{long_tag, 0, "a"}}), IsEmpty());
  EXPECT_THAT(Give(1, {0}, {{"t", 0, big}}), IsEmpty());
  for (size_t i = 0; i < 2 * ExchangeTable::kTagsMax; ++i) {
    Give(1, {0}, {{std::to_string(i), 0, "a"}});
  }
  EXPECT_THAT(Complete(), SizeIs(ExchangeTable::kTagsMax));
}

TEST_F(ExchangeTableTest, NamesWhoHasNotGivenUnderTheLastTag) {
  EXPECT_THAT(table_.MissingOf(attempt_), IsEmpty());
  Give(3, {0, 1, 2}, {{"t", 0, "a"}, {"t", 2, "c"}});
  EXPECT_THAT(table_.MissingOf(attempt_), ElementsAre(1));
  Give(3, {0, 1, 2}, {{"t", 1, "b"}});
  EXPECT_THAT(table_.MissingOf(attempt_), IsEmpty());
  Give(3, {0, 1, 2}, {{"u", 1, ""}});
  EXPECT_THAT(table_.MissingOf(attempt_), ElementsAre(0, 2));
}

}  // namespace
}  // namespace cohort::head
