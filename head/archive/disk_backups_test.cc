#include "head/archive/disk_backups.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/status_util.h"
#include "common/testing/status_matchers.h"
#include "head/archive/testing/archive_fixture.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::UnorderedElementsAre;

class DiskBackupsTest : public ::testing::Test {
 protected:
  // Names beside the state directory and in it.
  std::vector<std::string> Names() {
    std::vector<std::string> names;
    for (const std::string& in : {fixture_.path("."), fixture_.state_dir()}) {
      for (const auto& entry : fs::directory_iterator(in)) {
        names.push_back(entry.path().filename().string());
      }
    }
    return names;
  }

  void ExpectNothingLeft() {
    EXPECT_THAT(Names(),
                UnorderedElementsAre("head", "store", "store.mark", "ca.key",
                                     "credential", "packages"));
  }

  ArchiveFixture fixture_;
};

TEST_F(DiskBackupsTest, WritesWhatAHeadNeedsAndNothingElse) {
  const auto manifest = fixture_.Backup(fixture_.path("backup"));
  COHORT_ASSERT_OK(manifest);
  EXPECT_EQ(manifest->cluster, FilledId<ClusterId>('c'));
  EXPECT_EQ(manifest->generation, FilledId<GenerationId>('g'));
  EXPECT_EQ(manifest->term, 3u);
  EXPECT_THAT(manifest->missing_packages, IsEmpty());
  EXPECT_THAT(Names(),
              UnorderedElementsAre("head", "backup", "store", "store.mark",
                                   "ca.key", "credential", "packages"));
  const auto files = ReadTree(fixture_.path("backup"));
  EXPECT_EQ(files.size(), manifest->files.size() + 1);
  EXPECT_THAT(files, AllOf(Contains(Key("BACKUP")), Contains(Key("credential")),
                           Contains(Key("store.mark")),
                           Contains(Key("packages/" + fixture_.package_hex())),
                           Contains(Key("store/CURRENT"))));
  EXPECT_THAT(ParseBackupManifest(files.at("BACKUP")), IsOkAndHolds(*manifest));
  for (const auto& [name, bytes] : files) {
    struct stat info;
    ASSERT_EQ(stat(fixture_.path("backup/" + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
}

TEST_F(DiskBackupsTest, IsHot) {
  COHORT_ASSERT_OK(fixture_.Backup(fixture_.path("one")));
  EventRecord event;
  event.set_number(2);
  COHORT_ASSERT_OK(fixture_.store().Append(3, {ToWrite(event)}));
  COHORT_ASSERT_OK(fixture_.Backup(fixture_.path("two")));

  const auto events = [this](const std::string& name) {
    auto store = RocksdbStore::Open({.path = fixture_.path(name) + "/store",
                                     .access = StoreAccess::kInspect});
    return LoadRecords<EventRecord>(**store)->size();
  };
  EXPECT_EQ(events("one"), 1u);
  EXPECT_EQ(events("two"), 2u);
}

// A store that was opened again has its rows in table files.
TEST_F(DiskBackupsTest, TakesTableFilesAndAnEmptyLog) {
  fixture_.store();
  fixture_.CloseStore();
  COHORT_ASSERT_OK(fixture_.Backup(fixture_.path("backup")));
  auto store = RocksdbStore::Open(
      {.path = fixture_.path("backup/store"), .access = StoreAccess::kInspect});
  COHORT_ASSERT_OK(store);
  EXPECT_EQ(LoadRecords<JobRecord>(**store)->size(), 3u);
}

TEST_F(DiskBackupsTest, TheSameRequestIsAnsweredAgain) {
  const auto first = fixture_.Backup(fixture_.path("backup"), "r1");
  const auto files = ReadTree(fixture_.path("backup"));
  EXPECT_THAT(fixture_.Backup(fixture_.path("backup"), "r1"),
              IsOkAndHolds(*first));
  EXPECT_EQ(ReadTree(fixture_.path("backup")), files);
}

TEST_F(DiskBackupsTest, AnExistingDirectoryIsRefusedAndStays) {
  for (const bool empty : {true, false}) {
    fs::create_directory(fixture_.path("there"));
    if (!empty) {
      COHORT_ASSERT_OK(
          WriteFileAtomically(fixture_.path("there/x"), "x", 0600));
    }
    const auto refused = fixture_.Backup(fixture_.path("there"));
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kAlreadyExists,
                                  AllOf(HasSubstr(fixture_.path("there")),
                                        HasSubstr("there already"))));
    EXPECT_EQ(GetReason(refused.status()), "directory_exists");
    EXPECT_EQ(fs::is_empty(fixture_.path("there")), empty);
    fs::remove_all(fixture_.path("there"));
  }
  ExpectNothingLeft();
}

TEST_F(DiskBackupsTest, DirectoriesThatCannotBeAreRefused) {
  const std::string bad[] = {
      "",
      "relative",
      "/",
      fixture_.path("b/"),
      fixture_.path("../b"),
      fixture_.path("missing/b"),
      fixture_.state_dir() + "/b",
      fixture_.state_dir() + "/credential/b",
      fixture_.path(std::string(5000, 'x')),
      fixture_.path(std::string("nul\0byte", 8)),
  };
  for (const std::string& directory : bad) {
    EXPECT_THAT(fixture_.Backup(directory),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("cannot back up to")))
        << directory;
  }
  ExpectNothingLeft();
}

TEST_F(DiskBackupsTest, ALinkIntoTheStateDirectoryIsRefused) {
  fs::create_directory_symlink(fixture_.state_dir(), fixture_.path("link"));
  fs::create_directory_symlink(fixture_.state_dir() + "/packages",
                               fixture_.path("deep"));
  for (const std::string directory : {"link/b", "link/packages/b", "deep/b"}) {
    EXPECT_THAT(fixture_.Backup(fixture_.path(directory)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("it lies in the head's own state")))
        << directory;
  }
  fs::remove(fixture_.path("link"));
  fs::remove(fixture_.path("deep"));
  ExpectNothingLeft();
  // A link elsewhere is none of our business.
  fs::create_directory(fixture_.path("real"));
  fs::create_directory_symlink(fixture_.path("real"), fixture_.path("link"));
  COHORT_EXPECT_OK(fixture_.Backup(fixture_.path("link/b")));
}

TEST_F(DiskBackupsTest, AParentThatCannotBeWrittenLeavesNothing) {
  const auto refused = fixture_.Backup("/proc/self/backup");
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().message(), HasSubstr("/proc/self"));
  ExpectNothingLeft();
}

TEST_F(DiskBackupsTest, AFullDiskLeavesNothingAndTheStoreGoesOn) {
  const auto refused = fixture_.Backup(fixture_.path("backup"), "r1",
                                       /*bytes_kept_free=*/int64_t{1} << 60);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("nothing was backed up"),
                                      HasSubstr("are needed"))));
  EXPECT_EQ(GetReason(refused.status()), "disk_full");
  ExpectNothingLeft();
  EventRecord event;
  event.set_number(2);
  COHORT_EXPECT_OK(fixture_.store().Append(3, {ToWrite(event)}));
  COHORT_EXPECT_OK(fixture_.Backup(fixture_.path("backup")));
}

TEST_F(DiskBackupsTest, ADamagedPackageIsToldAndTheRestIsSaved) {
  const std::string package =
      fixture_.state_dir() + "/packages/" + fixture_.package_hex();
  for (const bool gone : {false, true}) {
    if (gone) {
      fs::remove(package);
    } else {
      fs::resize_file(package, 3);
    }
    const std::string to = fixture_.path(gone ? "gone" : "short");
    const auto manifest = fixture_.Backup(to);
    COHORT_ASSERT_OK(manifest);
    EXPECT_THAT(manifest->missing_packages,
                ElementsAre(fixture_.package_hex()));
    EXPECT_TRUE(fs::is_empty(to + "/packages"));
  }
}

// What a killed head left is removed by the same request.
TEST_F(DiskBackupsTest, AnEarlierTryIsNotInTheWay) {
  COHORT_ASSERT_OK(fixture_.Backup(fixture_.path("x"), "r1"));
  const std::string partial =
      fixture_.path("backup.partial-") + Sha256::Of("r1").ToHex().substr(0, 16);
  fs::rename(fixture_.path("x"), partial);
  fs::create_directory(fixture_.state_dir() + "/backup.tmp");
  COHORT_ASSERT_OK(fixture_.Backup(fixture_.path("backup"), "r1"));
  EXPECT_FALSE(fs::exists(partial));
  EXPECT_FALSE(fs::exists(fixture_.state_dir() + "/backup.tmp"));
}

}  // namespace
}  // namespace cohort::head
