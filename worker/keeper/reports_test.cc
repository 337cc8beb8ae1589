#include "worker/keeper/reports.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

using ::testing::HasSubstr;

const ProcessKey kProcess = {"0a", 2, 7};

// The bytes lie on disks and pass between versions: a change is a new version.

TEST(Reports, ExitIsGolden) {
  ExitReport report;
  report.process = kProcess;
  report.cause = ExitCause::kStopped;
  report.signal = 15;
  report.oom_killed = true;
  report.ended_wall_ns = 2'000'000'007;
  report.ran_ms = 1'000;
  report.message = "why";
  const std::string bytes = Encode(report);
  EXPECT_EQ(
      bytes,
      "cohort-keeper exit 1\nprocess 6:0a.2.7\ncause 1:1\nexit_code 2:-1\n"
      "signal 2:15\noom_killed 1:1\n"
      "ended_wall_ns 10:2000000007\n"
      "ran_ms 4:1000\nmessage 3:why\ncrc32 9e3a39b7\n");
  std::string error;
  EXPECT_EQ(Parse<ExitReport>(bytes, &error), report) << error;

  report.cause = ExitCause::kKeeperStopped;
  EXPECT_THAT(Encode(report), HasSubstr("\ncause 1:5\n"));
  EXPECT_EQ(Parse<ExitReport>(Encode(report), &error), report) << error;
}

TEST(Reports, ExitHasACodeOrASignalAndNotBoth) {
  ExitReport report;
  report.process = kProcess;
  std::string error;
  EXPECT_EQ(Parse<ExitReport>(Encode(report), &error), std::nullopt);
  EXPECT_THAT(error, HasSubstr("either an exit code or a signal"));
  report.exit_code = 0;
  EXPECT_EQ(Parse<ExitReport>(Encode(report), &error), report);
  report.signal = 9;
  EXPECT_EQ(Parse<ExitReport>(Encode(report), &error), std::nullopt);
}

TEST(Reports, OthersAreGolden) {
  std::string error;
  const KeeperReport keeper = {12, 34, "boot", "/c"};
  EXPECT_EQ(Encode(keeper),
            "cohort-keeper keeper 1\npid 2:12\n"
            "start_time 2:34\nboot_id 4:boot\ncgroup 2:/c\n"
            "crc32 76fb8ada\n");
  EXPECT_EQ(Parse<KeeperReport>(Encode(keeper), &error), keeper) << error;
  const StartedReport started = {kProcess, 12, 34};
  EXPECT_EQ(Encode(started),
            "cohort-keeper started 1\nprocess 6:0a.2.7\npid 2:12\n"
            "start_time 2:34\ncrc32 7c0602b6\n");
  EXPECT_EQ(Parse<StartedReport>(Encode(started), &error), started) << error;
  const EndedReport ended = {kProcess};
  EXPECT_EQ(Encode(ended),
            "cohort-keeper ended 1\nprocess 6:0a.2.7\ncrc32 6662a66f\n");
  EXPECT_EQ(Parse<EndedReport>(Encode(ended), &error), ended) << error;
  const LogEnd end = {7, 8};
  EXPECT_EQ(Encode(end),
            "cohort-keeper log_end 1\noffset 1:7\ndropped_bytes 1:8\n"
            "crc32 74c23695\n");
  EXPECT_EQ(Parse<LogEnd>(Encode(end), &error), end) << error;
  const Command stop = {Command::Kind::kStop, 0, 9, {kProcess, {"0b", 0, 1}}};
  EXPECT_EQ(Encode(stop),
            "cohort-keeper command 1\nkind 1:1\nnumber 1:0\ngrace_ms 1:9\n"
            "process 6:0a.2.7\nprocess 6:0b.0.1\ncrc32 13c0fbb5\n");
  EXPECT_EQ(Parse<Command>(Encode(stop), &error), stop) << error;
  const Answer answer = {3, "full"};
  EXPECT_EQ(Encode(answer),
            "cohort-keeper answer 1\nnumber 1:3\nerror 4:full\n"
            "crc32 55e0de04\n");
  EXPECT_EQ(Parse<Answer>(Encode(answer), &error), answer) << error;
}

TEST(Reports, TheLargestCommandFits) {
  const ProcessKey longest = {std::string(64, 'a'),
                              std::numeric_limits<int>::max(),
                              std::numeric_limits<int64_t>::max()};
  Command begin = {Command::Kind::kBegin, 1, 0, {}};
  begin.processes.resize(kProcessesMax, longest);
  EXPECT_LE(Encode(begin).size(), kCommandBytesMax);
}

TEST(Reports, OneKindIsNotTakenForAnother) {
  std::string error;
  EXPECT_EQ(Parse<Answer>(Encode(LogEnd{}), &error), std::nullopt);
  EXPECT_EQ(Parse<Command>(Encode(EndedReport{kProcess}), &error),
            std::nullopt);
  EXPECT_EQ(RecordKind(Encode(EndedReport{kProcess})), EndedReport::kKind);
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
