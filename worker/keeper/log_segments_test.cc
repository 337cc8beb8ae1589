#include "worker/keeper/log_segments.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/temp_dir.h"
#include "worker/keeper/files.h"
#include "worker/keeper/reports.h"

namespace cohort::keeper {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& path) {
  int error = 0;
  return ReadWhole(path, 1 << 20, &error).value_or("(unreadable)");
}

TEST(LogWriter, CutsSegmentsExactlyAtTheirSize) {
  const TempDir dir;
  const Directory logs(dir.path());
  LogWriter log(logs, "0.stdout.", {.segment_bytes = 4, .stream_bytes = 100});
  log.Append("abcdefghij", 10);
  int error = 0;
  const auto segments = ListSegments(dir.path(), "0.stdout.", &error);
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments.at(0), dir.File("0.stdout.00000000000000000000"));
  EXPECT_EQ(Contents(segments.at(0)), "abcd");
  EXPECT_EQ(Contents(segments.at(4)), "efgh");
  EXPECT_EQ(Contents(segments.at(8)), "ij");
}

TEST(LogWriter, RemovesTheOldestBeyondItsSize) {
  const TempDir dir;
  const Directory logs(dir.path());
  LogWriter log(logs, "0.stdout.", {.segment_bytes = 4, .stream_bytes = 8});
  for (int i = 0; i < 10; ++i) log.Append("abc", 3);
  int error = 0;
  const auto segments = ListSegments(dir.path(), "0.stdout.", &error);
  EXPECT_EQ(segments.begin()->first, 20u);
  EXPECT_EQ(segments.rbegin()->first, 28u);
  EXPECT_EQ(log.end_offset(), 30u);
}

TEST(LogWriter, TellsWhereItEnds) {
  const TempDir dir;
  const Directory logs(dir.path());
  LogWriter log(logs, "0.stderr.", {});
  ASSERT_EQ(log.Reserve(), "");
  log.Append("abc", 3);
  EXPECT_EQ(access(dir.File("0.stderr.end").c_str(), F_OK), -1);
  log.Close();
  EXPECT_EQ(Contents(dir.File("0.stderr.end")), Encode(LogEnd{3, 0}));
}

TEST(LogWriter, DropsAndCountsWhatTheDiskRefusesAndSaysWhere) {
  const TempDir dir;
  // Its file cannot be made for a while, as a disk may be full for a while.
  const std::string first = dir.File("0.stdout.00000000000000000000");
  ASSERT_EQ(symlink(dir.File("missing/file").c_str(), first.c_str()), 0);
  const Directory logs(dir.path());
  LogWriter log(logs, "0.stdout.", {.segment_bytes = 4, .stream_bytes = 100});
  log.Append("lost", 4);
  EXPECT_EQ(log.dropped_bytes(), 4u);
  ASSERT_EQ(unlink(first.c_str()), 0);
  log.Append("kept", 4);
  int error = 0;
  std::string all;
  for (const auto& [offset, path] :
       ListSegments(dir.path(), "0.stdout.", &error)) {
    EXPECT_EQ(offset, all.size());
    all += Contents(path);
  }
  EXPECT_EQ(all,
            "\n[cohort: 4 bytes of output lost here: No such file or "
            "directory]\nkept");
  EXPECT_EQ(log.end_offset(), all.size());
}

// A disk of 64 KiB.
class SmallDisk {
 public:
  SmallDisk() {
    mounted_ = mount("tmpfs", dir_.path().c_str(), "tmpfs", 0,
                     "size=64k,mode=700") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(dir_.path().c_str(), MNT_DETACH);
  }

  bool mounted() const { return mounted_; }
  const std::string& path() const { return dir_.path(); }

 private:
  TempDir dir_;
  bool mounted_ = false;
};

TEST(LogWriter, GoesOnWhenAFullDiskHasSpaceAgain) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a tmpfs";
  const Directory logs(disk.path());
  LogWriter log(logs, "0.stdout.", {});
  ASSERT_EQ(log.Reserve(), "");
  const std::string ballast(32 << 10, 'b');
  ASSERT_EQ(WriteByRename(disk.path(), "ballast", ballast, Durability::kCrash),
            "");
  const std::string output(100 << 10, 'x');
  log.Append(output.data(), output.size());
  const uint64_t dropped = log.dropped_bytes();
  EXPECT_GT(dropped, 60u << 10);
  const uint64_t written = log.end_offset();
  log.Append("more", 4);
  EXPECT_EQ(log.dropped_bytes(), dropped + 4);
  ASSERT_EQ(unlink((disk.path() + "/ballast").c_str()), 0);
  log.Append("after", 5);
  EXPECT_EQ(log.dropped_bytes(), dropped + 4);
  log.Close();
  int error = 0;
  const auto segments = ListSegments(disk.path(), "0.stdout.", &error);
  EXPECT_EQ(Contents(segments.at(0)).substr(written),
            "\n[cohort: " + std::to_string(dropped + 4) +
                " bytes of output lost here: No space left on device]\nafter");
  EXPECT_EQ(Contents(disk.path() + "/0.stdout.end"),
            Encode(LogEnd{static_cast<int64_t>(log.end_offset()),
                          static_cast<int64_t>(dropped + 4)}));
}

TEST(ReservedFile, CanBeWrittenOnAFullDisk) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a tmpfs";
  ReservedFile record;
  const Directory logs(disk.path());
  ASSERT_EQ(record.Reserve(logs, "record", 4096), "");
  EXPECT_THAT(WriteByRename(disk.path(), "ballast", std::string(64 << 10, 'b'),
                            Durability::kCrash),
              HasSubstr("No space left"));
  // What failed has freed its space: fill it for good.
  LogWriter log(logs, "0.stdout.", {});
  const std::string output(100 << 10, 'x');
  log.Append(output.data(), output.size());
  EXPECT_GT(log.dropped_bytes(), 0u);
  EXPECT_EQ(record.Commit("the end"), "");
  EXPECT_EQ(record.Sync(), "");
  EXPECT_EQ(Contents(disk.path() + "/record"), "the end");
}

TEST(WriteByRename, LeavesTheOldFileWhenTheNewOneDoesNotFit) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a tmpfs";
  ASSERT_EQ(WriteByRename(disk.path(), "f", "old", Durability::kPowerLoss), "");
  EXPECT_THAT(WriteByRename(disk.path(), "f", std::string(80 << 10, 'n'),
                            Durability::kPowerLoss),
              HasSubstr("No space left"));
  EXPECT_EQ(Contents(disk.path() + "/f"), "old");
}

}  // namespace
}  // namespace cohort::keeper
