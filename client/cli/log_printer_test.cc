#include "client/cli/log_printer.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"

namespace cohort::cli {
namespace {

constexpr char kErase[] = "\r\033[K";
constexpr char kMark[] =
    " bytes of output lost here: a log keeps its newest part only]\n";

class LogPrinterTest : public ::testing::Test {
 protected:
  LogPrinter PrinterFor(const LogLayout& layout) {
    return LogPrinter(layout, [this](LogStream, absl::string_view text) {
      out_.append(text.data(), text.size());
      return absl::OkStatus();
    });
  }

  static LogChunk Chunk(int rank, absl::string_view data, int attempt = 1,
                        LogStream stream = v1::LOG_STREAM_STDOUT) {
    return {.rank = rank, .stream = stream, .attempt = attempt, .data = data};
  }
  void Add(LogPrinter& printer, const LogChunk& chunk) {
    COHORT_EXPECT_OK(printer.Add(chunk, now_));
  }
  void AddError(LogPrinter& printer, absl::string_view data) {
    Add(printer, Chunk(0, data, 1, v1::LOG_STREAM_STDERR));
  }
  // What is printed in the meantime.
  std::string After(LogPrinter& printer, absl::Duration time) {
    Take();
    now_ += time;
    COHORT_EXPECT_OK(printer.ShowDue(now_));
    return Take();
  }
  std::string Take() { return std::exchange(out_, {}); }

  absl::Duration now_ = absl::Seconds(100);
  std::string out_;
};

TEST_F(LogPrinterTest, LeavesTheBytesOfOneSourceAlone) {
  LogPrinter printer = PrinterFor({.one_source = true, .follows = true});
  Add(printer, Chunk(0, absl::string_view("a\0b\r", 4)));
  EXPECT_EQ(Take(), std::string("a\0b\r", 4));
  COHORT_ASSERT_OK(printer.Finish());
  EXPECT_EQ(Take(), "");
  COHORT_ASSERT_OK(printer.BreakLine());
  EXPECT_EQ(Take(), "\n");
  COHORT_ASSERT_OK(printer.BreakLine());
  EXPECT_EQ(Take(), "");
}

TEST_F(LogPrinterTest, LeavesTheLinesOfTwoStreamsWholeAndTheirBytesAlone) {
  LogPrinter printer = PrinterFor({});
  Add(printer, Chunk(0, "ha"));
  AddError(printer, "bad\r\nwor");
  Add(printer, Chunk(0, "lf\n\nlast"));
  COHORT_ASSERT_OK(printer.Finish());
  EXPECT_EQ(Take(), "bad\r\nhalf\n\nlast\nwor");
}

TEST_F(LogPrinterTest, ShowsABegunLineAfterAWhile) {
  LogPrinter printer = PrinterFor({.follows = true});
  Add(printer, Chunk(0, "half"));
  EXPECT_EQ(After(printer, absl::Milliseconds(499)), "");
  EXPECT_EQ(After(printer, absl::Milliseconds(1)), "half");
  Add(printer, Chunk(0, " and"));
  EXPECT_EQ(Take(), " and");
  AddError(printer, "bad\n");
  EXPECT_EQ(Take(), "\nbad\n");
  Add(printer, Chunk(0, " half\n"));
  EXPECT_EQ(Take(), " half\n");
}

TEST_F(LogPrinterTest, NeverMixesLinesOfRanks) {
  LogPrinter printer = PrinterFor({.ranks = true});
  Add(printer, Chunk(0, "half"));
  Add(printer, Chunk(1, "one\ntwo\n"));
  Add(printer, Chunk(0, " whole\n\nlast"));
  AddError(printer, "bad\n");
  COHORT_ASSERT_OK(printer.Finish());
  EXPECT_EQ(Take(),
            "[1] one\n[1] two\n[0] half whole\n[0] \n[0] bad\n[0] last\n");
}

TEST_F(LogPrinterTest, GoesOnWithABrokenLineWhereNothingCanBeRedrawn) {
  LogPrinter printer = PrinterFor({.ranks = true, .follows = true});
  Add(printer, Chunk(0, "half"));
  EXPECT_EQ(After(printer, absl::Milliseconds(500)), "[0] half");
  Add(printer, Chunk(1, "one\n"));
  EXPECT_EQ(Take(), "\n[1] one\n");
  Add(printer, Chunk(0, " and"));
  EXPECT_EQ(After(printer, absl::Seconds(5)), "[0]  and");
  Add(printer, Chunk(1, "two\n"));
  EXPECT_EQ(Take(), "\n[1] two\n");
  Add(printer, Chunk(0, "\n\nnext\n"));
  EXPECT_EQ(Take(), "[0] \n[0] next\n");
}

TEST_F(LogPrinterTest, ShowsABrokenLineAgainOnATerminal) {
  LogPrinter printer =
      PrinterFor({.ranks = true, .follows = true, .columns = 80});
  Add(printer, Chunk(0, "half"));
  EXPECT_EQ(After(printer, absl::Milliseconds(500)), "[0] half");
  Add(printer, Chunk(1, "one\n"));
  EXPECT_EQ(Take(), "\n[1] one\n");
  Add(printer, Chunk(0, "\n"));
  EXPECT_EQ(Take(), "[0] half\n");
}

TEST_F(LogPrinterTest, PrintsTheLastStateOfALineThatOverwritesItself) {
  LogPrinter printer = PrinterFor({.ranks = true});
  Add(printer, Chunk(0, "\r 1%\r 50%"));
  Add(printer, Chunk(0, "\r100%\r\nabc\r\n"));
  EXPECT_EQ(Take(), "[0] 100%\n[0] abc\n");
}

TEST_F(LogPrinterTest, ShowsABarAsLinesNowAndThenWhereItCannotBeRedrawn) {
  LogPrinter printer = PrinterFor({.ranks = true, .follows = true});
  Add(printer, Chunk(0, "\r 1%"));
  EXPECT_EQ(After(printer, absl::Milliseconds(500)), "[0]  1%");
  Add(printer, Chunk(0, "\r 2%"));
  EXPECT_EQ(After(printer, absl::Seconds(4)), "");
  Add(printer, Chunk(0, "\r 3%"));
  EXPECT_EQ(After(printer, absl::Seconds(1)), "\n[0]  3%");
  Add(printer, Chunk(1, "one\n"));
  EXPECT_EQ(Take(), "\n[1] one\n");
  Add(printer, Chunk(0, "\r 4%\n"));
  EXPECT_EQ(Take(), "[0]  4%\n");
}

TEST_F(LogPrinterTest, RedrawsABarOnATerminalAndPrintsLinesAboveIt) {
  LogPrinter printer = PrinterFor({.follows = true, .columns = 80});
  AddError(printer, "\r 1%");
  EXPECT_EQ(After(printer, absl::Milliseconds(500)), " 1%");
  AddError(printer, "\r 2%");
  EXPECT_EQ(After(printer, absl::Milliseconds(100)),
            absl::StrCat(kErase, " 2%"));
  Add(printer, Chunk(0, "one\n"));
  EXPECT_EQ(Take(), absl::StrCat(kErase, "one\n"));
  AddError(printer, "\r 3%");
  EXPECT_EQ(After(printer, absl::Milliseconds(500)), " 3%");
  AddError(printer, "\r 4%\n");
  EXPECT_EQ(Take(), absl::StrCat(kErase, " 4%\n"));
}

TEST_F(LogPrinterTest, BarsOfRanksTakeTurns) {
  LogPrinter printer =
      PrinterFor({.ranks = true, .follows = true, .columns = 80});
  Add(printer, Chunk(0, "\ra\rA"));
  Add(printer, Chunk(1, "\rb\rB"));
  EXPECT_EQ(After(printer, absl::Milliseconds(500)), "[0] A");
  EXPECT_EQ(After(printer, absl::Milliseconds(499)), "");
  EXPECT_EQ(After(printer, absl::Milliseconds(1)),
            absl::StrCat(kErase, "[1] B"));
}

TEST_F(LogPrinterTest, ClipsABarToANarrowTerminalUntilItsLineEnds) {
  LogPrinter printer = PrinterFor({.follows = true, .columns = 8});
  Add(printer, Chunk(0, "\r-\r██████████"));
  EXPECT_EQ(After(printer, absl::Milliseconds(500)), "███████");
  Add(printer, Chunk(0, "!\n"));
  EXPECT_EQ(Take(), absl::StrCat(kErase, "██████████!\n"));
}

TEST_F(LogPrinterTest, GoesOnWithAWideLineThatIsNoBar) {
  LogPrinter printer =
      PrinterFor({.one_source = true, .follows = true, .columns = 8});
  Add(printer, Chunk(0, "0123456789"));
  EXPECT_EQ(After(printer, absl::Milliseconds(100)), "0123456789");
  Add(printer, Chunk(0, "ab"));
  EXPECT_EQ(After(printer, absl::Milliseconds(100)), "ab");
}

TEST_F(LogPrinterTest, BeginsANewLineWithANewAttempt) {
  LogPrinter printer = PrinterFor({.ranks = true});
  Add(printer, Chunk(0, "cut", 1));
  Add(printer, Chunk(0, "again\n", 2));
  EXPECT_EQ(Take(), "[0] cut\n[0] again\n");
  LogPrinter raw = PrinterFor({.one_source = true});
  Add(raw, Chunk(0, "cut", 1));
  Add(raw, Chunk(0, "again\n", 2));
  EXPECT_EQ(Take(), "cut\nagain\n");
}

TEST_F(LogPrinterTest, PrintsEndlessLinesInParts) {
  LogPrinter printer = PrinterFor({.ranks = true});
  const std::string part(40 << 10, 'x');
  for (int i = 0; i < 4; ++i) Add(printer, Chunk(0, part));
  EXPECT_EQ(Take().size(), 2 * (2 * part.size() + 5));
}

TEST_F(LogPrinterTest, SaysWhereBytesAreMissing) {
  LogChunk begin = Chunk(0, "later\n");
  begin.offset = begin.skipped = 17;
  LogChunk after = Chunk(0, "on\n");
  after.offset = 30;
  after.skipped = 2;
  LogPrinter raw = PrinterFor({.one_source = true});
  Add(raw, begin);
  Add(raw, Chunk(0, "half"));
  Add(raw, after);
  EXPECT_EQ(Take(), absl::StrCat("[cohort: 17", kMark,
                                 "later\nhalf\n[cohort: 2", kMark, "on\n"));
  LogPrinter prefixed = PrinterFor({.ranks = true});
  Add(prefixed, begin);
  Add(prefixed, Chunk(0, "half"));
  Add(prefixed, after);
  EXPECT_EQ(Take(),
            absl::StrCat("[0] [cohort: 17", kMark, "[0] later\n[0] half\n",
                         "[0] [cohort: 2", kMark, "[0] on\n"));
}

TEST_F(LogPrinterTest, SaysWhenALineBegan) {
  LogPrinter printer = PrinterFor({.ranks = true, .times = true});
  LogChunk first = Chunk(0, "a");
  first.at = absl::FromUnixMillis(1'500);
  LogChunk second = Chunk(0, "b\nc\n");
  second.at = absl::FromUnixMillis(2'500);
  Add(printer, first);
  Add(printer, second);
  Add(printer, Chunk(1, "d\n"));
  EXPECT_EQ(Take(),
            "[0] 1970-01-01T00:00:01.500Z ab\n[0] 1970-01-01T00:00:02.500Z "
            "c\n[1] - d\n");
}

TEST_F(LogPrinterTest, SaysInJsonWhereALineCameFrom) {
  LogPrinter printer = PrinterFor({.json = true});
  Add(printer, Chunk(3, "x\ry\n", 2));
  EXPECT_EQ(Take(),
            "{\"attempt\":2,\"rank\":3,\"stream\":\"stdout\",\"time\":null,"
            "\"line\":\"x\\ry\"}\n");
}

}  // namespace
}  // namespace cohort::cli
