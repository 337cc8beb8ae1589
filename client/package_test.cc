#include "client/package.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/hash.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Entry {
  std::string name;
  unsigned mode;
  std::string bytes;

  friend bool operator==(const Entry&, const Entry&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Entry& entry) {
    return out << entry.name << " " << std::oct << entry.mode << " "
               << entry.bytes;
  }
};

// What a tar reader that is not ours finds.
std::vector<Entry> EntriesOf(const Package& package) {
  const std::string bytes =
      *package.Read(0, static_cast<size_t>(package.size_bytes()));
  EXPECT_EQ(Sha256::Of(bytes), package.hash());
  const std::unique_ptr<archive, int (*)(archive*)> reader(archive_read_new(),
                                                           &archive_read_free);
  archive_read_support_format_tar(reader.get());
  EXPECT_EQ(archive_read_open_memory(reader.get(), bytes.data(), bytes.size()),
            ARCHIVE_OK);
  std::vector<Entry> entries;
  archive_entry* entry = nullptr;
  while (archive_read_next_header(reader.get(), &entry) == ARCHIVE_OK) {
    EXPECT_EQ(archive_entry_mtime(entry), 0);
    EXPECT_EQ(archive_entry_uid(entry), 0);
    EXPECT_EQ(archive_entry_gid(entry), 0);
    std::string content(static_cast<size_t>(archive_entry_size(entry)), '\0');
    EXPECT_EQ(archive_read_data(reader.get(), content.data(), content.size()),
              static_cast<la_ssize_t>(content.size()));
    entries.push_back(
        {archive_entry_pathname(entry), archive_entry_perm(entry), content});
  }
  EXPECT_EQ(archive_error_string(reader.get()), nullptr);
  return entries;
}

class PackageTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& bytes,
                    mode_t mode = 0600) {
    const std::string path = directory_.File(name);
    std::filesystem::create_directories(
        std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    chmod(path.c_str(), mode);
    return path;
  }

  TempDir directory_;
};

TEST_F(PackageTest, HoldsSortedFilesAndDirectories) {
  Write("b", "bytes of b");
  Write("a/z", "");
  Write("a/run", "#!/bin/sh\n", 0711);
  const auto package = Package::FromDirectory(directory_.path());
  COHORT_ASSERT_OK(package);
  EXPECT_THAT(
      EntriesOf(*package),
      ElementsAre(Entry{"a/", 0755, ""}, Entry{"a/run", 0755, "#!/bin/sh\n"},
                  Entry{"a/z", 0644, ""}, Entry{"b", 0644, "bytes of b"}));
}

TEST_F(PackageTest, IsTheSameWhereverAndWheneverItIsPacked) {
  Write("one/sub/file", "content", 0640);
  Write("two/sub/file", "content", 0604);
  const timespec long_ago[2] = {{1, 0}, {1, 0}};
  utimensat(AT_FDCWD, directory_.File("two/sub/file").c_str(), long_ago, 0);
  const auto one = Package::FromDirectory(directory_.File("one"));
  const auto two = Package::FromDirectory(directory_.File("two"));
  COHORT_ASSERT_OK(one);
  COHORT_ASSERT_OK(two);
  EXPECT_EQ(one->hash(), two->hash());
  // Golden: uploads resume by this name, also after an upgrade.
  EXPECT_EQ(one->hash().ToHex(),
            "d6ce96ea30296a26ec7e6a3ce789416f6291da7a36ef72dbbf36a27e37122949");
}

TEST_F(PackageTest, HoldsNamesOfAnyLength) {
  const std::string part(90, 'd');
  std::string name = part;
  std::vector<std::string> names;
  for (int i = 0; i < 6; ++i) {
    names.push_back(absl::StrCat(name, "/", std::string(97 + i, 'f')));
    Write(names.back(), "x");
    absl::StrAppend(&name, "/", part);
  }
  const auto package = Package::FromDirectory(directory_.path());
  COHORT_ASSERT_OK(package);
  std::vector<std::string> found;
  for (const Entry& entry : EntriesOf(*package)) {
    if (entry.bytes == "x") found.push_back(entry.name);
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(names));
}

TEST_F(PackageTest, PutsFilesUnderTheirBaseNames) {
  const std::string train = Write("deep/down/train.py", "t");
  const std::string data = Write("data", "d");
  const auto package = Package::FromFiles({train, data});
  COHORT_ASSERT_OK(package);
  EXPECT_THAT(EntriesOf(*package), ElementsAre(Entry{"data", 0644, "d"},
                                               Entry{"train.py", 0644, "t"}));
  const std::string other = Write("other/train.py", "o");
  EXPECT_THAT(Package::FromFiles({train, other}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(other), HasSubstr("same name"))));
}

TEST_F(PackageTest, RefusesLinksAndWhatIsNoFile) {
  Write("tree/file", "f");
  const std::string tree = directory_.File("tree");
  const std::string odd = tree + "/odd";
  const auto expect_refused = [&](const char* why) {
    EXPECT_THAT(Package::FromDirectory(tree),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(odd), HasSubstr(why))));
    unlink(odd.c_str());
  };
  ASSERT_EQ(symlink("file", odd.c_str()), 0);
  expect_refused("symbolic link");
  ASSERT_EQ(symlink("/", odd.c_str()), 0);
  expect_refused("symbolic link");
  ASSERT_EQ(link((tree + "/file").c_str(), odd.c_str()), 0);
  expect_refused("hard link");
  ASSERT_EQ(mkfifo(odd.c_str(), 0600), 0);
  expect_refused("a pipe");
}

TEST_F(PackageTest, TakesAFileThatHasAnotherNameElsewhere) {
  const std::string file = Write("tree/file", "f");
  ASSERT_EQ(link(file.c_str(), directory_.File("elsewhere").c_str()), 0);
  COHORT_EXPECT_OK(Package::FromDirectory(directory_.File("tree")));
}

TEST_F(PackageTest, NamesWhatIsNotThere) {
  const std::string file = Write("file", "f");
  for (const std::string& missing :
       {directory_.File("missing"), file + "/below", std::string("")}) {
    EXPECT_THAT(Package::FromDirectory(missing),
                StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(Package::FromFiles({missing}),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_THAT(
      Package::FromDirectory(file),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--file")));
  EXPECT_THAT(
      Package::FromFiles({directory_.path()}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--working-dir")));
}

TEST_F(PackageTest, RefusesWhatItMayNotRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  Write("secret", "s", 0000);
  EXPECT_THAT(Package::FromDirectory(directory_.path()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("Permission denied")));
}

TEST_F(PackageTest, HasLimits) {
  Write("one", std::string(5000, '1'));
  Write("two", "2");
  EXPECT_THAT(
      Package::FromDirectory(directory_.path(), {.size_bytes_max = 4096}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4KiB")));
  EXPECT_THAT(
      Package::FromDirectory(directory_.path(), {.entries_max = 1}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 1 ")));
  EXPECT_FALSE(Package::FromDirectory(directory_.path(),
                                      {.temporary_directory = "/nonexistent"})
                   .ok());
}

}  // namespace
}  // namespace cohort
