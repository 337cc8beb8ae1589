#include "worker/keeper/reports.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

using ::testing::HasSubstr;

// The bytes lie on disks and pass between versions: a change is a new version.

TEST(Reports, ExitIsGolden) {
  ExitReport report;
  report.rank = 2;
  report.cause = ExitCause::kStopped;
  report.signal = 15;
  report.oom_killed = true;
  report.ended_wall_ns = 2'000'000'007;
  report.ran_ms = 1'000;
  report.message = "why";
  const std::string bytes = Encode(report);
  EXPECT_EQ(bytes,
            "cohort-keeper exit 1\nrank 1:2\ncause 1:1\nexit_code 2:-1\n"
            "signal 2:15\noom_killed 1:1\n"
            "ended_wall_ns 10:2000000007\n"
            "ran_ms 4:1000\nmessage 3:why\ncrc32 b720873e\n");
  std::string error;
  EXPECT_EQ(ParseExit(bytes, &error), report) << error;

  report.cause = ExitCause::kKeeperStopped;
  EXPECT_THAT(Encode(report), HasSubstr("\ncause 1:5\n"));
  EXPECT_EQ(ParseExit(Encode(report), &error), report) << error;
}

TEST(Reports, ExitHasACodeOrASignalAndNotBoth) {
  ExitReport report;
  std::string error;
  EXPECT_EQ(ParseExit(Encode(report), &error), std::nullopt);
  EXPECT_THAT(error, HasSubstr("either an exit code or a signal"));
  report.exit_code = 0;
  EXPECT_EQ(ParseExit(Encode(report), &error), report);
  report.signal = 9;
  EXPECT_EQ(ParseExit(Encode(report), &error), std::nullopt);
}

TEST(Reports, OthersAreGolden) {
  std::string error;
  const KeeperReport keeper = {"0af1", 12, 34, "boot", "/c", "no"};
  EXPECT_EQ(Encode(keeper),
            "cohort-keeper keeper 1\nattempt 4:0af1\npid 2:12\n"
            "start_time 2:34\nboot_id 4:boot\ncgroup 2:/c\n"
            "cgroup_missing 2:no\ncrc32 1f490741\n");
  EXPECT_EQ(ParseKeeper(Encode(keeper), &error), keeper) << error;
  const StartedReport started = {1, 12, 34};
  EXPECT_EQ(Encode(started),
            "cohort-keeper started 1\nrank 1:1\npid 2:12\nstart_time 2:34\n"
            "crc32 1394a17c\n");
  EXPECT_EQ(ParseStarted(Encode(started), &error), started) << error;
  const DoneReport done = {2};
  EXPECT_EQ(Encode(done), "cohort-keeper done 1\nranks 1:2\ncrc32 6f341617\n");
  EXPECT_EQ(ParseDone(Encode(done), &error), done) << error;
  const LogEnd end = {7, 8};
  EXPECT_EQ(Encode(end),
            "cohort-keeper log_end 1\noffset 1:7\ndropped_bytes 1:8\n"
            "crc32 74c23695\n");
  EXPECT_EQ(ParseLogEnd(Encode(end), &error), end) << error;
  const StopCommand stop = {9};
  EXPECT_EQ(Encode(stop),
            "cohort-keeper stop 1\ngrace_ms 1:9\ncrc32 a130029d\n");
  EXPECT_EQ(ParseStop(Encode(stop), &error), stop) << error;
}

TEST(Reports, OneKindIsNotTakenForAnother) {
  std::string error;
  EXPECT_EQ(ParseDone(Encode(LogEnd{}), &error), std::nullopt);
  EXPECT_EQ(ParseStop(Encode(DoneReport{1}), &error), std::nullopt);
  EXPECT_EQ(RecordKind(Encode(DoneReport{1})), kDoneKind);
  EXPECT_EQ(RecordKind("hello"), "");
}

TEST(Reports, LongMessagesAreCutToFitAPacket) {
  ExitReport report;
  report.exit_code = 1;
  report.message = std::string(1 << 20, 'x');
  EXPECT_LE(Encode(report).size(), kPacketBytesMax);
}

}  // namespace
}  // namespace cohort::keeper
