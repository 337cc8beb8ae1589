#include "client/cli/package_flags.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::cli {
namespace {

using ::testing::HasSubstr;

// In a current directory with train.py, run.sh and sub/eval.py.
class CheckCommandTest : public ::testing::Test {
 protected:
  CheckCommandTest() {
    std::filesystem::current_path(directory_.path());
    Write("train.py", 0600);
    Write("run.sh", 0700);
    Write("sub/eval.py", 0600);
  }
  ~CheckCommandTest() override { std::filesystem::current_path(before_); }

  static void Write(const std::string& name, mode_t mode) {
    if (const auto parent = std::filesystem::path(name).parent_path();
        !parent.empty()) {
      std::filesystem::create_directories(parent);
    }
    std::ofstream(name) << name << "\n";
    chmod(name.c_str(), mode);
  }

  using Command = std::vector<std::string>;

  static absl::Status Check(const Command& command,
                            const PackageSource& source = {}) {
    const auto files = ListPackageFiles(source);
    COHORT_EXPECT_OK(files);
    return CheckCommand(command, *files);
  }
  static void ExpectRefused(const Command& command, const PackageSource& source,
                            const std::string& why) {
    EXPECT_THAT(Check(command, source),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  }

  const std::filesystem::path before_ = std::filesystem::current_path();
  TempDir directory_;
};

TEST_F(CheckCommandTest, TakesWhatThePackageHolds) {
  COHORT_EXPECT_OK(Check({"./run.sh"}, {.directory = "."}));
  COHORT_EXPECT_OK(Check({"python3", "./sub/eval.py"}, {.directory = "."}));
  COHORT_EXPECT_OK(Check({"python3", "-u", "eval.py"}, {.directory = "sub"}));
  COHORT_EXPECT_OK(Check({"sub/../run.sh"}, {.paths = {"run.sh"}}));
  std::filesystem::create_symlink("sub", "current");
  COHORT_EXPECT_OK(Check({"python3", "current/eval.py"}, {.directory = "."}));
}

TEST_F(CheckCommandTest, TakesWhatIsNoFileHere) {
  COHORT_EXPECT_OK(Check({"python3", "-c", "print('train.py')"}));
  COHORT_EXPECT_OK(Check({"python3", "/opt/train.py"}));
  COHORT_EXPECT_OK(Check({"/opt/missing"}));
  COHORT_EXPECT_OK(Check({"run.sh"}));  // from PATH
  COHORT_EXPECT_OK(Check({"python3", "-m", "tool", "--out", "result.py"}));
  COHORT_EXPECT_OK(Check({"/opt/tool", "result.py", "--config=train.py"}));
}

TEST_F(CheckCommandTest, RefusesWhatIsNowhere) {
  const std::string why = "is neither here nor in what is sent along";
  ExpectRefused({"./missing"}, {}, why);
  ExpectRefused({"sub/../missing"}, {.directory = "."}, why);
  ExpectRefused({"python3", "missing.py"}, {.directory = "."}, why);
  ExpectRefused({"/opt/venv/bin/python3.12", "missing.py"}, {}, why);
  ExpectRefused({"sh", "missing.sh"}, {}, why);
  ExpectRefused({"python3", "-u", "-X", "dev", "missing.py"}, {}, why);
  ExpectRefused({"bash", "-eu", "-o", "pipefail", "missing.sh"}, {}, why);
  COHORT_EXPECT_OK(Check({"python3", "-c", "print(1)", "missing.py"}));
  COHORT_EXPECT_OK(Check({"python3", "-um", "torch", "missing.py"}));
}

TEST_F(CheckCommandTest, SaysHowToSendWhatIsHere) {
  ExpectRefused({"python3", "train.py"}, {},
                "train.py is here, but not where the ranks start (send it with "
                "--file train.py, or this directory with --working-dir .)");
  ExpectRefused({"./run.sh"}, {}, "(send it with --file run.sh, or");
  ExpectRefused({"python3", "sub/eval.py"}, {},
                "--file sub/eval.py and write eval.py, or");
  ExpectRefused({"python3", "train.py"}, {.directory = "sub"},
                "(send it with --file train.py)");
}

TEST_F(CheckCommandTest, SaysWhatItIsCalledInThePackage) {
  ExpectRefused({"python3", "sub/eval.py"}, {.directory = "sub"},
                "has another name where the ranks start (write eval.py)");
  ExpectRefused(
      {"../" + std::filesystem::current_path().filename().string() + "/run.sh"},
      {.paths = {"run.sh"}}, "(write ./run.sh)");
}

TEST_F(CheckCommandTest, NamesThePatternThatLeavesItOut) {
  std::ofstream(".gitignore") << "*.sh\nsub/\n";
  ExpectRefused({"./run.sh"}, {.directory = "."},
                "left out of the package by .gitignore line 1, *.sh (--exclude "
                "'!run.sh'");
  ExpectRefused({"python3", "sub/eval.py"}, {.directory = "."},
                "by .gitignore line 2, sub/ (--exclude '!sub'");
  ExpectRefused({"python3", "train.py"},
                {.directory = ".", .exclude = {"train.*"}},
                "by --exclude train.*");
  COHORT_EXPECT_OK(Check({"python3", "sub/eval.py"},
                         {.directory = ".", .exclude = {"!sub"}}));
}

TEST_F(CheckCommandTest, SaysWhenAProgramIsNotExecutable) {
  chmod("run.sh", 0600);
  ExpectRefused({"./run.sh"}, {.directory = "."},
                "not executable (chmod +x ./run.sh)");
  COHORT_EXPECT_OK(Check({"sh", "./run.sh"}, {.directory = "."}));
}

}  // namespace
}  // namespace cohort::cli
