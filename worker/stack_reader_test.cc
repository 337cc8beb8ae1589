#include "worker/stack_reader.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/real_clock.h"
#include "worker/keeper/proc.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

// A process that waits, as a rank of the attempt whose id is all 'a'.
class Waiting {
 public:
  Waiting() {
    const std::string mark = absl::StrCat(keeper::kAttemptVariable, "=",
                                          absl::BytesToHexString(kAttempt));
    char name[] = "sleep";
    char time[] = "600";
    char* const arguments[] = {name, time, nullptr};
    std::string variable = mark;
    char* const environment[] = {variable.data(), nullptr};
    pid_ = fork();
    if (pid_ == 0) {
      execve("/bin/sleep", arguments, environment);
      _exit(127);
    }
    // The environment is the new one once it runs that program.
    while (
        keeper::ValueOf(keeper::ReadEnvironment(pid_), keeper::kAttemptVariable)
            .empty()) {
      sched_yield();
    }
  }
  ~Waiting() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  static inline const std::string kAttempt = std::string(16, 'a');
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
};

v1::SendLog OrderFor(pid_t pid, char attempt = 'a') {
  v1::SendLog order;
  order.set_attempt_id(std::string(16, attempt));
  order.set_stack_of_pid(pid);
  return order;
}

StackTool Shell(const std::string& title, const std::string& script) {
  return {.title = title,
          .program = "/bin/sh",
          .arguments = {"-c", script},
          .package = "the package dash"};
}

StackReader::FindTools Those(std::vector<StackTool> tools) {
  return [tools = std::move(tools)](pid_t) { return tools; };
}

// Reads on until there is something, as LogService does.
v1::LogPiece Await(StackReader& reader, int64_t offset, size_t bytes_max) {
  for (;;) {
    v1::LogPiece piece = reader.Read(offset, bytes_max);
    if (piece.end() || !piece.data().empty()) return piece;
    sched_yield();
  }
}

TEST(StackReader, ShowsWhatEachToolWrites) {
  const Waiting process;
  StackReader reader(
      OrderFor(process.pid()),
      Those({Shell("one", "echo 1; echo 2 >&2"),
             Shell("two", "echo 3"),
             {.title = "three", .program = "", .package = "a thing"}}));
  const v1::LogPiece piece = Await(reader, 0, 4096);
  EXPECT_TRUE(piece.known());
  EXPECT_TRUE(piece.end());
  EXPECT_EQ(piece.data(),
            "one:\n1\n2\n\ntwo:\n3\n\nthree:\nnot shown: install it there (a "
            "thing)\n");
}

TEST(StackReader, GivesItPieceByPiece) {
  const Waiting process;
  StackReader reader(OrderFor(process.pid()),
                     Those({Shell("t", "echo 12345")}));
  const v1::LogPiece first = Await(reader, 0, 5);
  EXPECT_EQ(first.data(), "t:\n12");
  EXPECT_FALSE(first.end());
  const v1::LogPiece second = Await(reader, 5, 100);
  EXPECT_EQ(second.data(), "345\n");
  EXPECT_TRUE(second.end());
}

TEST(StackReader, SaysWhyNothingCanBeShown) {
  const Waiting process;
  StackReader missing(
      OrderFor(process.pid()),
      Those({{.title = "t", .program = "", .package = "the thing"}}));
  v1::LogPiece piece = missing.Read(0, 4096);
  EXPECT_FALSE(piece.known());
  EXPECT_THAT(piece.data(), HasSubstr("install the thing"));

  StackReader refused(OrderFor(process.pid()),
                      Those({Shell("t", "echo not permitted >&2; exit 1")}));
  piece = Await(refused, 0, 4096);
  EXPECT_FALSE(piece.known());
  EXPECT_THAT(piece.data(), HasSubstr("not permitted"));
}

TEST(StackReader, LooksAtProcessesOfTheAttemptOnly) {
  const Waiting process;
  StackReader reader(OrderFor(process.pid(), 'b'),
                     Those({Shell("t", "echo no")}));
  const v1::LogPiece piece = Await(reader, 0, 4096);
  EXPECT_FALSE(piece.known());
  EXPECT_THAT(piece.data(), HasSubstr("is not this rank's any more"));
}

TEST(StackReader, EndsAToolThatWritesTooMuch) {
  const Waiting process;
  StackReader reader(OrderFor(process.pid()), Those({Shell("fast", "echo ok"),
                                                     Shell("endless", "yes")}));
  const v1::LogPiece piece = Await(reader, 0, 1 << 20);
  EXPECT_TRUE(piece.known());
  EXPECT_THAT(piece.data(), HasSubstr("(ended after 524288 bytes)"));
  EXPECT_LE(piece.data().size(), size_t{600} << 10);
}

// The process goes on, whatever its tool was about.
TEST(StackReader, KillsTheToolWhenNobodyWaits) {
  const Waiting process;
  {
    StackReader reader(OrderFor(process.pid()),
                       Those({Shell("t", "sleep 600")}));
    EXPECT_FALSE(reader.Read(0, 4096).end());
  }
  const auto stat = keeper::ReadProcessStat(process.pid());
  ASSERT_TRUE(stat.has_value());
  EXPECT_NE(stat->state, 'T');
}

TEST(StackReader, ReadsThreadsWithEuStack) {
  const Waiting process;
  const std::vector<StackTool> tools = StackToolsFor(process.pid());
  ASSERT_FALSE(tools.empty());
  if (tools.front().program.empty()) GTEST_SKIP() << "there is no eu-stack";
  v1::LogPiece piece;
  // At first its program is being loaded.
  do {
    StackReader reader(OrderFor(process.pid()), Those(tools));
    piece = Await(reader, 0, 1 << 20);
    ASSERT_TRUE(piece.known()) << piece.data();
  } while (!absl::StrContains(piece.data(), "nanosleep"));
  EXPECT_THAT(piece.data(), HasSubstr(absl::StrCat("TID ", process.pid())));
}

}  // namespace
}  // namespace cohort::worker
