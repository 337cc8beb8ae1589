#include "head/services/disk_package_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/hash.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::head {
namespace {

using testing::HasSubstr;

class DiskPackageStoreTest : public testing::Test {
 protected:
  DiskPackageStoreTest() { Open({}); }

  void Open(DiskPackageStoreOptions options) {
    options.directory = temp_.path();
    store_.emplace(options, executor_, executor_, executor_);
  }

  // Runs one call to its answer.
  template <typename Result, typename Call>
  Result Await(Call call) {
    std::optional<Result> answer;
    call([&answer](Result result) { answer.emplace(std::move(result)); });
    EXPECT_FALSE(answer.has_value()) << "answered inside the call";
    executor_.RunUntilIdle();
    EXPECT_TRUE(answer.has_value());
    return *std::move(answer);
  }
  absl::StatusOr<int64_t> Begin(const std::string& hash, int64_t size) {
    return Await<absl::StatusOr<int64_t>>(
        [&](auto done) { store_->Begin(hash, size, std::move(done)); });
  }
  absl::StatusOr<int64_t> Upload(const std::string& hash, int64_t offset,
                                 const std::string& data) {
    return Await<absl::StatusOr<int64_t>>([&](auto done) {
      store_->Upload(hash, offset, data, std::move(done));
    });
  }
  absl::Status Finish(const std::string& hash, int64_t size) {
    return Await<absl::Status>(
        [&](auto done) { store_->Finish(hash, size, std::move(done)); });
  }
  absl::StatusOr<PackageChunk> Fetch(const std::string& hash, int64_t offset) {
    return Await<absl::StatusOr<PackageChunk>>(
        [&](auto done) { store_->Fetch(hash, offset, std::move(done)); });
  }
  absl::Status Look(const std::string& hash, int64_t size) {
    return Await<absl::Status>(
        [&](auto done) { store_->Look(hash, size, std::move(done)); });
  }
  static std::string HashOf(const std::string& bytes) {
    return std::string(Sha256::Of(bytes).bytes());
  }

  TempDir temp_;
  ManualExecutor executor_;
  std::optional<DiskPackageStore> store_;
};

TEST_F(DiskPackageStoreTest, TakesAPackageInChunksAndGivesItBack) {
  const std::string bytes = "0123456789";
  const std::string hash = HashOf(bytes);
  EXPECT_THAT(Begin(hash, 10), IsOkAndHolds(0));
  EXPECT_THAT(Upload(hash, 0, "0123"), IsOkAndHolds(4));
  EXPECT_THAT(Fetch(hash, 0).status(), StatusIs(absl::StatusCode::kNotFound))
      << "not before it is whole";
  EXPECT_THAT(Upload(hash, 4, "456789"), IsOkAndHolds(10));
  EXPECT_THAT(Finish(hash, 10), IsOk());
  const auto chunk = Fetch(hash, 3);
  ASSERT_THAT(chunk, IsOk());
  EXPECT_EQ(chunk->data, "3456789");
  EXPECT_EQ(chunk->size_bytes, 10);
  EXPECT_THAT(Begin(hash, 10), IsOkAndHolds(10));
  EXPECT_THAT(Finish(hash, 10), IsOk()) << "again is the same";
}

TEST_F(DiskPackageStoreTest, GoesOnAfterARestart) {
  const std::string hash = HashOf("abcdef");
  ASSERT_THAT(Begin(hash, 6), IsOkAndHolds(0));
  ASSERT_THAT(Upload(hash, 0, "abc"), IsOkAndHolds(3));
  Open({});
  EXPECT_THAT(Begin(hash, 6), IsOkAndHolds(3));
  EXPECT_THAT(Upload(hash, 0, "abc"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("at offset 3")));
  EXPECT_THAT(Finish(hash, 6), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        HasSubstr("3 of 6")));
}

// PK-1
TEST_F(DiskPackageStoreTest, DropsBytesThatDoNotHaveTheHash) {
  const std::string hash = HashOf("right");
  ASSERT_THAT(Upload(hash, 0, "wrong"), IsOkAndHolds(5));
  EXPECT_THAT(Finish(hash, 5), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(Begin(hash, 5), IsOkAndHolds(0));
}

TEST_F(DiskPackageStoreTest, RefusesWhatCannotBe) {
  EXPECT_THAT(Begin("short", 5), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Begin(HashOf("a"), 0),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Begin(HashOf("a"), int64_t{1} << 50),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(Upload(HashOf("a"), 0, std::string(2 << 20, 'x')).status(),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(DiskPackageStoreTest, LeavesRoomForTheControlStore) {
  Open({.bytes_kept_free = int64_t{1} << 60});
  EXPECT_THAT(
      Begin(HashOf("a"), 5),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("stay free")));
}

TEST_F(DiskPackageStoreTest, LeavesItWhileOthersUploadToo) {
  ASSERT_THAT(Begin(HashOf("a"), 5), IsOkAndHolds(0));
  Open({.bytes_kept_free = int64_t{1} << 60});  // which others have taken
  EXPECT_THAT(
      Upload(HashOf("a"), 0, "bytes").status(),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("stay free")));
}

TEST_F(DiskPackageStoreTest, AnAbandonedUploadIsRemoved) {
  const auto upload = [this](absl::Duration age) {
    const std::string part = absl::BytesToHexString(HashOf("left")) + ".part";
    EXPECT_THAT(Upload(HashOf("left"), 0, "lef"), IsOkAndHolds(3));
    const timespec at = absl::ToTimespec(executor_.Wall() - age);
    const timespec times[2] = {at, at};
    EXPECT_EQ(utimensat(AT_FDCWD, temp_.File(part).c_str(), times, 0), 0);
  };
  upload(absl::Hours(23));
  COHORT_EXPECT_OK(Begin(HashOf("other"), 5));
  EXPECT_THAT(Begin(HashOf("left"), 9), IsOkAndHolds(3));
  store_->Remove(HashOf("left"));
  upload(absl::Hours(25));
  COHORT_EXPECT_OK(Begin(HashOf("other"), 5));
  EXPECT_THAT(Begin(HashOf("left"), 9), IsOkAndHolds(0));
  // Where its room is wanted, sooner.
  upload(absl::Minutes(11));
  Open({.bytes_kept_free = int64_t{1} << 60});
  EXPECT_FALSE(Begin(HashOf("other"), 5).ok());
  Open({});
  EXPECT_THAT(Begin(HashOf("left"), 9), IsOkAndHolds(0));
}

TEST_F(DiskPackageStoreTest, RemovesWhatNobodyKnows) {
  for (const char* bytes : {"keep", "drop"}) {
    ASSERT_THAT(Upload(HashOf(bytes), 0, bytes), IsOkAndHolds(4));
    ASSERT_THAT(Finish(HashOf(bytes), 4), IsOk());
  }
  ASSERT_THAT(Upload(HashOf("uploading"), 0, "upl"), IsOkAndHolds(3));
  store_->KeepOnly({HashOf("keep")});
  executor_.RunUntilIdle();
  EXPECT_THAT(Fetch(HashOf("keep"), 0), IsOk());
  EXPECT_THAT(Fetch(HashOf("drop"), 0).status(),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Begin(HashOf("uploading"), 9), IsOkAndHolds(3));
  store_->Remove(HashOf("keep"));
  EXPECT_THAT(Fetch(HashOf("keep"), 0).status(),
              StatusIs(absl::StatusCode::kNotFound));
}

// PK-2: what is done to a file while the head runs is seen too.
TEST_F(DiskPackageStoreTest, AFileThatSomebodyWroteToIsReadAgain) {
  const std::string bytes = "the bytes of a package";
  const std::string hash = HashOf(bytes);
  const std::string path = temp_.path() + "/" + absl::BytesToHexString(hash);
  COHORT_ASSERT_OK(Upload(hash, 0, bytes));
  COHORT_ASSERT_OK(Finish(hash, static_cast<int64_t>(bytes.size())));
  COHORT_ASSERT_OK(Fetch(hash, 0));
  std::string flipped = bytes;
  flipped[5] ^= 1;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << flipped;
  std::filesystem::last_write_time(
      path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  EXPECT_THAT(Fetch(hash, 0), StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(DiskPackageStoreTest, LooksWhetherAFileIsThereWithoutReadingIt) {
  const std::string bytes = "the bytes of a package";
  const std::string hash = HashOf(bytes);
  const std::string path = temp_.path() + "/" + absl::BytesToHexString(hash);
  const auto size = static_cast<int64_t>(bytes.size());
  EXPECT_THAT(Look(hash, size), StatusIs(absl::StatusCode::kNotFound));
  COHORT_ASSERT_OK(Upload(hash, 0, bytes));
  EXPECT_THAT(Look(hash, size), StatusIs(absl::StatusCode::kNotFound))
      << "it is not complete";
  COHORT_ASSERT_OK(Finish(hash, size));
  COHORT_EXPECT_OK(Look(hash, size));
  std::filesystem::resize_file(path, 3);
  EXPECT_THAT(Look(hash, size),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
  std::filesystem::remove(path);
  EXPECT_THAT(Look(hash, size),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path)));
}

// PK-2, as a head finds it after its start.
TEST_F(DiskPackageStoreTest, ADamagedFileIsRemovedWhenItIsReadFirst) {
  const std::string bytes = "the bytes of a package";
  const std::string hash = HashOf(bytes);
  const std::string path = temp_.path() + "/" + absl::BytesToHexString(hash);
  const int64_t size = static_cast<int64_t>(bytes.size());
  const auto store = [&] {
    COHORT_ASSERT_OK(Upload(hash, 0, bytes));
    COHORT_ASSERT_OK(Finish(hash, size));
  };
  store();
  std::string flipped = bytes;
  flipped[5] ^= 1;
  for (const std::string& bad :
       {flipped, std::string(), bytes.substr(0, 7), bytes + "x"}) {
    Open({});
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    EXPECT_THAT(Fetch(hash, 0),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_THAT(Fetch(hash, 0), StatusIs(absl::StatusCode::kNotFound));
    EXPECT_THAT(Begin(hash, size), IsOkAndHolds(0));
    store();
    COHORT_EXPECT_OK(Fetch(hash, 0));
  }
  // Of the right size, and unknown to any record.
  Open({});
  std::ofstream(path, std::ios::binary | std::ios::trunc) << flipped;
  EXPECT_THAT(Begin(hash, size), IsOkAndHolds(0));
}

}  // namespace
}  // namespace cohort::head
