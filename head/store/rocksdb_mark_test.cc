#include "head/store/rocksdb_mark.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "head/store/testing/rocksdb_store_fixture.h"

namespace cohort::head {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

class RocksdbMarkTest : public ::testing::Test {
 protected:
  RocksdbMarkTest() {
    EXPECT_TRUE(WriteRocksdbMark(env_, path_, {.term = 7, .sequence = 3}).ok());
    file_ = ReadFile(RocksdbMarkPath(path_));
  }

  RocksdbMark Read() {
    RocksdbMark mark;
    EXPECT_TRUE(ReadRocksdbMark(env_, path_, mark).ok());
    return mark;
  }

  TempDir dir_;
  const std::string path_ = dir_.File("store");
  rocksdb::Env* const env_ = rocksdb::Env::Default();
  std::string file_;
};

TEST_F(RocksdbMarkTest, EitherOfItsLinesIsEnoughAndTheLossOfTheOtherIsTold) {
  CaptureStderr();
  EXPECT_EQ(Read().sequence, 3u);
  EXPECT_EQ(GetCapturedStderr(), "");
  for (const size_t at : {size_t{30}, file_.size() / 2 + 30}) {
    std::string damaged = file_;
    damaged[at] ^= 1;
    WriteFile(RocksdbMarkPath(path_), damaged);
    CaptureStderr();
    EXPECT_EQ(Read().sequence, 3u);
    EXPECT_THAT(GetCapturedStderr(), AllOf(HasSubstr("store_mark_damaged"),
                                           HasSubstr(RocksdbMarkPath(path_)),
                                           HasSubstr("the other one is used")));
  }
}

TEST_F(RocksdbMarkTest, WithoutAnyItIsRefused) {
  std::string damaged = file_;
  damaged[30] ^= 1;
  damaged[file_.size() / 2 + 30] ^= 1;
  WriteFile(RocksdbMarkPath(path_), damaged);
  RocksdbMark mark;
  EXPECT_TRUE(ReadRocksdbMark(env_, path_, mark).IsCorruption());
}

}  // namespace
}  // namespace cohort::head
