#include "worker/log_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/seed.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "worker/keeper/log_segments.h"

namespace cohort::worker {
namespace {

using keeper::LogWriter;
using ::testing::ElementsAre;
using ::testing::FieldsAre;

LogChunk ReadOk(const LogReader& reader, uint64_t offset, size_t bytes_max) {
  absl::StatusOr<LogChunk> chunk = reader.Read(offset, bytes_max);
  COHORT_EXPECT_OK(chunk);
  return chunk.value_or(LogChunk{});
}

TEST(LogReader, ReadsAcrossSegments) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(3, 12, false),
                {.segment_bytes = 4, .stream_bytes = 100});
  log.Append("abcdefghij", 10);
  const LogReader reader(dir.path(), 3, 12, v1::LOG_STREAM_STDOUT);
  const LogChunk chunk = ReadOk(reader, 2, 5);
  EXPECT_EQ(chunk.offset, 2u);
  EXPECT_EQ(chunk.bytes, "cdefg");
  EXPECT_EQ(chunk.next_offset, 7u);
  EXPECT_FALSE(chunk.eof);
  EXPECT_THAT(reader.EndOffset(), IsOkAndHolds(10u));
}

TEST(LogReader, FindsNothingBeforeTheFirstByteAndTheEndAfterTheLast) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, true), {});
  ASSERT_EQ(log.Reserve(), "");
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDERR);
  EXPECT_EQ(ReadOk(reader, 0, 100).bytes, "");
  EXPECT_FALSE(ReadOk(reader, 0, 100).eof);
  log.Append("abc", 3);
  EXPECT_FALSE(ReadOk(reader, 0, 100).eof);
  log.Close();
  EXPECT_FALSE(ReadOk(reader, 0, 2).eof);
  EXPECT_TRUE(ReadOk(reader, 0, 3).eof);
  EXPECT_TRUE(ReadOk(reader, 3, 100).eof);
}

TEST(LogReader, SaysWhereItGoesOnWhenBytesWereRotatedAway) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false),
                {.segment_bytes = 4, .stream_bytes = 4});
  log.Append("abcdefghij", 10);
  const LogChunk chunk =
      ReadOk(LogReader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT), 1, 100);
  EXPECT_EQ(chunk.offset, 4u);
  EXPECT_EQ(chunk.bytes, "efghij");
}

TEST(LogReader, BeginsWithALineWhereTheRestWasRotatedAway) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false),
                {.segment_bytes = 8, .stream_bytes = 8});
  log.Append("aaa\nbbbbbbb\ncccc\n", 17);
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  const LogChunk chunk = ReadOk(reader, 0, 100);
  EXPECT_EQ(chunk.offset, 12u);
  EXPECT_EQ(chunk.bytes, "cccc\n");
  EXPECT_EQ(chunk.next_offset, 17u);
  // A piece that has no more than the line's end is passed on all the same.
  EXPECT_EQ(ReadOk(reader, 0, 4).bytes, "bbb\n");
  // Who asks for a kept byte gets it.
  EXPECT_EQ(ReadOk(reader, 9, 100).bytes, "bb\ncccc\n");
}

TEST(LogReader, StepsOverWhatThePowerTook) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false),
                {.segment_bytes = 4, .stream_bytes = 100});
  log.Append("abcdefgh", 8);
  ASSERT_EQ(
      truncate(dir.File(keeper::SegmentName("0.1.stdout.", 0)).c_str(), 2), 0);
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  const LogChunk before = ReadOk(reader, 0, 100);
  EXPECT_EQ(before.bytes, "ab");
  const LogChunk after = ReadOk(reader, before.next_offset, 100);
  EXPECT_EQ(after.offset, 4u);
  EXPECT_EQ(after.bytes, "efgh");
}

TEST(LogReader, EndsWhereThePowerTookTheRest) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false), {});
  ASSERT_EQ(log.Reserve(), "");
  log.Append("abcd", 4);
  log.Close();
  ASSERT_EQ(
      truncate(dir.File(keeper::SegmentName("0.1.stdout.", 0)).c_str(), 2), 0);
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  EXPECT_FALSE(ReadOk(reader, 0, 100).eof);
  EXPECT_TRUE(ReadOk(reader, 2, 100).eof);
}

TEST(LogReader, MissesAndRepeatsNothingInAnyOrderOfReadsAndWrites) {
  // LR-1, LW-1, under rotation but without removal.
  std::mt19937_64 random(TestSeed());
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false),
                {.segment_bytes = 7, .stream_bytes = 1 << 20});
  ASSERT_EQ(log.Reserve(), "");
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  std::string written;
  std::string read;
  const auto read_some = [&](size_t bytes_max) {
    const LogChunk chunk = ReadOk(reader, read.size(), bytes_max);
    EXPECT_EQ(chunk.offset, read.size());
    read += chunk.bytes;
    EXPECT_EQ(chunk.next_offset, read.size());
    return chunk.eof;
  };
  for (int i = 0; i < 200; ++i) {
    const std::string more(random() % 20, static_cast<char>('a' + i % 26));
    log.Append(more.data(), more.size());
    written += more;
    EXPECT_FALSE(read_some(random() % 30));
  }
  log.Close();
  while (!read_some(1 + random() % 30)) {
  }
  EXPECT_EQ(read, written);
}

TEST(LogReader, CountsFromTheEnd) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false), {});
  log.Append("abcdef", 6);
  SlotLogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  EXPECT_EQ(reader.Read(-2, 9)->offset, 4u);
  EXPECT_EQ(reader.Read(-7, 9)->offset, 0u);
  EXPECT_EQ(reader.Read(std::numeric_limits<int64_t>::min(), 9)->offset, 0u);
  EXPECT_EQ(reader.Read(9, 9)->offset, 9u);
}

TEST(LogReader, TellsWhenBytesWereReadAcrossSegments) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false),
                {.segment_bytes = 8, .stream_bytes = 100});
  log.Append("abcd", 4, {.at_us = 1, .turned = true});
  log.Append("efghij", 6, {.at_us = 2, .turned = true});
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  EXPECT_THAT(ReadOk(reader, 2, 100).times,
              ElementsAre(FieldsAre(2, 1), FieldsAre(4, 2), FieldsAre(8, 2)));
  EXPECT_THAT(ReadOk(reader, 0, 3).times, ElementsAre(FieldsAre(0, 1)));
}

TEST(LogReader, GivesFewerBytesWhereTheirTimesAreMany) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false), {});
  for (int i = 0; i < 3'000; ++i) log.Append("x", 1, {i + 1, true});
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  const LogChunk chunk = ReadOk(reader, 0, 10'000);
  EXPECT_EQ(chunk.bytes.size(), keeper::kLogTimesMax);
  EXPECT_EQ(chunk.times.size(), keeper::kLogTimesMax);
  EXPECT_EQ(ReadOk(reader, chunk.next_offset, 10).times.front().at_us,
            int64_t{keeper::kLogTimesMax} + 1);
}

TEST(LogReader, TellsCheaplyWhetherThereMayBeMore) {
  const TempDir dir;
  // As if nothing had been made there for a while.
  const auto settle = [&dir] {
    const struct timespec past[2] = {{.tv_sec = 1, .tv_nsec = 0},
                                     {.tv_sec = 1, .tv_nsec = 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, dir.path().c_str(), past, 0), 0);
  };
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false),
                {.segment_bytes = 4, .stream_bytes = 100});
  ASSERT_EQ(log.Reserve(), "");
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  uint64_t offset = 0;
  for (const char* const more : {"ab", "c", "de"}) {
    settle();
    const absl::StatusOr<LogMark> mark = reader.Mark();
    COHORT_ASSERT_OK(mark);
    EXPECT_FALSE(reader.MayHaveMore(*mark, offset));
    log.Append(more, strlen(more));
    EXPECT_TRUE(reader.MayHaveMore(*mark, offset)) << more;
    offset += strlen(more);
  }
  settle();
  const absl::StatusOr<LogMark> mark = reader.Mark();
  COHORT_ASSERT_OK(mark);
  EXPECT_FALSE(reader.MayHaveMore(*mark, offset));
  log.Close();
  EXPECT_TRUE(reader.MayHaveMore(*mark, offset));
}

TEST(LogReader, IsNotFoundWithoutItsDirectory) {
  EXPECT_THAT(LogReader("/nonexistent", 0, 1, v1::LOG_STREAM_STDOUT).Read(0, 1),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(SealLogs, EndsStreamsWhereTheyAreAndOnlyOnce) {
  const TempDir dir;
  const keeper::Directory logs(dir.path());
  LogWriter log(logs, keeper::LogStem(0, 1, false), {});
  log.Append("abc", 3);
  COHORT_ASSERT_OK(SealLogs(dir.path(), 0, 1));
  const LogReader reader(dir.path(), 0, 1, v1::LOG_STREAM_STDOUT);
  EXPECT_TRUE(ReadOk(reader, 0, 10).eof);
  EXPECT_TRUE(
      ReadOk(LogReader(dir.path(), 0, 1, v1::LOG_STREAM_STDERR), 0, 1).eof);
  log.Append("de", 2);
  COHORT_ASSERT_OK(SealLogs(dir.path(), 0, 1));
  EXPECT_TRUE(ReadOk(reader, 0, 3).eof);
}

}  // namespace
}  // namespace cohort::worker
