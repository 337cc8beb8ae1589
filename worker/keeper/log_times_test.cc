#include "worker/keeper/log_times.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/temp_dir.h"
#include "worker/keeper/log_segments.h"

namespace cohort::keeper {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kSegment[] = "0.1.stdout.00000000000000000000";

class LogTimesTest : public ::testing::Test {
 protected:
  std::vector<LogTime> Read(uint64_t from, uint64_t to) {
    return ReadLogTimes(Path(), from, &to);
  }
  std::string Path() const { return dir_.File(LogTimesName(kSegment)); }

  TempDir dir_;
  Directory logs_{dir_.path()};
  LogTimesWriter writer_{logs_};
};

TEST_F(LogTimesTest, NotesWhatIsLaterFartherOrTurned) {
  writer_.Begin(kSegment, 0);
  writer_.Add(0, {.at_us = 1'000'000});
  writer_.Add(10, {.at_us = 1'049'999});
  writer_.Add(20, {.at_us = 1'050'000});
  writer_.Add(4'115, {.at_us = 1'050'001});
  writer_.Add(4'116, {.at_us = 1'050'002});
  writer_.Add(4'117, {.at_us = 1'050'003, .turned = true});
  writer_.Add(4'118, {.at_us = 900'000});
  EXPECT_THAT(
      Read(0, 5'000),
      ElementsAre(FieldsAre(0, 1'000'000), FieldsAre(20, 1'050'000),
                  FieldsAre(4'116, 1'050'002), FieldsAre(4'117, 1'050'003),
                  FieldsAre(4'118, 900'000)));
}

TEST_F(LogTimesTest, GivesThoseOfTheBytesAskedFor) {
  writer_.Begin(kSegment, 100);
  for (uint64_t i = 0; i < 10; ++i) {
    writer_.Add(100 + 10 * i,
                {.at_us = static_cast<int64_t>(i + 1), .turned = true});
  }
  EXPECT_THAT(Read(115, 130),
              ElementsAre(FieldsAre(110, 2), FieldsAre(120, 3)));
  EXPECT_THAT(Read(100, 101), ElementsAre(FieldsAre(100, 1)));
  EXPECT_THAT(Read(500, 600), ElementsAre(FieldsAre(190, 10)));
}

TEST_F(LogTimesTest, GivesNotMoreThanItsBound) {
  writer_.Begin(kSegment, 0);
  for (uint64_t i = 0; i < 3'000; ++i) {
    writer_.Add(i, {.at_us = static_cast<int64_t>(i + 1), .turned = true});
  }
  uint64_t to = 3'000;
  EXPECT_THAT(ReadLogTimes(Path(), 0, &to), SizeIs(kLogTimesMax));
  EXPECT_EQ(to, kLogTimesMax);
  to = 3'000;
  EXPECT_THAT(ReadLogTimes(Path(), 2'500, &to), SizeIs(500));
  EXPECT_EQ(to, 3'000u);
}

TEST_F(LogTimesTest, IsBoundedByTheBytesOfItsSegment) {
  writer_.Begin(kSegment, 0);
  for (uint64_t i = 0; i < 100'000; ++i) {
    writer_.Add(i, {.at_us = static_cast<int64_t>(i + 1), .turned = true});
  }
  struct stat file {};
  ASSERT_EQ(stat(Path().c_str(), &file), 0);
  EXPECT_LE(file.st_size, 16 * (1 + 4'096 + 100'000 / 64 + 1));
}

TEST_F(LogTimesTest, IgnoresATornEntryAndAForeignFile) {
  EXPECT_THAT(Read(0, 10), IsEmpty());
  writer_.Begin(kSegment, 0);
  writer_.Add(0, {.at_us = 5});
  writer_.Add(1, {.at_us = 6, .turned = true});
  ASSERT_EQ(truncate(Path().c_str(), 16 + 16 + 7), 0);
  EXPECT_THAT(Read(0, 10), ElementsAre(FieldsAre(0, 5)));
  ASSERT_EQ(truncate(Path().c_str(), 7), 0);
  EXPECT_THAT(Read(0, 10), IsEmpty());
  std::ofstream(Path()) << std::string(1'000, 'x');
  EXPECT_THAT(Read(0, 10), IsEmpty());
  std::ofstream(Path()) << "cohort times 1\n" << std::string(1'000, '\0');
  EXPECT_THAT(Read(0, 10), IsEmpty());
}

TEST_F(LogTimesTest, LeavesOutBytesOfUnknownTimes) {
  writer_.Begin(kSegment, 0);
  writer_.Add(0, {});
  EXPECT_EQ(access(Path().c_str(), F_OK), -1);
}

TEST_F(LogTimesTest, ComesAndGoesWithItsSegment) {
  LogWriter log(logs_, "0.1.stdout.", {.segment_bytes = 4, .stream_bytes = 4});
  log.Append("abcdef", 6, {.at_us = 7});
  EXPECT_THAT(Read(0, 4), ElementsAre(FieldsAre(0, 7)));
  log.Append("ghijkl", 6, {.at_us = 8});
  EXPECT_EQ(access(Path().c_str(), F_OK), -1);
  uint64_t to = 12;
  EXPECT_THAT(
      ReadLogTimes(dir_.File(LogTimesName(SegmentName("0.1.stdout.", 8))), 8,
                   &to),
      ElementsAre(FieldsAre(8, 8)));
}

}  // namespace
}  // namespace cohort::keeper
