#include "worker/last_words.h"

#include <csignal>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/exception_text.h"

namespace cohort::worker {
namespace {

constexpr char kTraceback[] =
    "Traceback (most recent call last):\n"
    "  File \"train.py\", line 1, in <module>\n"
    "    import torch\n"
    "ModuleNotFoundError: No module named 'torch'";

// As torch writes it.
std::string ErrorFile(const std::string& timestamp) {
  return absl::StrCat(
      R"({"message": {"message": "RuntimeError: boom\nmore", "extraInfo": )",
      R"({"py_callstack": "Traceback\n  x\nRuntimeError: boom\n", )",
      R"("timestamp": )", timestamp, "}}}");
}

ExitReport Exit(int code) {
  ExitReport exit;
  exit.exit_code = code;
  return exit;
}

TEST(LastWordsTest, ReadsWhatTorchRecords) {
  const absl::Time modified = absl::FromUnixMicros(1'700'000'000'250'000);
  const auto raised = ParseErrorFile(ErrorFile("\"1700000000\""), modified);
  ASSERT_TRUE(raised.has_value());
  EXPECT_EQ(raised->summary, "RuntimeError: boom");
  EXPECT_EQ(raised->traceback, "Traceback\n  x\nRuntimeError: boom");
  EXPECT_EQ(raised->at, modified);
  // Written later than it says: the second is what it says.
  EXPECT_EQ(ParseErrorFile(ErrorFile("\"1699999998\""), modified)->at,
            absl::FromUnixMicros(1'699'999'998'999'999));
  EXPECT_EQ(ParseErrorFile(ErrorFile("\"noon\""), modified)->at, std::nullopt);
  EXPECT_EQ(ParseErrorFile(R"({"message": "Abort"})", modified)->summary,
            "Abort");
  for (const char* other : {"", "{", "[]", "{}", "\xff"}) {
    EXPECT_FALSE(ParseErrorFile(other, modified).has_value()) << other;
  }
}

TEST(LastWordsTest, FindsTheLastTraceback) {
  const auto raised = LastTraceback(absl::StrCat(
      "Traceback (most recent call last):\nKeyError: 1\n\nDuring handling of "
      "the above exception, another exception occurred:\n\n",
      kTraceback, "\nwarning: left over\n"));
  ASSERT_TRUE(raised.has_value());
  EXPECT_EQ(raised->summary, "ModuleNotFoundError: No module named 'torch'");
  EXPECT_EQ(raised->traceback, kTraceback);
  EXPECT_EQ(raised->at, std::nullopt);
  const auto prefixed = LastTraceback(
      "[rank0]: Traceback (most recent call last):\n[rank0]:   File\n"
      "[rank0]: ValueError: x\n");
  EXPECT_EQ(prefixed->traceback,
            "Traceback (most recent call last):\n  File\nValueError: x");
  EXPECT_FALSE(LastTraceback("Traceback (most recent call last):\n  File"));
  EXPECT_FALSE(LastTraceback("done\n"));
}

TEST(LastWordsTest, FindsGroupsAndScriptsThatCannotBeRead) {
  const auto group = LastTraceback(
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"x.py\", line 1\n"
      "  | ExceptionGroup: both (2 sub-exceptions)\n"
      "  +-+---------------- 1 ----------------\n"
      "    | ValueError: 1\n");
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->summary, "ExceptionGroup: both (2 sub-exceptions)");
  LastWords words;
  words.stderr_tail =
      "  File \"x.py\", line 1\n    def f(:\n          ^\n"
      "SyntaxError: invalid syntax\n";
  EXPECT_EQ(FirstLine(ExitDetail(Exit(1), words)),
            "SyntaxError: invalid syntax");
}

TEST(LastWordsTest, KeepsTheEndOfALongTraceback) {
  std::string text = "Traceback (most recent call last):\n";
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "  File ", i, "\n");
  const std::string kept = LastTraceback(text + "ValueError: x\n")->traceback;
  EXPECT_LE(kept.size(), size_t{1} << 10);
  EXPECT_TRUE(kept.starts_with("  File "));
  EXPECT_TRUE(kept.ends_with("  File 999\nValueError: x"));
}

TEST(LastWordsTest, HintsAtThePythonThatRan) {
  const LastWords words = {.error_file = "",
                           .error_file_modified = {},
                           .stderr_tail = kTraceback,
                           .python = "its Python is /usr/bin/python3"};
  EXPECT_EQ(FirstLine(ExitDetail(Exit(1), words)),
            "ModuleNotFoundError: No module named 'torch' (its Python is "
            "/usr/bin/python3)");
  LastWords other_program = words;
  other_program.stderr_tail = "bash: line 1: foo: command not found\n";
  EXPECT_EQ(ExitDetail(Exit(127), other_program), "a program was not found");
  LastWords no_python;
  no_python.python = "no python3 is on its PATH";
  no_python.stderr_tail = "sh: python3: not found\n";
  EXPECT_EQ(ExitDetail(Exit(127), no_python),
            "a program was not found (no python3 is on its PATH)");
  LastWords module = words;
  module.stderr_tail = "/usr/bin/python3: No module named torch\n";
  EXPECT_TRUE(ExitDetail(Exit(1), module)
                  .starts_with("/usr/bin/python3: No module named torch (its"));
}

TEST(LastWordsTest, SaysWhatThreadsThatRanOnDo) {
  ExitReport exit;
  exit.signal = SIGABRT;
  exit.cause = ExitCause::kItself;
  LastWords words;
  words.stderr_tail = "terminate called without an active exception\n";
  EXPECT_TRUE(
      ExitDetail(exit, words).starts_with("a thread was still at work"));
  words.stderr_tail += "more\n";
  EXPECT_EQ(ExitDetail(exit, words), "");
}

TEST(LastWordsTest, LeavesOtherEndsAlone) {
  LastWords words;
  words.stderr_tail = kTraceback;
  EXPECT_EQ(ExitDetail(Exit(3), words), "");  // it was caught
  ExitReport stopped = Exit(1);
  stopped.cause = ExitCause::kStopped;
  EXPECT_EQ(ExitDetail(stopped, words), "");
  words.stderr_tail = "it failed\n";
  EXPECT_EQ(ExitDetail(Exit(1), words), "");
  ExitReport no_program = Exit(127);
  no_program.cause = ExitCause::kCannotRun;
  no_program.message = "cannot run \"x\"";
  EXPECT_EQ(ExitDetail(no_program, words), "cannot run \"x\"");
}

TEST(LastWordsTest, TellsWhenAStoppedRankRaised) {
  LastWords words;
  words.error_file = ErrorFile("\"1700000000\"");
  words.error_file_modified = absl::FromUnixSeconds(1'700'000'000);
  ExitReport stopped;
  stopped.signal = 15;
  stopped.cause = ExitCause::kStopped;
  const std::string detail = ExitDetail(stopped, words);
  EXPECT_EQ(detail,
            "RuntimeError: boom (raised at 2023-11-14T22:13:20.000000Z)\n"
            "Traceback\n  x\nRuntimeError: boom");
  EXPECT_EQ(RaisedAt(detail), words.error_file_modified);
}

}  // namespace
}  // namespace cohort::worker
