#include "common/child_program.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file_limit.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "common/unique_fd.h"

namespace cohort {
namespace {

class ChildProgramTest : public ::testing::Test {
 protected:
  // What `script` writes to its descriptor 1.
  std::string Output(const std::string& script, ChildProgram child) {
    const std::string path = directory_.File("output");
    const UniqueFd output(
        open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    child.command = {"/bin/sh", "-c", script};
    child.files[1] = output.get();
    const auto pid = StartChild(child);
    COHORT_EXPECT_OK(pid.status());
    if (!pid.ok()) return "";
    int status = 0;
    EXPECT_EQ(waitpid(*pid, &status, 0), *pid);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  TempDir directory_;
};

TEST_F(ChildProgramTest, HasWhatItIsGivenAndNothingElse) {
  // Without O_CLOEXEC, as somebody else's library opens it.
  const UniqueFd leaked(open("/dev/null", O_RDONLY));
  setenv("OURS", "1", 1);
  EXPECT_EQ(Output("echo $OURS$GIVEN; pwd; cat; ls /proc/self/fd | wc -l",
                   {.environment = {"GIVEN=2", "PATH=/usr/bin:/bin"},
                    .directory = "/"}),
            "2\n/\n4\n");  // and the one that ls reads
  unsetenv("OURS");
}

TEST_F(ChildProgramTest, LeadsAGroupOrASession) {
  const char* const script =
      "set -- $(cat /proc/$$/stat); [ $5 = $1 ] && echo group; "
      "[ $6 = $1 ] && echo session";
  const std::vector<std::string> path = {"PATH=/usr/bin:/bin"};
  EXPECT_EQ(Output(script, {.environment = path}), "group\n");
  EXPECT_EQ(Output(script, {.environment = path, .in_new_session = true}),
            "group\nsession\n");
}

TEST_F(ChildProgramTest, HasTheFileLimitThatThisProgramWasStartedWith) {
  rlimit before = {};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit lower = {200, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &lower);
  RaiseFileLimit();
  rlimit raised = {};
  getrlimit(RLIMIT_NOFILE, &raised);
  EXPECT_EQ(raised.rlim_cur, before.rlim_max);
  int go[2];
  ASSERT_EQ(pipe2(go, O_CLOEXEC), 0);
  int said[2];
  ASSERT_EQ(pipe2(said, O_CLOEXEC), 0);
  const auto pid =
      StartChild({.command = {"/bin/sh", "-c", "read x; ulimit -Sn"},
                  .files = {go[0], said[1], said[1]}});
  COHORT_ASSERT_OK(pid);
  close(go[1]);  // it reads on, now that it was started
  close(go[0]);
  close(said[1]);
  std::string text(16, '\0');
  text.resize(static_cast<size_t>(read(said[0], text.data(), text.size())));
  EXPECT_EQ(text, "200\n");
  close(said[0]);
  EXPECT_EQ(waitpid(*pid, nullptr, 0), *pid);
  setrlimit(RLIMIT_NOFILE, &before);
  RaiseFileLimit();  // which is what others here inherit
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(ChildProgramTest, NamesAProgramThatIsNotThere) {
  EXPECT_THAT(
      StartChild({.command = {directory_.File("none")}}),
      StatusIs(absl::StatusCode::kNotFound,
               ::testing::HasSubstr("start " + directory_.File("none"))));
}

}  // namespace
}  // namespace cohort
