#include "shm/segment.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::shm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr SegmentType kType = {SegmentKind::kArenaData, 1};

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Overwrite(const std::string& path, size_t offset, uint64_t value,
               size_t size) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(reinterpret_cast<const char*>(&value),
             static_cast<std::streamsize>(size));
}

// In a mount namespace of this process's own; false where that is not allowed.
bool MountTmpfs(const std::string& path, const char* options) {
  const uid_t uid = getuid();
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/uid_map") << "0 " << uid << " 1";
  }
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", path.c_str(), "tmpfs", 0, options) == 0;
}

class SegmentTest : public ::testing::Test {
 protected:
  TempDir dir_;
  const std::string path_ = dir_.File("segment");
};

// The layout that other builds rely on: change it only with a new version.
TEST_F(SegmentTest, HeaderHasTheseBytes) {
  COHORT_ASSERT_OK(Segment::Create(path_, kType, 36));
  EXPECT_EQ(absl::BytesToHexString(ReadFile(path_)),
            "434f484f5254534d"  // "COHORTSM"
            "01000000"          // layout version
            "02000000"          // kind
            "6400000000000000"  // 100 bytes
            "00000000000000000000000000000000000000000000000000000000000000"
            "000000000000000000"
            "0000000000000000000000000000000000000000000000000000000000000000"
            "00000000");
}

TEST_F(SegmentTest, SharesItsBodyBetweenMappings) {
  auto created = Segment::Create(path_, kType, 1000);
  COHORT_ASSERT_OK(created);
  auto opened = Segment::Open(path_, kType);
  COHORT_ASSERT_OK(opened);
  ASSERT_EQ((*opened)->body().size(), 1000u);
  (*created)->body()[999] = std::byte{7};
  EXPECT_EQ((*opened)->body()[999], std::byte{7});
}

TEST_F(SegmentTest, OutlivesItsCreator) {
  COHORT_ASSERT_OK(Segment::Create(path_, kType, 10));
  COHORT_EXPECT_OK(Segment::Open(path_, kType));
}

TEST_F(SegmentTest, RefusesToReplaceOne) {
  COHORT_ASSERT_OK(Segment::Create(path_, kType, 10));
  EXPECT_THAT(Segment::Create(path_, kType, 10),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(path_)));
  COHORT_EXPECT_OK(Segment::Open(path_, kType));
}

TEST_F(SegmentTest, SaysWhichDirectoryIsMissing) {
  EXPECT_THAT(Segment::Create("/var/tmp/no-such-directory/x", kType, 10),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("/var/tmp/no-such-directory/x")));
}

// SG-2.
TEST_F(SegmentTest, RefusesAWrongMagic) {
  COHORT_ASSERT_OK(Segment::Create(path_, kType, 10));
  Overwrite(path_, 0, 1, 1);
  EXPECT_THAT(Segment::Open(path_, kType),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path_)));
}

// SG-2.
TEST_F(SegmentTest, RefusesAFileTooShortForAHeader) {
  std::ofstream(path_) << "short";
  EXPECT_THAT(Segment::Open(path_, kType),
              StatusIs(absl::StatusCode::kDataLoss));
}

// SG-2.
TEST_F(SegmentTest, RefusesANewerLayout) {
  COHORT_ASSERT_OK(Segment::Create(path_, kType, 10));
  Overwrite(path_, offsetof(SegmentHeader, layout_version), 2, 4);
  EXPECT_THAT(Segment::Open(path_, kType),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("layout version 2, newer than the 1")));
}

// SG-2.
TEST_F(SegmentTest, RefusesAnotherKind) {
  COHORT_ASSERT_OK(Segment::Create(path_, kType, 10));
  EXPECT_THAT(
      Segment::Open(path_, {SegmentKind::kArenaControl, 1}),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("kind 2")));
}

// SG-2.
TEST_F(SegmentTest, RefusesAWrongSize) {
  COHORT_ASSERT_OK(Segment::Create(path_, kType, 10));
  ASSERT_EQ(truncate(path_.c_str(), 70), 0);
  EXPECT_THAT(Segment::Open(path_, kType),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("70 bytes")));
}

// SG-1, on a file system that is larger than nothing and smaller than the wish.
// In a child, because the mount needs a namespace of its own.
TEST_F(SegmentTest, SaysHowMuchAFullTmpfsLacks) {
  const pid_t child = fork();
  if (child == 0) {
    if (!MountTmpfs(dir_.path(), "size=1m")) _exit(77);
    const absl::Status full = Segment::Create(path_, kType, 2 << 20).status();
    const bool named =
        full.code() == absl::StatusCode::kResourceExhausted &&
        ::testing::Matches(
            AllOf(HasSubstr(dir_.path()), HasSubstr("2097216 bytes"),
                  HasSubstr("has 1048576 free")))(std::string(full.message()));
    if (!named) std::cerr << full << "\n";
    const bool removed = access(path_.c_str(), F_OK) != 0;
    const bool smaller_fits = Segment::Create(path_, kType, 1000).ok();
    _exit(named && removed && smaller_fits ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "may not mount a tmpfs here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// SG-1.
TEST_F(SegmentTest, RefusesAnAbsurdSize) {
  EXPECT_THAT(
      Segment::Create(path_, kType, size_t{1} << 55),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(dir_.path())));
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace cohort::shm
