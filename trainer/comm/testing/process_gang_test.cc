#include "trainer/comm/testing/process_gang.h"

#include <unistd.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::trainer {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

TEST(ProcessGangTest, RanksFindEachOtherAndTell) {
  auto gang = ProcessGang::Start(3, [](ProcessGang::Place& place) {
    const int rank = place.control.rank();
    const auto words =
        place.exchange("word", absl::StrCat("from ", rank), kLong);
    if (!words.ok()) return words.status();
    for (const std::string& word : *words) place.tell(word);
    int64_t sum = rank;
    return place.control.AllReduce(Buffer::Of(std::span(&sum, 1)),
                                   ReduceOp::kSum, kLong);
  });
  ASSERT_THAT(gang, IsOk());
  for (int rank = 0; rank < 3; ++rank) {
    for (int from = 0; from < 3; ++from) {
      EXPECT_THAT((*gang)->Hear(rank),
                  IsOkAndHolds(absl::StrCat("from ", from)));
    }
    EXPECT_THAT((*gang)->Hear(rank), StatusIs(absl::StatusCode::kUnavailable));
  }
  EXPECT_THAT((*gang)->EndAll(), IsOk());
}

TEST(ProcessGangTest, SaysHowARankEnded) {
  auto gang = ProcessGang::Start(2, [](ProcessGang::Place& place) {
    return place.control.rank() == 0 ? absl::OkStatus()
                                     : absl::DataLossError("two\nlines");
  });
  ASSERT_THAT(gang, IsOk());
  EXPECT_THAT((*gang)->EndAll(),
              StatusIs(absl::StatusCode::kDataLoss, "rank 1: two lines"));
}

// What a collective of the survivors says of a killed and of a stopped rank.
TEST(ProcessGangTest, KillsAndStops) {
  auto gang = ProcessGang::Start(3, [](ProcessGang::Place& place) {
    const absl::Status met = place.control.Barrier(kLong);
    if (!met.ok()) return met;
    place.tell("met");
    while (place.control.rank() != 0) pause();
    return place.control.Barrier(kLong);
  });
  ASSERT_THAT(gang, IsOk());
  for (int rank = 0; rank < 3; ++rank) {
    ASSERT_THAT((*gang)->Hear(rank), IsOkAndHolds("met"));
  }
  (*gang)->Stop(2);
  (*gang)->Kill(1);
  EXPECT_THAT((*gang)->End(0),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("local rank 1")));
  EXPECT_THAT((*gang)->End(1),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("signal 9")));
}

TEST(ProcessGangTest, EndsWhatDoesNotEnd) {
  auto gang = ProcessGang::Start(1, [](ProcessGang::Place&) -> absl::Status {
    while (true) pause();
  });
  ASSERT_THAT(gang, IsOk());
  EXPECT_THAT((*gang)->End(0, absl::Milliseconds(20)),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

}  // namespace
}  // namespace cohort::trainer
