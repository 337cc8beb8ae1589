#include "client/program_package.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::client {
namespace {

// Run by the test below, as a copy of this program.
TEST(ProgramPackageTest, DISABLED_RemovesItselfAndPacks) {
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe");
  ASSERT_EQ(self.filename(), "a_copy");
  const absl::StatusOr<ProgramPackage> before = PackThisProgram();
  COHORT_ASSERT_OK(before);
  ASSERT_TRUE(std::filesystem::remove(self));
  const absl::StatusOr<ProgramPackage> after = PackThisProgram();
  COHORT_ASSERT_OK(after);
  EXPECT_EQ(after->program, "a_copy");
  EXPECT_EQ(after->package.hash(), before->package.hash());
}

TEST(ProgramPackageTest, PacksAProgramWhoseFileWasRemoved) {
  const TempDir dir;
  const std::string copy = dir.File("a_copy");
  std::filesystem::copy_file("/proc/self/exe", copy);
  EXPECT_EQ(std::system(absl::StrCat("TMPDIR=", dir.path(), " ", copy,
                                     " --gtest_also_run_disabled_tests "
                                     "--gtest_filter=*RemovesItselfAndPacks"
                                     " > ",
                                     dir.File("out"))
                            .c_str()),
            0);
}

}  // namespace
}  // namespace cohort::client
