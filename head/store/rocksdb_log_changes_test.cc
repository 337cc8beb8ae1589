#include "head/store/rocksdb_log_changes.h"

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::head {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

std::string Batch(uint64_t number, uint32_t count) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) {
    bytes.push_back(static_cast<char>(number >> (8 * i)));
  }
  for (int i = 0; i < 4; ++i) {
    bytes.push_back(static_cast<char>(count >> (8 * i)));
  }
  return bytes + "rows";
}

std::optional<std::string> Add(LogChanges& changes, uint64_t number,
                               uint32_t count) {
  const std::string batch = Batch(number, count);
  return changes.Add({.type = LogRecordType::kFull, .payload = batch});
}

TEST(LogChangesTest, NumbersFollowWithoutHoles) {
  LogChanges changes;
  EXPECT_EQ(Add(changes, 5, 0), std::nullopt) << "where a log begins";
  EXPECT_EQ(changes.first(), 0u);
  EXPECT_EQ(Add(changes, 5, 3), std::nullopt);
  EXPECT_EQ(Add(changes, 8, 1), std::nullopt);
  EXPECT_EQ(changes.first(), 5u);
  EXPECT_THAT(Add(changes, 10, 1), Optional(HasSubstr("changes 9 to 9")));
}

TEST(LogChangesTest, AChangeIsThereOnce) {
  LogChanges changes;
  EXPECT_EQ(Add(changes, 5, 3), std::nullopt);
  EXPECT_THAT(Add(changes, 5, 3), Optional(HasSubstr("after change 7")));
}

TEST(LogChangesTest, ALaterLogHasGreaterNumbersPerhapsAfterAHole) {
  LogChanges changes;
  EXPECT_EQ(Add(changes, 5, 3), std::nullopt);
  changes.BeginLog();
  EXPECT_EQ(changes.first(), 0u);
  EXPECT_EQ(Add(changes, 10, 1), std::nullopt);
  EXPECT_EQ(changes.first(), 10u);
  changes.BeginLog();
  EXPECT_THAT(Add(changes, 10, 1), Optional(HasSubstr("after change 10")));
}

TEST(LogChangesTest, ABatchMayBeInPartsOfAnySize) {
  LogChanges changes;
  const std::string batch = Batch(5, 3);
  const absl::string_view bytes = batch;
  for (size_t first = 0; first < bytes.size(); ++first) {
    LogChanges parts;
    EXPECT_EQ(parts.Add({LogRecordType::kFirst, bytes.substr(0, first)}),
              std::nullopt);
    EXPECT_EQ(parts.Add({LogRecordType::kMiddle, bytes.substr(first, 1)}),
              std::nullopt);
    EXPECT_EQ(parts.first(), 0u);
    EXPECT_EQ(parts.Add({LogRecordType::kLast, bytes.substr(first + 1)}),
              std::nullopt);
    EXPECT_EQ(parts.first(), 5u);
    EXPECT_EQ(Add(parts, 8, 1), std::nullopt);
  }
}

TEST(LogChangesTest, PartsWithoutTheirOthersAreDamage) {
  const std::string batch = Batch(5, 3);
  LogChanges no_beginning;
  EXPECT_NE(no_beginning.Add({LogRecordType::kLast, batch}), std::nullopt);
  LogChanges no_end;
  EXPECT_EQ(no_end.Add({LogRecordType::kFirst, batch}), std::nullopt);
  EXPECT_NE(no_end.Add({LogRecordType::kFull, batch}), std::nullopt);
  LogChanges too_short;
  EXPECT_NE(too_short.Add({LogRecordType::kFull, "rows"}), std::nullopt);
}

// What this program cannot read RocksDB takes or refuses.
TEST(LogChangesTest, NewerRecordsAreLeftToRocksdb) {
  LogChanges changes;
  EXPECT_EQ(changes.Add({static_cast<LogRecordType>(9), "zstd"}), std::nullopt);
  EXPECT_THAT(Add(changes, 5, 3), Eq(std::nullopt));
  EXPECT_THAT(Add(changes, 5, 3), Eq(std::nullopt));
  changes.BeginLog();
  EXPECT_EQ(Add(changes, 5, 3), std::nullopt);
  EXPECT_NE(Add(changes, 5, 3), std::nullopt);
}

}  // namespace
}  // namespace cohort::head
