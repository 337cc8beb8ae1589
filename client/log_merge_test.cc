#include "client/log_merge.h"

#include <string>

#include "gtest/gtest.h"

namespace cohort::client {
namespace {

constexpr absl::Duration kHold = absl::Milliseconds(100);

LogMerge::Piece PieceOf(const std::string& data, int at_s,
                        absl::Duration came = absl::ZeroDuration()) {
  LogMerge::Piece piece;
  piece.data = data;
  piece.came = came;
  piece.chunk.at =
      at_s == 0 ? absl::InfinitePast() : absl::FromUnixSeconds(at_s);
  return piece;
}

std::string TakeAll(LogMerge& merge, absl::Duration now) {
  std::string all;
  while (auto piece = merge.Next(now)) all += piece->data;
  return all;
}

TEST(LogMerge, GivesTheEarliestOnceAllHaveGiven) {
  LogMerge merge(2, absl::InfiniteDuration());
  merge.Add(0, PieceOf("a", 1));
  merge.Add(0, PieceOf("c", 3));
  EXPECT_EQ(TakeAll(merge, absl::Hours(1)), "");
  merge.Add(1, PieceOf("b", 2));
  merge.Add(1, PieceOf("d", 4));
  EXPECT_EQ(TakeAll(merge, absl::Hours(1)), "abc");
  merge.End(0);
  EXPECT_EQ(TakeAll(merge, absl::Hours(1)), "d");
}

TEST(LogMerge, WaitsNoLongerThanItIsToldTo) {
  LogMerge merge(2, kHold);
  merge.Add(0, PieceOf("b", 2, absl::Seconds(1)));
  EXPECT_EQ(merge.due(), absl::Seconds(1) + kHold);
  EXPECT_EQ(TakeAll(merge, absl::Seconds(1)), "");
  merge.Add(1, PieceOf("a", 1, absl::Seconds(1) + kHold));
  EXPECT_EQ(TakeAll(merge, absl::Seconds(1) + kHold), "ab");
}

TEST(LogMerge, GoesOnWhenItHoldsTooMuch) {
  LogMerge merge(2, kHold);
  merge.Add(0, PieceOf(std::string(LogMerge::kBytesMax + 1, 'x'), 1));
  merge.Add(0, PieceOf("y", 1));
  EXPECT_EQ(TakeAll(merge, absl::ZeroDuration()).size(),
            LogMerge::kBytesMax + 1);
  EXPECT_EQ(merge.bytes(0), 1u);
}

TEST(LogMerge, KeepsTheOrderOfASourceWhoseClockWasSet) {
  LogMerge merge(2, absl::InfiniteDuration());
  merge.Add(0, PieceOf("b", 5));
  merge.Add(0, PieceOf("c", 1));
  merge.Add(1, PieceOf("a", 4));
  merge.Add(1, PieceOf("d", 6));
  merge.End(0);
  merge.End(1);
  EXPECT_EQ(TakeAll(merge, absl::ZeroDuration()), "abcd");
}

TEST(LogMerge, DoesNotKeepWhatHasNoTimeWaiting) {
  LogMerge merge(2, absl::InfiniteDuration());
  merge.Add(0, PieceOf("a", 0));
  EXPECT_EQ(TakeAll(merge, absl::ZeroDuration()), "a");
}

}  // namespace
}  // namespace cohort::client
