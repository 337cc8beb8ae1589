#include "client/cli/command_line.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  std::optional<int> code;
  std::string out;
  std::string err;
};

// Reads a command line and, where that gave something to run, runs it: only for
// what ends before anybody is called.
Outcome RunLine(std::vector<std::string> arguments) {
  Outcome outcome;
  Invocation invocation;
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  outcome.code = ParseCommandLine(std::move(arguments), invocation);
  std::string message;
  if (!outcome.code.has_value()) {
    const absl::StatusOr<int> code = invocation.run();
    if (code.ok()) {
      outcome.code = *code;
    } else {
      message = std::string(code.status().message());
    }
  }
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr() + message;
  return outcome;
}

void ExpectUsage(std::vector<std::string> arguments,
                 std::vector<std::string> parts) {
  const Outcome outcome = RunLine(std::move(arguments));
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(StartsWith("cohort: "), EndsWith("\n")));
  for (const std::string& part : parts) {
    EXPECT_THAT(outcome.err, HasSubstr(part));
  }
}

TEST(CommandLine, NamesWhatIsWrongWithADrain) {
  ExpectUsage({"drain"}, {"NODE", "`cohort drain --help`"});
  ExpectUsage({"nodes", "get"}, {"NODE", "`cohort nodes get --help`"});
  ExpectUsage({"nodes", "sideways"}, {"sideways", "`cohort nodes --help`"});
  const Outcome soon = RunLine({"drain", "n", "--deadline", "soon"});
  EXPECT_THAT(soon.err, AllOf(HasSubstr("--deadline"), HasSubstr("soon")));
}

TEST(CommandLine, NamesTheWordThatItDoesNotKnow) {
  ExpectUsage({}, {"needs a command", "`cohort --help`"});
  ExpectUsage({"frob"}, {"frob", "`cohort --help`"});
  ExpectUsage({"jobs", "frob"}, {"frob", "`cohort jobs --help`"});
  ExpectUsage({"status", "--frob"}, {"--frob", "`cohort status --help`"});
  ExpectUsage({"jobs", "list", "extra"}, {"extra"});
  ExpectUsage({"jobs", "resize", "x"}, {"N", "`cohort jobs resize --help`"});
  ExpectUsage({"status", "--address"}, {"--address"});
  ExpectUsage({"submit", "echo", "hi"}, {"echo", "after --"});
  ExpectUsage({"status", "--", "echo"}, {"cohort submit"});
}

TEST(CommandLine, SaysWhatWasMeant) {
  ExpectUsage({"job", "list"}, {"did you mean jobs?"});
  ExpectUsage({"jobs", "lsit"}, {"did you mean list?"});
  ExpectUsage({"jobs", "list", "--lable=a"}, {"did you mean --label?"});
  EXPECT_THAT(RunLine({"frobnicate"}).err, Not(HasSubstr("did you mean")));
  ExpectUsage({"hlep"}, {"did you mean help?"});
  ExpectUsage({"--verison"}, {"did you mean --version?"});
  ExpectUsage({"stop", "x"}, {"did you mean jobs stop?"});
  // Not the help of all: nothing was said of that command.
  ExpectUsage({"help", "sbumit"}, {"did you mean submit?"});
  ExpectUsage({"sbumit", "--help"}, {"did you mean submit?"});
  ExpectUsage({"nodes", "drain", "w0"}, {"did you mean cohort drain?"});
  ExpectUsage({"help", "jobs", "lsit"}, {"did you mean list?"});
}

TEST(CommandLine, SaysWhereFlagsGo) {
  ExpectUsage({"--address", "h:1", "status"},
              {"write --address after `cohort status`"});
  ExpectUsage({"--credential-file=/c", "jobs", "list"},
              {"write --credential-file after `cohort jobs list`"});
  ExpectUsage({"--frob", "status"}, {"does not know --frob"});
  ExpectUsage({"--address", "h:1"}, {"needs a command, and flags come after"});
  const Outcome outcome = RunLine({"jobs", "--json", "list"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("write --json after `cohort jobs list`"));
  ExpectUsage({"jobs", "--state", "FAILED", "get", "x"},
              {"write --state after `cohort jobs get`"});
}

TEST(CommandLine, TakesOneValueUnlessItSaysOtherwise) {
  ExpectUsage({"submit", "--name", "a", "--name", "b", "--", "x"},
              {"--name is given more than once"});
  ExpectUsage({"up", "--port", "0", "--port", "0"}, {"--port is given more"});
  Invocation invocation;
  EXPECT_EQ(ParseCommandLine(
                {"submit", "--resources", "a=1", "--resources", "b=1", "--env",
                 "K=", "--env", "L=1", "--file", "f", "--file", "g", "--", "x"},
                invocation),
            std::nullopt);
}

TEST(CommandLine, RefusesEmptyValues) {
  for (const char* flag :
       {"--request-id", "--working-dir", "--file",        "--cpus",
        "--gpus",       "--memory",      "--strategy",    "--storage-path",
        "--resources",  "--name",        "--num-workers", "--max-failures",
        "--restart",    "--num-to-keep", "--env",         "--accelerator",
        "--selector",   "--same",        "--address",     "--credential-file",
        "--exclude"}) {
    const std::string says = std::string(flag) + " is empty";
    ExpectUsage({"submit", flag, "", "--", "true"}, {says});
    ExpectUsage({"submit", flag, "  ", "--", "true"}, {says});
    ExpectUsage({"submit", std::string(flag) + "=", "--", "true"}, {says});
    ExpectUsage({"submit", std::string(flag) + "=", "word", "--", "true"},
                {says});
  }
  ExpectUsage({"submit", "--file", "f", "--file", "", "--", "true"},
              {"--file is empty"});
  ExpectUsage({"submit", "--resources", "a=1", "--resources", "", "--", "true"},
              {"--resources is empty"});
  ExpectUsage({"status", "--address", ""}, {"--address is empty"});
  ExpectUsage({"jobs", "wait", "x", "--timeout", ""}, {"--timeout is empty"});
  ExpectUsage({"jobs", "logs", "x", "--rank", ""}, {"--rank is empty"});
  for (const char* flag : {"--workers", "--num-cpus", "--num-gpus", "--memory",
                           "--simulate-gpus", "--resources", "--port",
                           "--state-dir", "--ready-file", "--node-timeout"}) {
    ExpectUsage({"up", flag, ""}, {std::string(flag) + " is empty"});
  }
  const Outcome outcome = RunLine({"status", "--json", "--address", ""});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, StartsWith("{\"code\":\"INVALID_ARGUMENT\""));
}

TEST(CommandLine, AnswersInJsonWhereItIsAskedTo) {
  const Outcome outcome = RunLine({"status", "--json", "--frob"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err,
            "{\"code\":\"INVALID_ARGUMENT\",\"reason\":\"usage\",\"message\":"
            "\"`cohort status` does not know --frob; see `cohort status "
            "--help`\"}\n");
  // The command's own flags are not cohort's.
  ExpectUsage({"submit", "--frob", "--", "x", "--json"}, {"--frob"});
}

TEST(CommandLine, TakesAnOutputWhereTablesArePrinted) {
  const auto read = [](std::vector<std::string> arguments) {
    Invocation invocation;
    EXPECT_EQ(ParseCommandLine(std::move(arguments), invocation), std::nullopt);
    return invocation;
  };
  for (const char* list : {"jobs", "nodes", "gpus", "events"}) {
    EXPECT_TRUE(read({list, "-o", "wide"}).wide) << list;
    EXPECT_TRUE(read({list, "--output=json"}).json) << list;
    EXPECT_FALSE(read({list}).wide) << list;
  }
  EXPECT_TRUE(read({"jobs", "list", "--wide"}).wide);
  EXPECT_TRUE(read({"jobs", "get", "x", "-ojson"}).json);
  ExpectUsage({"jobs", "-o", "yaml"}, {"--output: yaml: give wide or json"});
  const Outcome outcome = RunLine({"nodes", "list", "-o", "json", "--frob"});
  EXPECT_THAT(outcome.err, StartsWith("{\"code\":\"INVALID_ARGUMENT\""));
}

TEST(CommandLine, HelpsOnStdout) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"--help"},
                                             {"submit", "--help"},
                                             {"jobs", "--help"},
                                             {"jobs", "wait", "-h"},
                                             {"up", "--help"},
                                             {"status", "--help"}}) {
    const Outcome outcome = RunLine(command);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_THAT(outcome.out, HasSubstr("Usage: cohort"));
    EXPECT_EQ(outcome.err, "");
  }
  EXPECT_THAT(RunLine({"submit", "--help"}).out, HasSubstr("-- CMD"));
}

// Every command of `app` and below it, as words.
void ListCommands(const CLI::App& app, std::vector<std::string> path,
                  std::vector<std::vector<std::string>>& found) {
  found.push_back(path);
  for (const CLI::App* command : app.get_subcommands({})) {
    path.push_back(command->get_name());
    ListCommands(*command, path, found);
    path.pop_back();
  }
}

TEST(CommandLine, HelpFitsTheTerminal) {
  Invocation invocation;
  std::vector<std::vector<std::string>> commands;
  ListCommands(*NewApp(invocation), {}, commands);
  EXPECT_GT(commands.size(), 50u);
  // Where flags alone are longer than lines, descriptions stand below them.
  const std::map<std::string, size_t> longest = {
      {"20", 45}, {"80", 80}, {"120", 120}};
  for (const auto& [columns, limit] : longest) {
    ASSERT_EQ(setenv("COLUMNS", columns.c_str(), 1), 0);
    for (std::vector<std::string> command : commands) {
      command.push_back("--help");
      const Outcome outcome = RunLine(command);
      EXPECT_EQ(outcome.code, 0);
      for (const absl::string_view line : absl::StrSplit(outcome.out, '\n')) {
        EXPECT_LE(line.size(), limit) << line;
      }
    }
  }
  unsetenv("COLUMNS");
}

TEST(CommandLine, KeepsWhatFollowsTheDashesAsItIs) {
  Invocation invocation;
  EXPECT_EQ(ParseCommandLine(
                {"submit", "--name", "n", "--", "prog", "--", "--json", ""},
                invocation),
            std::nullopt);
  ASSERT_TRUE(invocation.rest.has_value());
  EXPECT_THAT(*invocation.rest, ElementsAre("prog", "--", "--json", ""));
  EXPECT_FALSE(invocation.json);
}

TEST(CommandLine, TakesTheFlagsOfTheClientAfterTheCommand) {
  Invocation invocation;
  EXPECT_EQ(ParseCommandLine({"jobs", "list", "--address", "h:1",
                              "--credential-file=/c", "--json"},
                             invocation),
            std::nullopt);
  EXPECT_EQ(invocation.address, "h:1");
  EXPECT_EQ(invocation.credential_file, "/c");
  EXPECT_TRUE(invocation.json);
}

TEST(CommandLine, RefusesBadValuesBeforeAnybodyIsCalled) {
  const auto expect = [](std::vector<std::string> arguments,
                         const std::string& part) {
    const Outcome outcome = RunLine(std::move(arguments));
    EXPECT_EQ(outcome.code, std::nullopt);
    EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  expect({"submit"}, "after --");
  expect({"submit", "--"}, "after --");
  expect({"submit", "--file", "/missing", "--", "x"}, "/missing");
  expect({"submit", "--working-dir", "/missing", "--", "x"}, "/missing");
  expect({"submit", "--exclude", "x", "--", "x"}, "give --working-dir or");
  expect({"status", "--address", "nowhere"}, "--address: \"nowhere\"");
  expect({"status", "--address", "h:1", "--credential-file", "/missing"},
         "--credential-file");
  expect({"jobs", "wait", "x", "--timeout", "soon"}, "--timeout");
  expect({"jobs", "logs", "x", "--rank", "-1"}, "--rank -1");
  expect({"jobs", "get", ""}, "id is empty");
  expect({"jobs", "get"}, "`cohort jobs get --help`");
  expect({"jobs", "stop", "x", "--all"}, "takes JOBs");
  expect({"up", "--workers", "0"}, "--workers 0");
  expect({"up", "--port", "65536"}, "--port 65536");
  expect({"up", "--memory", "much"}, "--memory: \"much\"");
  expect({"up", "--num-gpus", "1", "--simulate-gpus", "1"}, "exclude");
}

TEST(CommandLine, SaysItsVersion) {
  const Outcome outcome = RunLine({"version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace cohort::cli
