#include "common/file.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

int FilesIn(const std::string& directory) {
  int n = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(directory)) {
    ++n;
  }
  return n;
}

mode_t ModeOf(const std::string& path) {
  struct stat info;
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 07777;
}

// By this process.
int TimesOpen(const std::filesystem::path& path) {
  int n = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone) == path) ++n;
  }
  return n;
}

TEST(ReadRegularFileTest, WaitsForNoPipe) {
  const TempDir directory;
  const std::string pipe = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReadRegularFile(pipe, 100),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ParentDirectory, IsWhereTheNameStands) {
  EXPECT_EQ(ParentDirectory("/a/b"), "/a");
  EXPECT_EQ(ParentDirectory("/a/b//"), "/a");
  EXPECT_EQ(ParentDirectory("a/b"), "a");
  EXPECT_EQ(ParentDirectory("b"), ".");
  EXPECT_EQ(ParentDirectory("b/"), ".");
  EXPECT_EQ(ParentDirectory("/b"), "/");
  EXPECT_EQ(ParentDirectory("/"), "/");
}

TEST(CleanPath, IsTheOneSpellingOfAPath) {
  EXPECT_EQ(CleanPath("/a//./b/"), "/a/b");
  EXPECT_EQ(CleanPath("/a/link/../b/."), "/a/link/../b");
  EXPECT_EQ(CleanPath("./a/"), "a");
  EXPECT_EQ(CleanPath("./"), ".");
  EXPECT_EQ(CleanPath("//"), "/");
  EXPECT_EQ(CleanPath(""), "");
}

TEST(FileTest, WritesAndReadsBack) {
  const TempDir dir;
  const std::string bytes(200'000, 'x');
  ASSERT_THAT(WriteFileAtomically(dir.File("a"), bytes, 0644), IsOk());
  EXPECT_THAT(ReadFile(dir.File("a")), IsOkAndHolds(bytes));
  ASSERT_THAT(WriteFileAtomically(dir.File("a"), "", 0600), IsOk());
  EXPECT_THAT(ReadFile(dir.File("a")), IsOkAndHolds(""));
  EXPECT_EQ(ModeOf(dir.File("a")), 0600u);
  EXPECT_EQ(FilesIn(dir.path()), 1);
}

TEST(FileTest, GivesTheModeWhateverTheUmask) {
  const TempDir dir;
  const mode_t before = ::umask(0077);
  EXPECT_THAT(WriteFileAtomically(dir.File("a"), "x", 0644), IsOk());
  ::umask(before);
  EXPECT_EQ(ModeOf(dir.File("a")), 0644u);
}

TEST(FileTest, AFailedWriteLeavesNothingBehind) {
  const TempDir dir;
  // A directory that is not empty cannot be replaced by a file.
  ASSERT_THAT(MakeDirectories(dir.File("a/b"), 0755), IsOk());
  EXPECT_THAT(WriteFileAtomically(dir.File("a"), "x", 0644),
              StatusIs(testing::_, HasSubstr(dir.File("a"))));
  EXPECT_EQ(FilesIn(dir.path()), 1);
  EXPECT_THAT(WriteFileAtomically(dir.File("no/a"), "x", 0644),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no/a")));
}

TEST(FileTest, ReadNamesWhatIsMissingOrTooLarge) {
  const TempDir dir;
  EXPECT_THAT(ReadFile(dir.File("a")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(dir.File("a"))));
  ASSERT_THAT(WriteFileAtomically(dir.File("a"), "12345", 0644), IsOk());
  EXPECT_THAT(ReadFile(dir.File("a"), 5), IsOkAndHolds("12345"));
  EXPECT_THAT(ReadFile(dir.File("a"), 4),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("more than the 4 bytes")));
}

TEST(FileTest, MakesDirectoriesAndTakesThoseThatAreThere) {
  const TempDir dir;
  EXPECT_THAT(MakeDirectories(dir.File("a/b/c"), 0700), IsOk());
  EXPECT_THAT(MakeDirectories(dir.File("a/b/c"), 0700), IsOk());
  EXPECT_THAT(MakeDirectories(dir.File("a/b/d/"), 0700), IsOk());
  EXPECT_EQ(ModeOf(dir.File("a/b/c")), 0700u);
  EXPECT_THAT(SyncDirectory(dir.File("a/b")), IsOk());
}

TEST(FileTest, NamesTheFileInTheWay) {
  const TempDir dir;
  ASSERT_THAT(WriteFileAtomically(dir.File("a"), "x", 0644), IsOk());
  EXPECT_THAT(
      MakeDirectories(dir.File("a"), 0755),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in the way")));
  EXPECT_THAT(MakeDirectories(dir.File("a/b"), 0755),
              StatusIs(testing::_, HasSubstr(dir.File("a/b"))));
}

TEST(FileTest, RemovesTreesButNotWhatLinksPointTo) {
  const TempDir dir;
  ASSERT_THAT(MakeDirectories(dir.File("keep"), 0755), IsOk());
  ASSERT_THAT(WriteFileAtomically(dir.File("keep/x"), "x", 0644), IsOk());
  ASSERT_THAT(MakeDirectories(dir.File("a/b"), 0755), IsOk());
  ASSERT_EQ(::symlink(dir.File("keep").c_str(), dir.File("a/l").c_str()), 0);
  EXPECT_THAT(RemoveTree(dir.File("a")), IsOk());
  EXPECT_THAT(RemoveTree(dir.File("a")), IsOk());
  EXPECT_THAT(ReadFile(dir.File("keep/x")), IsOkAndHolds("x"));
  EXPECT_EQ(FilesIn(dir.path()), 1);
}

TEST(FileTest, TellsMemoryFromDisk) {
  EXPECT_THAT(IsTmpfs("/dev/shm"), IsOkAndHolds(true));
  EXPECT_THAT(IsTmpfs("/proc"), IsOkAndHolds(false));
  EXPECT_THAT(IsTmpfs("/no/such/path"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such")));
}

TEST(FileLockTest, NamesTheHolderToTheSecond) {
  const TempDir dir;
  std::optional<FileLock> lock;
  {
    absl::StatusOr<FileLock> first =
        FileLock::Acquire(dir.path(), "cohort-head");
    ASSERT_THAT(first, IsOk());
    lock.emplace(*std::move(first));
  }
  const absl::Status refused =
      FileLock::Acquire(dir.path(), "cohort-head").status();
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(absl::StrCat("in use by process ", ::getpid(),
                                              " (cohort-head)"))));
  EXPECT_EQ(GetReason(refused), "locked");
  lock.reset();
  EXPECT_THAT(FileLock::Acquire(dir.path(), "x"), IsOk());
}

// Its lock goes with its memory, which takes the longer the more there is.
TEST(FileLockTest, WaitsForAHolderThatWasKilled) {
  const TempDir dir;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t holder = ::fork();
  ASSERT_GE(holder, 0);
  if (holder == 0) {
    const absl::StatusOr<FileLock> lock = FileLock::Acquire(dir.path(), "x");
    const std::string memory(size_t{64} << 20, 'm');
    if (!lock.ok() || ::write(ready[1], "r", 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(memory.empty() ? 1 : 0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(::kill(holder, SIGKILL), 0);
  // From now on it is ending, and for a moment still has the lock.
  const std::string command = absl::StrCat("/proc/", holder, "/cmdline");
  while (!ReadFile(command).value_or("").empty()) sched_yield();
  EXPECT_THAT(FileLock::Acquire(dir.path(), "y"), IsOk());
  EXPECT_EQ(::waitpid(holder, nullptr, 0), holder);
  ::close(ready[0]);
  ::close(ready[1]);
}

// Its holder may remove the file: what a second one waited for is then no lock.
TEST(FileLockTest, OneThatWasRemovedWhileItWasWaitedForIsMadeAnew) {
  const TempDir dir;
  std::optional<FileLock> first(*FileLock::Acquire(dir.path(), "first"));
  const std::filesystem::path path =
      std::filesystem::canonical(dir.File("LOCK"));
  std::optional<FileLock> second;
  std::thread waiter([&] {
    while (!second.has_value()) {
      absl::StatusOr<FileLock> lock = FileLock::Acquire(dir.path(), "second");
      if (lock.ok()) second.emplace(*std::move(lock));
    }
  });
  while (TimesOpen(path) < 2) sched_yield();
  std::filesystem::remove(path);
  first.reset();
  waiter.join();
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(GetReason(FileLock::Acquire(dir.path(), "third").status()),
            "locked");
}

TEST(FileLockTest, SaysWhatIsInItsWay) {
  const TempDir dir;
  ASSERT_THAT(MakeDirectories(dir.File("LOCK"), 0700), IsOk());
  EXPECT_THAT(FileLock::Acquire(dir.path(), "x"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("LOCK is in the way")));
}

// What a stranger can prepare in /dev/shm or /tmp.
TEST(FileLockTest, RefusesADirectoryThatSomebodyElseCanChange) {
  const TempDir dir;
  const auto refused = [](const std::string& directory) {
    const absl::Status status = FileLock::Acquire(directory, "x").status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition,
                                 HasSubstr(directory)));
    return GetReason(status) == "foreign_directory";
  };
  // Another file in place of LOCK is not truncated.
  COHORT_ASSERT_OK(WriteFileAtomically(dir.File("victim"), "whole", 0644));
  ASSERT_THAT(MakeDirectories(dir.File("soft"), 0700), IsOk());
  std::filesystem::create_symlink(dir.File("victim"), dir.File("soft/LOCK"));
  EXPECT_TRUE(refused(dir.File("soft")));
  EXPECT_THAT(ReadFile(dir.File("victim")), IsOkAndHolds("whole"));

  const std::string open_to_all = dir.File("open");
  ASSERT_THAT(MakeDirectories(open_to_all, 0700), IsOk());
  ASSERT_EQ(chmod(open_to_all.c_str(), 0777), 0);
  COHORT_EXPECT_OK(FileLock::Acquire(open_to_all, "x"));  // it was empty
  struct stat info;
  ASSERT_EQ(stat(open_to_all.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, mode_t{0755});
  ASSERT_EQ(chmod(open_to_all.c_str(), 0777), 0);
  EXPECT_TRUE(refused(open_to_all));

  // A link of one's own may be the name of a state directory.
  std::filesystem::create_symlink(dir.File("soft"), dir.File("own"));
  std::filesystem::remove(dir.File("soft/LOCK"));
  COHORT_EXPECT_OK(FileLock::Acquire(dir.File("own"), "x"));
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr uid_t kNobody = 65534;
  ASSERT_EQ(lchown(dir.File("own").c_str(), kNobody, kNobody), 0);
  EXPECT_TRUE(refused(dir.File("own")));
  ASSERT_EQ(chown(dir.File("soft").c_str(), kNobody, kNobody), 0);
  EXPECT_TRUE(refused(dir.File("soft")));
}

TEST(FileLockTest, NamesTheDirectoryThatIsMissing) {
  EXPECT_THAT(FileLock::Acquire("/no/such", "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/such")));
}

TEST(FileTest, OpensDirectoriesBelowAndThroughNoLink) {
  TempDir temp;
  std::filesystem::create_directory(temp.File("outside"));
  std::filesystem::create_directory(temp.File("root"));
  std::filesystem::create_symlink(temp.File("outside"), temp.File("root/link"));
  const UniqueFd root(open(temp.File("root").c_str(), O_RDONLY | O_DIRECTORY));
  for (const char* path : {"", ".", "a/b", "a//b/"}) {
    COHORT_EXPECT_OK(OpenDirectoryBelow(root.get(), path, 0755)) << path;
  }
  EXPECT_TRUE(std::filesystem::is_directory(temp.File("root/a/b")));
  for (const char* path : {"..", "a/../..", "link", "link/c"}) {
    EXPECT_FALSE(OpenDirectoryBelow(root.get(), path, 0755).ok()) << path;
  }
  EXPECT_TRUE(std::filesystem::is_empty(temp.File("outside")));
}

TEST(FileTest, RemovesTreesThatAreDeepOrNotWritable) {
  TempDir temp;
  // Deeper than a path may be, and than most may have files open.
  const std::string deep = temp.File("deep");
  ASSERT_THAT(MakeDirectories(deep, 0700), IsOk());
  UniqueFd at(open(deep.c_str(), O_RDONLY | O_DIRECTORY));
  for (int i = 0; i < 3'000; ++i) {
    ASSERT_EQ(mkdirat(at.get(), "d", 0700), 0);
    UniqueFd next(openat(at.get(), "d", O_RDONLY | O_DIRECTORY));
    at = std::move(next);
  }
  COHORT_EXPECT_OK(RemoveTree(deep));
  EXPECT_FALSE(std::filesystem::exists(deep));

  const std::string closed = temp.File("closed");
  std::filesystem::create_directories(closed + "/a/b");
  COHORT_ASSERT_OK(WriteFileAtomically(closed + "/a/b/file", "x", 0400));
  std::filesystem::create_directory_symlink(temp.path(), closed + "/a/link");
  COHORT_ASSERT_OK(WriteFileAtomically(temp.File("stays"), "x", 0600));
  const uid_t user = geteuid();
  constexpr uid_t kNobody = 65534;
  if (user == 0) {
    for (const char* each : {"", "/a", "/a/b", "/a/b/file"}) {
      ASSERT_EQ(chown((closed + each).c_str(), kNobody, kNobody), 0);
    }
    ASSERT_EQ(chmod(temp.path().c_str(), 0777), 0);
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  for (const char* each : {"/a/b", "/a", ""}) {
    EXPECT_EQ(chmod((closed + each).c_str(), *each == '\0' ? 0 : 0555), 0);
  }
  const absl::Status removed = RemoveTree(closed);
  ASSERT_EQ(seteuid(user), 0);
  COHORT_EXPECT_OK(removed);
  EXPECT_FALSE(std::filesystem::exists(closed));
  EXPECT_TRUE(std::filesystem::exists(temp.File("stays")));
}

TEST(FileTest, FindsAProgramAsAShellDoes) {
  TempDir temp;
  std::filesystem::create_directories(temp.File("a/tool"));  // no program
  std::filesystem::create_directory(temp.File("b"));
  COHORT_ASSERT_OK(WriteFileAtomically(temp.File("b/tool"), "", 0755));
  COHORT_ASSERT_OK(WriteFileAtomically(temp.File("b/text"), "", 0644));
  const std::string path = temp.File("a") + "::" + temp.File("b");
  EXPECT_EQ(FindProgram(path, "tool"), temp.File("b/tool"));
  EXPECT_EQ(FindProgram(path, "text"), "");
  EXPECT_EQ(FindProgram("", "tool"), "");
}

}  // namespace
}  // namespace cohort
