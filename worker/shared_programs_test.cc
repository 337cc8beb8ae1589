#include "worker/shared_programs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/cleanup/cleanup.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

class SharedProgramsTest : public testing::Test {
 protected:
  absl::Status Add(const std::string& bytes) {
    return programs_.Add(
        3, [&](int file) { return WriteAll(file, "a program", bytes); });
  }
  absl::Status Give(const std::string& name) const {
    return programs_.Give(3, place_, name);
  }
  struct stat StatOf(const std::string& name) const {
    struct stat info = {};
    EXPECT_EQ(stat(temp_.File(name).c_str(), &info), 0);
    return info;
  }

  TempDir temp_;
  SharedPrograms programs_{temp_.File("programs")};
  UniqueFd place_{open(temp_.path().c_str(), O_RDONLY | O_DIRECTORY)};
};

TEST_F(SharedProgramsTest, EachPlaceHasALinkThatNobodyMayWriteTo) {
  EXPECT_FALSE(programs_.Has(3, 5));
  COHORT_ASSERT_OK(Add("bytes"));
  EXPECT_TRUE(programs_.Has(3, 5));
  EXPECT_FALSE(programs_.Has(3, 6));
  EXPECT_FALSE(programs_.Has(4, 5));
  COHORT_ASSERT_OK(Give("a"));
  COHORT_ASSERT_OK(Give("b"));
  EXPECT_EQ(StatOf("a").st_ino, StatOf("b").st_ino);
  EXPECT_EQ(StatOf("a").st_mode & 07777, 0555u);
  EXPECT_TRUE(SharedPrograms::IsOne(StatOf("a")));
  EXPECT_EQ(*ReadFile(temp_.File("b")), "bytes");
  EXPECT_TRUE(absl::IsAlreadyExists(Give("b")));
}

TEST_F(SharedProgramsTest, OneThatWasWrittenToIsNotGivenAgain) {
  COHORT_ASSERT_OK(Add("bytes"));
  COHORT_ASSERT_OK(Give("a"));
  ASSERT_EQ(chmod(temp_.File("a").c_str(), 0755), 0);
  std::ofstream(temp_.File("a")) << "other";
  ASSERT_EQ(chmod(temp_.File("a").c_str(), 0555), 0);
  EXPECT_FALSE(SharedPrograms::IsOne(StatOf("a")));
  EXPECT_FALSE(programs_.Has(3, 5));
  COHORT_ASSERT_OK(Add("bytes"));
  COHORT_ASSERT_OK(Give("b"));
  EXPECT_EQ(*ReadFile(temp_.File("a")), "other");
  EXPECT_EQ(*ReadFile(temp_.File("b")), "bytes");
}

TEST_F(SharedProgramsTest, HalfOfOneIsNone) {
  EXPECT_EQ(programs_.Add(3, [](int) { return absl::DataLossError("cut"); }),
            absl::DataLossError("cut"));
  EXPECT_FALSE(programs_.Has(3, 0));
  EXPECT_TRUE(std::filesystem::is_empty(temp_.File("programs")));
  std::ofstream(temp_.File("programs/3.part")) << "by";  // the daemon died
  COHORT_ASSERT_OK(Add("bytes"));
  EXPECT_TRUE(programs_.Has(3, 5));
}

TEST_F(SharedProgramsTest, APlaceOnAnotherFileSystemHasACopyOfItsOwn) {
  std::string other = "/dev/shm/shared_programs_test.XXXXXX";
  ASSERT_NE(mkdtemp(other.data()), nullptr);
  const absl::Cleanup remove = [&other] { (void)RemoveTree(other); };
  const UniqueFd place(open(other.c_str(), O_RDONLY | O_DIRECTORY));
  COHORT_ASSERT_OK(Add("bytes"));
  COHORT_ASSERT_OK(programs_.Give(3, place, "a"));
  EXPECT_EQ(*ReadFile(other + "/a"), "bytes");
  struct stat info = {};
  ASSERT_EQ(stat((other + "/a").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
  EXPECT_FALSE(SharedPrograms::IsOne(info));
}

TEST_F(SharedProgramsTest, APlaceKeepsItWhenTheDirectoryGoes) {
  COHORT_ASSERT_OK(Add("bytes"));
  COHORT_ASSERT_OK(Give("a"));
  COHORT_ASSERT_OK(RemoveTree(temp_.File("programs")));
  EXPECT_EQ(*ReadFile(temp_.File("a")), "bytes");
  EXPECT_TRUE(SharedPrograms::IsOne(StatOf("a")));
}

}  // namespace
}  // namespace cohort::worker
