#include "common/local_files.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class LocalFilesTest : public testing::Test {
 protected:
  TempDir dir_;
};

TEST_F(LocalFilesTest, StateLiesBelowHomeAndNeverInTheCurrentDirectory) {
  if (geteuid() == 0) {
    EXPECT_THAT(DefaultStateDirectory("x"), IsOkAndHolds("/var/lib/cohort/x"));
    return;
  }
  setenv("HOME", "/h", 1);
  EXPECT_THAT(DefaultStateDirectory("x"),
              IsOkAndHolds("/h/.local/state/cohort/x"));
  unsetenv("HOME");
  const auto without = DefaultStateDirectory("x");
  if (without.ok()) {
    EXPECT_THAT(*without, StartsWith("/"));
  } else {
    EXPECT_THAT(without, StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("--state-dir")));
  }
}

TEST_F(LocalFilesTest, AStateDirectoryIsMadeOrTheFlagIsNamed) {
  COHORT_EXPECT_OK(MakeStateDirectory(dir_.File("a/b")));
  COHORT_EXPECT_OK(MakeStateDirectory(dir_.File("a/b")));
  const std::string file = dir_.File("file");
  COHORT_ASSERT_OK(WriteFileAtomically(file, "", 0600));
  EXPECT_THAT(MakeStateDirectory(file),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--state-dir " + file),
                             HasSubstr("not a directory"))));
  EXPECT_THAT(
      MakeStateDirectory("/proc/none/x"),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("--state-dir"), HasSubstr("name a directory"))));
}

TEST_F(LocalFilesTest, AReadyFileNeedsItsDirectory) {
  COHORT_EXPECT_OK(CheckReadyFile(""));
  COHORT_EXPECT_OK(CheckReadyFile(dir_.File("ready")));
  EXPECT_THAT(CheckReadyFile(dir_.File("none/ready")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--ready-file"), HasSubstr("make"))));
  EXPECT_THAT(CheckReadyFile(dir_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(LocalFilesTest, AnOldReadyFileGoes) {
  const std::string path = dir_.File("ready");
  RemoveOldReadyFile(path);
  COHORT_ASSERT_OK(WriteFileAtomically(path, "127.0.0.1:1\n", 0644));
  RemoveOldReadyFile(path);
  EXPECT_THAT(ReadFile(path), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort
