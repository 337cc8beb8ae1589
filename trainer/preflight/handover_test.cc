#include "trainer/preflight/handover.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::trainer {
namespace {

using ::testing::HasSubstr;

// What `command` writes to stdout in a child that was made to hand over, then
// changed by `change`.
std::string OutputOf(std::vector<std::string> command,
                     const std::function<void()>& change) {
  const TempDir directory;
  const std::string out = directory.File("out");
  const pid_t child = fork();
  if (child == 0) {
    const int file = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
    dup2(file, 1);
    close(file);
    Handover handover(std::move(command));
    change();
    handover.Exec().IgnoreError();
    _exit(1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return ReadFile(out).value_or("no output");
}

TEST(HandoverTest, EnvironmentIsAsItWas) {
  const std::string out = OutputOf({"sh", "-c", "echo ${NCCL_DEBUG-unset}"},
                                   [] { setenv("NCCL_DEBUG", "INFO", 1); });
  EXPECT_EQ(out, "unset\n");
}

TEST(HandoverTest, DescriptorsAreAsTheyWere) {
  // The listing has its own, which is the first free one.
  const std::string list = "for f in /proc/$$/fd/*; do echo ${f##*/}; done";
  const std::string before = OutputOf({"sh", "-c", list}, [] {});
  const std::string after = OutputOf({"sh", "-c", list}, [] {
    ASSERT_GE(open("/dev/null", O_RDONLY), 0);
    ASSERT_EQ(dup2(0, 77), 77);
  });
  EXPECT_EQ(after, before);
}

TEST(HandoverTest, SignalsAreAsTheyWere) {
  const std::string ask = "grep -E 'Sig(Blk|Ign)' /proc/self/status";
  const std::string before = OutputOf({"sh", "-c", ask}, [] {});
  const std::string after = OutputOf({"sh", "-c", ask}, [] {
    signal(SIGPIPE, SIG_IGN);
    sigset_t blocked;
    sigfillset(&blocked);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
  });
  EXPECT_EQ(after, before);
}

TEST(HandoverTest, SaysWhyItCannot) {
  EXPECT_THAT(Handover({"no-such-program"}).Exec(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("cannot run \"no-such-program\"")));
  EXPECT_THAT(Handover({"/dev/null"}).Exec(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("Permission denied")));
  const TempDir directory;
  const std::string script = directory.File("script");
  COHORT_ASSERT_OK(
      WriteFileAtomically(script, "#!/no/such/interpreter\n", 0700));
  EXPECT_THAT(Handover({script}).Exec(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("interpreter")));
}

}  // namespace
}  // namespace cohort::trainer
