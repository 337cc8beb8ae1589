#include "client/package.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
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
  std::string bytes;  // of a link: "-> target"

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
    if (const char* target = archive_entry_symlink(entry)) {
      content = absl::StrCat("-> ", target);
    }
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

  static absl::StatusOr<Package> Pack(const PackageSource& source,
                                      const PackageOptions& options = {}) {
    const auto files = ListPackageFiles(source);
    if (!files.ok()) return files.status();
    return Package::Pack(*files, options);
  }
  absl::StatusOr<Package> PackAll(const PackageOptions& options = {}) {
    return Pack({.directory = directory_.path()}, options);
  }

  TempDir directory_;
};

TEST_F(PackageTest, HoldsSortedFilesAndDirectories) {
  Write("b", "bytes of b");
  Write("a/z", "");
  Write("a/run", "#!/bin/sh\n", 0711);
  const auto package = PackAll();
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
  const auto one = Pack({.directory = directory_.File("one")});
  const auto two = Pack({.directory = directory_.File("two")});
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
  const auto package = PackAll();
  COHORT_ASSERT_OK(package);
  std::vector<std::string> found;
  for (const Entry& entry : EntriesOf(*package)) {
    if (entry.bytes == "x") found.push_back(entry.name);
  }
  EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(names));
}

TEST_F(PackageTest, HoldsLinksWithTargetsOfAnyLength) {
  const std::string far = std::string(99, 'd') + "/x";  // 101 bytes
  const std::string near = std::string(98, 'd') + "/x";
  ASSERT_EQ(symlink(far.c_str(), directory_.File("far").c_str()), 0);
  ASSERT_EQ(symlink(near.c_str(), directory_.File("near").c_str()), 0);
  const auto package = PackAll();
  COHORT_ASSERT_OK(package);
  EXPECT_THAT(EntriesOf(*package),
              ElementsAre(Entry{"far", 0777, "-> " + far},
                          Entry{"near", 0777, "-> " + near}));
}

TEST_F(PackageTest, AHardLinkIsACopy) {
  const std::string file = Write("a", "bytes");
  ASSERT_EQ(link(file.c_str(), directory_.File("b").c_str()), 0);
  const auto linked = PackAll();
  COHORT_ASSERT_OK(linked);
  EXPECT_THAT(EntriesOf(*linked), ElementsAre(Entry{"a", 0644, "bytes"},
                                              Entry{"b", 0644, "bytes"}));
}

TEST_F(PackageTest, DependsOnTheTargetsOfLinks) {
  const std::string link = directory_.File("link");
  ASSERT_EQ(symlink("one", link.c_str()), 0);
  const auto one = PackAll();
  unlink(link.c_str());
  ASSERT_EQ(symlink("two", link.c_str()), 0);
  const auto two = PackAll();
  COHORT_ASSERT_OK(one);
  COHORT_ASSERT_OK(two);
  EXPECT_NE(one->hash(), two->hash());
}

TEST_F(PackageTest, RefusesAFileThatChangedSinceItWasListed) {
  const std::string file = Write("file", "before");
  const auto expect_refused = [&](const std::function<void()>& change) {
    const auto files = ListPackageFiles({.directory = directory_.path()});
    COHORT_ASSERT_OK(files);
    change();
    EXPECT_THAT(Package::Pack(*files),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(file)));
    unlink(file.c_str());
    Write("file", "before");
  };
  expect_refused([&] { Write("file", "longer than before"); });
  expect_refused([&] { Write("file", "short"); });
  expect_refused([&] { Write("file", ""); });
  expect_refused([&] { unlink(file.c_str()); });
  expect_refused([&] {
    const timespec later[2] = {{1, 0}, {1, 0}};  // other bytes, the same size
    utimensat(AT_FDCWD, file.c_str(), later, 0);
  });
  expect_refused([&] {
    const std::string other = Write("other", "before");
    unlink(file.c_str());
    ASSERT_EQ(symlink(other.c_str(), file.c_str()), 0);
  });
  expect_refused([&] {
    unlink(file.c_str());
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  });
}

TEST_F(PackageTest, SaysHowMuchIsPacked) {
  Write("a", std::string(300'000, 'a'));
  Write("b", "b");
  std::vector<int64_t> packed;
  COHORT_ASSERT_OK(PackAll(
      {.on_progress = [&](int64_t bytes) { packed.push_back(bytes); }}));
  EXPECT_GE(packed.size(), 3u);
  EXPECT_TRUE(std::is_sorted(packed.begin(), packed.end()));
  EXPECT_EQ(packed.back(), 300'001);
}

TEST_F(PackageTest, RefusesWhatItMayNotRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  Write("secret", "s", 0000);
  EXPECT_THAT(PackAll(), StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("Permission denied")));
}

TEST_F(PackageTest, HasLimits) {
  Write("one", std::string(5000, '1'));
  for (const int64_t size_bytes_max : {int64_t{4096}, int64_t{5120}}) {
    EXPECT_THAT(PackAll({.size_bytes_max = size_bytes_max}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("the package is over ")));
  }
  EXPECT_FALSE(PackAll({.temporary_directory = "/nonexistent"}).ok());
}

}  // namespace
}  // namespace cohort
