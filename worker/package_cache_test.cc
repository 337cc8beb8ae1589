#include "worker/package_cache.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/stat.h>
#include <time.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/file.h"
#include "common/status_util.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "rpc/methods.h"
#include "worker/process_host.h"

namespace cohort::worker {
namespace {

using testing::HasSubstr;

struct Entry {
  std::string name;
  std::string bytes;
  unsigned type = AE_IFREG;
  std::string link = "";
};

// `is_gnu`: with long names as client/tar_writer has them; libarchive calls the
// format gnutar.
std::string MakeTar(const std::string& path, const std::vector<Entry>& entries,
                    bool is_gnu = false) {
  struct archive* writer = archive_write_new();
  if (is_gnu) {
    archive_write_set_format_gnutar(writer);
  } else {
    archive_write_set_format_pax_restricted(writer);
  }
  EXPECT_EQ(archive_write_open_filename(writer, path.c_str()), ARCHIVE_OK);
  for (const Entry& entry : entries) {
    struct archive_entry* header = archive_entry_new();
    archive_entry_set_pathname(header, entry.name.c_str());
    archive_entry_set_filetype(header, entry.type);
    archive_entry_set_perm(header, 0755);
    archive_entry_set_size(header, static_cast<int64_t>(entry.bytes.size()));
    if (entry.type == AE_IFLNK) {
      archive_entry_set_symlink(header, entry.link.c_str());
    } else if (!entry.link.empty()) {
      archive_entry_set_hardlink(header, entry.link.c_str());
    }
    EXPECT_EQ(archive_write_header(writer, header), ARCHIVE_OK);
    archive_write_data(writer, entry.bytes.data(), entry.bytes.size());
    archive_entry_free(header);
  }
  archive_write_free(writer);
  return path;
}

TEST(UnpackPackageTest, RestoresFilesDirectoriesAndModes) {
  TempDir temp;
  const std::string tar =
      MakeTar(temp.path() + "/a.tar",
              {{"dir", "", AE_IFDIR}, {"dir/run", "#!/bin/sh\n"}});
  const std::string out = temp.path() + "/out";
  ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
  ASSERT_THAT(UnpackPackage(tar, out), IsOk());
  EXPECT_EQ(*ReadFile(out + "/dir/run"), "#!/bin/sh\n");
  struct stat info;
  ASSERT_EQ(stat((out + "/dir/run").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0755u);
}

TEST(UnpackPackageTest, PlacesShareProgramsAndNothingElse) {
  TempDir temp;
  const std::string program =
      "\x7f"
      "ELF program";
  const std::string tar =
      MakeTar(temp.path() + "/a.tar", {{"data", "bytes"},
                                       {"bin/program", program},
                                       {"lib/lib.so.1", program},
                                       {"script", "#!/bin/sh\n"}});
  std::map<std::string, std::vector<ino_t>> inodes;
  for (const std::string& out : {temp.File("one"), temp.File("two")}) {
    ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
    ASSERT_THAT(UnpackPackage(tar, out), IsOk());
    EXPECT_EQ(*ReadFile(out + "/bin/program"), program);
    EXPECT_EQ(*ReadFile(out + "/script"), "#!/bin/sh\n");
    for (const char* name : {"data", "bin/program", "lib/lib.so.1", "script"}) {
      struct stat info = {};
      ASSERT_EQ(stat(absl::StrCat(out, "/", name).c_str(), &info), 0);
      inodes[name].push_back(info.st_ino);
    }
  }
  EXPECT_EQ(inodes["bin/program"][0], inodes["bin/program"][1]);
  EXPECT_NE(inodes["data"][0], inodes["data"][1]);
  EXPECT_NE(inodes["lib/lib.so.1"][0], inodes["lib/lib.so.1"][1]);
  EXPECT_NE(inodes["script"][0], inodes["script"][1]);
}

TEST(UnpackPackageTest, RefusesWhatCouldReachOutside) {
  const std::vector<std::pair<Entry, std::string>> cases = {
      {{"../evil", "x"}, "leads outside"},
      {{"a/../../evil", "x"}, "leads outside"},
      {{"/etc/evil", "x"}, "absolute"},
      {{"link", "", AE_IFLNK, "/etc"}, "link that leads outside"},
      {{"link", "", AE_IFLNK, ".."}, "link that leads outside"},
      {{"a/link", "", AE_IFLNK, "../../b"}, "link that leads outside"},
      {{"./link", "", AE_IFLNK, "../b"}, "link that leads outside"},
      {{"a/link", "", AE_IFLNK, "b/../c"}, "link that leads outside"},
      {{"hard", "", AE_IFREG, "/etc/passwd"}, "is a hard link"},
      {{"fifo", "", AE_IFIFO}, "neither a plain file"},
  };
  for (const auto& [entry, why] : cases) {
    SCOPED_TRACE(entry.name);
    TempDir temp;
    const std::string tar = MakeTar(temp.path() + "/a.tar", {entry});
    const std::string out = temp.path() + "/out";
    ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
    EXPECT_THAT(UnpackPackage(tar, out),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
    EXPECT_TRUE(std::filesystem::is_empty(out));
  }
}

TEST(UnpackPackageTest, RestoresLinks) {
  TempDir temp;
  const std::string tar = MakeTar(
      temp.path() + "/a.tar", {{"v2/model", "bytes"},
                               {"current", "", AE_IFLNK, "v2"},
                               {"bin/run", "", AE_IFLNK, "../current/model"},
                               {"bin/top", "", AE_IFLNK, ".."}});
  const std::string out = temp.path() + "/out";
  ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
  ASSERT_THAT(UnpackPackage(tar, out), IsOk());
  EXPECT_EQ(std::filesystem::read_symlink(out + "/current"), "v2");
  EXPECT_EQ(*ReadFile(out + "/bin/run"), "bytes");
  EXPECT_EQ(*ReadFile(out + "/bin/top/v2/model"), "bytes");
}

// Each would be a place that TR-1 does not see by the names alone.
TEST(UnpackPackageTest, WritesNothingThroughLinks) {
  for (const Entry& second :
       std::vector<Entry>{{"link/evil", "bytes"},
                          {"link/evil", "", AE_IFDIR},
                          {"link", "", AE_IFDIR},
                          {"link", "bytes"},
                          {"link", "", AE_IFLNK, "a"},
                          {"link/up", "", AE_IFLNK, "../x"}}) {
    SCOPED_TRACE(second.name);
    TempDir temp;
    const std::string tar =
        MakeTar(temp.path() + "/a.tar",
                {{"a/b", "bytes"}, {"link", "", AE_IFLNK, "a"}, second});
    const std::string out = temp.path() + "/out";
    ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
    const absl::Status refused = UnpackPackage(tar, out);
    EXPECT_FALSE(refused.ok());
    EXPECT_EQ(GetReason(refused), "") << "no other node can unpack it either";
    EXPECT_EQ(std::filesystem::read_symlink(out + "/link"), "a");
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(out + "/a"),
                            std::filesystem::directory_iterator()),
              1);
  }
}

TEST(UnpackPackageTest, RestoresLongNamesAndTargetsAndLargeFiles) {
  TempDir temp;
  const std::string far = std::string(120, 'f') + "/" + std::string(120, 'f');
  const std::string bytes(3'000'001, 'b');
  const std::string tar =
      MakeTar(temp.path() + "/a.tar",
              {{far, bytes}, {std::string(120, 'l'), "", AE_IFLNK, far}},
              /*is_gnu=*/true);
  const std::string out = temp.path() + "/out";
  ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
  ASSERT_THAT(UnpackPackage(tar, out), IsOk());
  EXPECT_EQ(*ReadFile(out + "/" + far), bytes);
  EXPECT_EQ(std::filesystem::read_symlink(out + "/" + std::string(120, 'l')),
            far);
}

TEST(UnpackPackageTest, RefusesAnArchiveCutAnywhere) {
  TempDir temp;
  const std::string tar =
      MakeTar(temp.path() + "/a.tar", {{"a", std::string(700, 'a')}});
  const std::string whole = *ReadFile(tar);
  for (const size_t size : {0u, 1u, 511u, 512u, 600u, 1535u, 1536u}) {
    SCOPED_TRACE(size);
    const std::string cut = temp.path() + "/cut.tar";
    std::ofstream(cut, std::ios::binary) << whole.substr(0, size);
    const std::string out = temp.path() + "/out" + std::to_string(size);
    ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
    EXPECT_THAT(UnpackPackage(cut, out),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("not a whole tar archive")));
  }
}

TEST(UnpackPackageTest, RefusesAnyDamageToAHeader) {
  TempDir temp;
  const std::string whole =
      *ReadFile(MakeTar(temp.path() + "/a.tar", {{"name", "bytes"}}));
  for (size_t at = 0; at < 512; ++at) {
    SCOPED_TRACE(at);
    std::string damaged = whole;
    damaged[at] ^= 0x01;
    const std::string tar = temp.path() + "/damaged.tar";
    std::ofstream(tar, std::ios::binary) << damaged;
    const std::string out = temp.path() + "/out" + std::to_string(at);
    ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
    // The checksum's field ends in a NUL and a space that nobody reads.
    if (at == 154 || at == 155) continue;
    EXPECT_THAT(UnpackPackage(tar, out),
                StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(UnpackPackageTest, RefusesANameThatComesTwice) {
  for (const Entry& second : std::vector<Entry>{
           {"a", "second"}, {"a", "", AE_IFDIR}, {"a/b", "below a file"}}) {
    SCOPED_TRACE(second.name);
    TempDir temp;
    const std::string tar =
        MakeTar(temp.path() + "/a.tar", {{"a", "first"}, second});
    const std::string out = temp.path() + "/out";
    ASSERT_THAT(MakeDirectories(out, 0700), IsOk());
    const absl::Status refused = UnpackPackage(tar, out);
    EXPECT_FALSE(refused.ok());
    EXPECT_EQ(GetReason(refused), "") << "no other node can unpack it either";
    EXPECT_EQ(*ReadFile(out + "/a"), "first");
  }
}

TEST(UnpackPackageTest, WhatCannotBeReadOrWrittenHereIsTheNodesFault) {
  TempDir temp;
  const std::string tar = MakeTar(temp.path() + "/a.tar", {{"a", "bytes"}});
  // Not even root makes files there.
  for (const absl::Status& failed :
       {UnpackPackage(tar, "/proc"),
        UnpackPackage(temp.path() + "/none.tar", temp.path())}) {
    EXPECT_FALSE(failed.ok());
    EXPECT_EQ(GetReason(failed), kNodeFault) << failed;
  }
}

TEST(UnpackPackageTest, RefusesWhatIsNoArchive) {
  TempDir temp;
  std::ofstream(temp.path() + "/a.tar") << "this is not an archive at all";
  EXPECT_THAT(UnpackPackage(temp.path() + "/a.tar", temp.path()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a.tar")));
}

// A head that has some packages and gives them in small chunks.
class PackageHead : public rpc::Channel {
 public:
  rpc::CallHandle StartUnary(absl::string_view path, std::string request,
                             rpc::CallOptions, Executor& where,
                             Done done) override {
    EXPECT_EQ(std::string(path), rpc::kFetchPackage.path);
    v1::FetchPackageRequest fetch;
    fetch.ParseFromString(request);
    offsets.push_back(fetch.offset());
    rpc::CallResult result;
    const auto found = packages.find(fetch.hash());
    if (!why_not.ok()) {
      result.response = why_not;
    } else if (found == packages.end()) {
      result.response = absl::NotFoundError("no such package");
    } else {
      v1::FetchPackageResponse response;
      response.set_data(found->second.substr(
          static_cast<size_t>(fetch.offset()), chunk_bytes));
      response.set_size_bytes(static_cast<int64_t>(found->second.size()));
      result.response = response.SerializeAsString();
    }
    where.Post([done = std::move(done), result = std::move(result)]() mutable {
      std::move(done)(std::move(result));
    });
    return {};
  }
  std::unique_ptr<rpc::ClientStream> OpenStream(absl::string_view,
                                                rpc::CallOptions, Executor&,
                                                rpc::StreamEvents) override {
    return nullptr;
  }
  const std::string& address() const override { return address_; }

  std::map<std::string, std::string> packages;
  std::vector<int64_t> offsets;
  absl::Status why_not;
  size_t chunk_bytes = 10;

 private:
  const std::string address_ = "head";
};

class PackageCacheTest : public testing::Test {
 protected:
  PackageCacheTest() : cache_(temp_.path(), head_, executor_, executor_) {}

  Digest Publish(const std::string& bytes) {
    const Digest hash = Sha256::Of(bytes);
    head_.packages[std::string(hash.bytes())] = bytes;
    return hash;
  }
  absl::StatusOr<std::string> Fetch(const Digest& hash) {
    absl::StatusOr<PackageCache::Archive> archive =
        absl::UnknownError("not answered");
    cache_.Fetch(hash, [&](auto result) { archive = std::move(result); });
    executor_.RunUntilIdle();
    if (!archive.ok()) return archive.status();
    return **archive;
  }

  TempDir temp_;
  ManualExecutor executor_;
  PackageHead head_;
  PackageCache cache_;
};

TEST_F(PackageCacheTest, FetchesAPackageOnceAndKeepsIt) {
  const std::string bytes(25, 'p');
  const Digest hash = Publish(bytes);
  const auto path = Fetch(hash);
  ASSERT_THAT(path, IsOk());
  EXPECT_EQ(*ReadFile(*path), bytes);
  EXPECT_THAT(head_.offsets, testing::ElementsAre(0, 10, 20));
  EXPECT_THAT(Fetch(hash), IsOk());
  EXPECT_EQ(head_.offsets.size(), 3u);
}

TEST_F(PackageCacheTest, GoesOnWhereAnEarlierDaemonStopped) {
  const std::string bytes = "0123456789abcdefghij!";
  const Digest hash = Publish(bytes);
  std::ofstream(temp_.path() + "/" + hash.ToHex() + ".part") << "0123456789abc";
  const auto path = Fetch(hash);
  ASSERT_THAT(path, IsOk());
  EXPECT_EQ(*ReadFile(*path), bytes);
  EXPECT_EQ(head_.offsets.front(), 13);
}

TEST_F(PackageCacheTest, AnAnswerWithoutTheHashIsDroppedAndTheNextTryIsClean) {
  const Digest hash = Publish("the right bytes");
  head_.packages[std::string(hash.bytes())] = "the wrong bytes";
  const absl::Status lost = Fetch(hash).status();
  EXPECT_THAT(lost, StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_EQ(GetReason(lost), kPackageLost);
  Publish("the right bytes");
  EXPECT_THAT(Fetch(hash), IsOk());
}

TEST_F(PackageCacheTest, APartThatWasDamagedHereIsFetchedAnew) {
  const std::string bytes = "0123456789abcdefghij!";
  const Digest hash = Publish(bytes);
  std::ofstream(temp_.path() + "/" + hash.ToHex() + ".part") << "0123456789XYZ";
  const auto path = Fetch(hash);
  ASSERT_THAT(path, IsOk());
  EXPECT_EQ(*ReadFile(*path), bytes);
}

TEST_F(PackageCacheTest, OneThatWasDamagedWhileItWasKeptIsFetchedAnew) {
  const std::string bytes = "echo GOOD; exit 0";
  const Digest hash = Publish(bytes);
  const std::string path = *Fetch(hash);
  for (const char* damaged : {"echo EVIL; exit 0", "echo", ""}) {
    SCOPED_TRACE(damaged);
    std::ofstream(path, std::ios::trunc) << damaged;
    head_.offsets.clear();
    ASSERT_THAT(Fetch(hash), IsOk());
    EXPECT_EQ(*ReadFile(path), bytes);
    EXPECT_EQ(head_.offsets.size(), 2u);
  }
}

TEST_F(PackageCacheTest, WhatCannotBeKeptHereIsTheNodesFault) {
  const Digest hash = Publish("bytes");
  const std::string path = temp_.path() + "/" + hash.ToHex();
  std::filesystem::create_directories(path + "/in the way");
  const absl::Status failed = Fetch(hash).status();
  EXPECT_THAT(std::string(failed.message()), HasSubstr(path));
  EXPECT_EQ(GetReason(failed), kNodeFault);
  std::filesystem::remove_all(path);
  EXPECT_THAT(Fetch(hash), IsOk());
}

TEST_F(PackageCacheTest, SaysWhenTheHeadHasNoSuchPackage) {
  const absl::Status lost = Fetch(Sha256::Of("unknown")).status();
  EXPECT_THAT(lost,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("package")));
  EXPECT_EQ(GetReason(lost), kPackageLost);
}

TEST_F(PackageCacheTest, WaitsForAHeadThatIsAway) {
  const Digest hash = Publish(std::string(25, 'p'));
  for (const absl::Status& why :
       {absl::UnavailableError("away"), absl::DeadlineExceededError("slow"),
        absl::ResourceExhaustedError("flooded")}) {
    head_.why_not = why;
    absl::StatusOr<PackageCache::Archive> path =
        absl::UnknownError("not answered");
    cache_.Fetch(hash, [&](auto result) { path = std::move(result); });
    executor_.AdvanceBy(absl::Minutes(5));
    EXPECT_THAT(path.status(), StatusIs(absl::StatusCode::kUnknown));
    head_.why_not = absl::OkStatus();
    executor_.AdvanceBy(absl::Seconds(2));
    ASSERT_THAT(path, IsOk());
    std::filesystem::remove(**path);
  }
}

TEST_F(PackageCacheTest, TwoThatWantOnePackageShareTheFetch) {
  const Digest hash = Publish(std::string(30, 'x'));
  int answers = 0;
  for (int i = 0; i < 2; ++i) {
    cache_.Fetch(hash, [&](auto path) {
      EXPECT_THAT(path, IsOk());
      ++answers;
    });
  }
  executor_.RunUntilIdle();
  EXPECT_EQ(answers, 2);
  EXPECT_EQ(head_.offsets.size(), 3u);
}

TEST_F(PackageCacheTest, OneThatIsDamagedLongAfterItWasReadIsFetchedAnew) {
  const std::string bytes = "echo GOOD; exit 0";
  const Digest hash = Publish(bytes);
  const std::string path = *Fetch(hash);
  struct stat info = {};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  // Past the tick of the file system's clock in which it was written.
  timespec now = {};
  do {
    // NOLINT(cohort-clock): compared with times of files alone.
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
  } while (absl::TimeFromTimespec(now) <= absl::TimeFromTimespec(info.st_ctim));
  ASSERT_THAT(Fetch(hash), IsOk());
  std::ofstream(path, std::ios::trunc) << "echo EVIL; exit 0";
  ASSERT_THAT(Fetch(hash), IsOk());
  EXPECT_EQ(*ReadFile(path), bytes);
}

TEST_F(PackageCacheTest, WhatSomebodyIsAboutToUnpackStays) {
  const std::string bytes = "wanted";
  PackageCache::Archive archive;
  cache_.Fetch(Publish(bytes), [&](auto result) { archive = *result; });
  executor_.RunUntilIdle();
  for (size_t i = 0; i < PackageCache::kArchivesMax + 2; ++i) {
    COHORT_ASSERT_OK(Fetch(Publish(std::to_string(i))));
  }
  EXPECT_EQ(ReadFile(*archive).value_or("gone"), bytes);
  const std::string path = *archive;
  archive = nullptr;
  COHORT_ASSERT_OK(Fetch(Publish("another")));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(PackageCacheTest, KeepsABoundedNumberOfArchives) {
  for (size_t i = 0; i < PackageCache::kArchivesMax + 2; ++i) {
    const auto path = Fetch(Publish(std::to_string(i)));
    ASSERT_THAT(path, IsOk());
    std::filesystem::create_directory(*path + ".programs");
  }
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator(temp_.path())) {
    ++files;
  }
  // Each with its programs.
  EXPECT_EQ(files, 2 * PackageCache::kArchivesMax);
}

}  // namespace
}  // namespace cohort::worker
