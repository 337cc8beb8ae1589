#include "client/cli/log_printer.h"

#include <string>

#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::cli {
namespace {

class LogPrinterTest : public ::testing::Test {
 protected:
  LogPrinter PrinterFor(LogPrinter::Form form) {
    return LogPrinter(form, [this](LogStream stream, absl::string_view text) {
      (stream == v1::LOG_STREAM_STDOUT ? out_ : err_)
          .append(text.data(), text.size());
      return absl::OkStatus();
    });
  }

  static LogChunk Chunk(int rank, absl::string_view data, int attempt = 1,
                        LogStream stream = v1::LOG_STREAM_STDOUT) {
    return {.rank = rank, .stream = stream, .attempt = attempt, .data = data};
  }

  std::string out_;
  std::string err_;
};

TEST_F(LogPrinterTest, LeavesTheBytesOfASingleRankAlone) {
  LogPrinter printer = PrinterFor(LogPrinter::Form::kRaw);
  COHORT_ASSERT_OK(printer.Add(Chunk(0, absl::string_view("a\0b", 3))));
  COHORT_ASSERT_OK(printer.Finish());
  EXPECT_EQ(out_, std::string("a\0b", 3));
}

TEST_F(LogPrinterTest, KnowsWhetherALineIsBegun) {
  LogPrinter printer = PrinterFor(LogPrinter::Form::kRaw);
  EXPECT_FALSE(printer.IsMidLine());
  COHORT_ASSERT_OK(printer.Add(Chunk(0, "err", 1, v1::LOG_STREAM_STDERR)));
  EXPECT_TRUE(printer.IsMidLine());
  COHORT_ASSERT_OK(printer.Add(Chunk(0, "out\n")));
  COHORT_ASSERT_OK(printer.Add(Chunk(0, "")));
  EXPECT_FALSE(printer.IsMidLine());
  EXPECT_FALSE(printer.IsMidLine(v1::LOG_STREAM_STDOUT));
  EXPECT_TRUE(printer.IsMidLine(v1::LOG_STREAM_STDERR));
  COHORT_ASSERT_OK(printer.Add(Chunk(0, "or\n", 1, v1::LOG_STREAM_STDERR)));
  EXPECT_FALSE(printer.IsMidLine(v1::LOG_STREAM_STDERR));
}

TEST_F(LogPrinterTest, NeverMixesLinesOfRanks) {
  LogPrinter printer = PrinterFor(LogPrinter::Form::kPrefixed);
  COHORT_ASSERT_OK(printer.Add(Chunk(0, "half")));
  COHORT_ASSERT_OK(printer.Add(Chunk(1, "one\ntwo\n")));
  COHORT_ASSERT_OK(printer.Add(Chunk(0, " whole\n\nlast")));
  COHORT_ASSERT_OK(printer.Add(Chunk(0, "bad\n", 1, v1::LOG_STREAM_STDERR)));
  COHORT_ASSERT_OK(printer.Finish());
  EXPECT_EQ(out_, "[1] one\n[1] two\n[0] half whole\n[0] \n[0] last\n");
  EXPECT_EQ(err_, "[0] bad\n");
}

TEST_F(LogPrinterTest, BeginsANewLineWithANewAttempt) {
  LogPrinter printer = PrinterFor(LogPrinter::Form::kPrefixed);
  COHORT_ASSERT_OK(printer.Add(Chunk(0, "cut", 1)));
  COHORT_ASSERT_OK(printer.Add(Chunk(0, "again\n", 2)));
  EXPECT_EQ(out_, "[0] cut\n[0] again\n");
}

TEST_F(LogPrinterTest, PrintsEndlessLinesInParts) {
  LogPrinter printer = PrinterFor(LogPrinter::Form::kPrefixed);
  const std::string part(40 << 10, 'x');
  for (int i = 0; i < 4; ++i) COHORT_ASSERT_OK(printer.Add(Chunk(0, part)));
  EXPECT_EQ(out_.size(), 2 * (2 * part.size() + 5));
}

TEST_F(LogPrinterTest, SaysWhereBytesAreMissing) {
  LogChunk begin = Chunk(0, "later\n");
  begin.offset = begin.skipped = 17;
  LogChunk after = Chunk(0, "on\n");
  after.offset = 30;
  after.skipped = 2;
  const std::string mark =
      " bytes of output lost here: a log keeps its newest part only]\n";
  LogPrinter raw = PrinterFor(LogPrinter::Form::kRaw);
  COHORT_ASSERT_OK(raw.Add(begin));
  COHORT_ASSERT_OK(raw.Add(after));
  EXPECT_EQ(out_, "[cohort: 17" + mark + "later\n\n[cohort: 2" + mark + "on\n");
  out_.clear();
  LogPrinter prefixed = PrinterFor(LogPrinter::Form::kPrefixed);
  COHORT_ASSERT_OK(prefixed.Add(begin));
  COHORT_ASSERT_OK(prefixed.Add(Chunk(0, "half")));
  COHORT_ASSERT_OK(prefixed.Add(after));
  EXPECT_EQ(out_, "[0] [cohort: 17" + mark + "[0] later\n[0] half\n" +
                      "[0] [cohort: 2" + mark + "[0] on\n");
}

TEST_F(LogPrinterTest, SaysInJsonWhereALineCameFrom) {
  LogPrinter printer = PrinterFor(LogPrinter::Form::kJson);
  COHORT_ASSERT_OK(printer.Add(Chunk(3, "x\n", 2)));
  EXPECT_EQ(out_,
            "{\"attempt\":2,\"rank\":3,\"stream\":\"stdout\",\"line\":\"x\"}"
            "\n");
}

}  // namespace
}  // namespace cohort::cli
