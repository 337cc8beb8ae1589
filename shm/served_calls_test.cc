#include "shm/served_calls.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::shm {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class ServedCallsTest : public ::testing::Test {
 protected:
  ServedCallsTest() {
    auto made = ServedCalls::Create(path_, /*incarnation=*/7);
    COHORT_EXPECT_OK(made);
    if (made.ok()) calls_ = *std::move(made);
  }

  const TempDir dir_;
  const std::string path_ =
      absl::StrCat(dir_.path(), "/", ServedCalls::FileName(3));
  std::unique_ptr<ServedCalls> calls_;
};

TEST_F(ServedCallsTest, ShowsWhatRanAndWhatRuns) {
  const uint32_t add = calls_->AddMethod("Counter::Add");
  EXPECT_EQ(calls_->AddMethod("Counter::Add"), add);
  const uint32_t get = calls_->AddMethod("Counter::Get");
  const uint64_t first = calls_->Begin({.method = add,
                                        .caller = 0xabcd,
                                        .track = 1,
                                        .queued_us = 10,
                                        .begun_us = 11});
  calls_->Begin({.method = get, .queued_us = 12, .begun_us = 13});
  calls_->End(first, 15);
  const auto read = ReadServedCalls(path_);
  COHORT_ASSERT_OK(read);
  EXPECT_EQ(read->incarnation, 7u);
  EXPECT_THAT(read->methods,
              ElementsAre("(other methods)", "Counter::Add", "Counter::Get"));
  ASSERT_THAT(read->calls, SizeIs(2));
  EXPECT_EQ(read->calls[0].method, add);
  EXPECT_EQ(read->calls[0].caller, 0xabcdu);
  EXPECT_EQ(read->calls[0].track, 1u);
  EXPECT_EQ(read->calls[0].queued_us, 10);
  EXPECT_EQ(read->calls[0].begun_us, 11);
  EXPECT_EQ(read->calls[0].ended_us, 15);
  EXPECT_EQ(read->calls[1].ended_us, 0);
}

TEST_F(ServedCallsTest, KeepsTheLast) {
  const uint64_t long_one = calls_->Begin({.begun_us = -1});
  for (size_t i = 0; i < ServedCalls::kCallsMax + 5; ++i) {
    const auto at = static_cast<int64_t>(i);
    calls_->End(calls_->Begin({.begun_us = at}), at + 1);
  }
  calls_->End(long_one, 77);
  const auto read = ReadServedCalls(path_);
  COHORT_ASSERT_OK(read);
  ASSERT_THAT(read->calls, SizeIs(ServedCalls::kCallsMax));
  EXPECT_EQ(read->calls[0].begun_us, 5);
  for (const ServedCall& call : read->calls) {
    EXPECT_EQ(call.ended_us, call.begun_us + 1);
  }
}

TEST_F(ServedCallsTest, BoundsNames) {
  for (size_t i = 1; i < ServedCalls::kMethodsMax; ++i) {
    EXPECT_EQ(calls_->AddMethod(absl::StrCat(i, std::string(200, 'x'))), i);
  }
  EXPECT_EQ(calls_->AddMethod("one more"), 0u);
  const auto read = ReadServedCalls(path_);
  COHORT_ASSERT_OK(read);
  EXPECT_THAT(read->methods, SizeIs(ServedCalls::kMethodsMax));
  EXPECT_THAT(read->methods.back(), SizeIs(ServedCalls::kMethodBytesMax));
}

TEST_F(ServedCallsTest, TakesThePlaceOfTheFileBefore) {
  calls_->Begin({});
  const auto next = ServedCalls::Create(path_, 8);
  COHORT_ASSERT_OK(next);
  calls_->Begin({});
  const auto read = ReadServedCalls(path_);
  COHORT_ASSERT_OK(read);
  EXPECT_EQ(read->incarnation, 8u);
  EXPECT_THAT(read->calls, SizeIs(0));
}

TEST_F(ServedCallsTest, RefusesWhatIsNoSuchFile) {
  EXPECT_THAT(ReadServedCalls(path_ + "-none"),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(truncate(path_.c_str(), 500), 0);
  EXPECT_THAT(ReadServedCalls(path_), StatusIs(absl::StatusCode::kDataLoss));
  const std::string pipe = absl::StrCat(dir_.path(), "/pipe");
  EXPECT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ReadServedCalls(pipe), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_F(ServedCallsTest, NonsenseInTheFileIsNotShown) {
  calls_->Begin({});
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(64);
  file << std::string(ServedCalls::kMethodsMax * 100 + 400'000, '\xff');
  file.close();
  const auto read = ReadServedCalls(path_);
  COHORT_ASSERT_OK(read);
  EXPECT_THAT(read->methods, SizeIs(ServedCalls::kMethodsMax));
  EXPECT_THAT(read->calls, SizeIs(0));
}

// SV-1
TEST_F(ServedCallsTest, RecordsAreWholeWhileOthersAreWritten) {
  std::atomic<bool> ends = false;
  std::thread writer([&] {
    for (int64_t i = 1; !ends; ++i) {
      const uint64_t call = calls_->Begin(
          {.caller = static_cast<uint32_t>(i), .queued_us = i, .begun_us = i});
      calls_->End(call, i);
    }
  });
  for (int i = 0; i < 50; ++i) {
    const auto read = ReadServedCalls(path_);
    COHORT_EXPECT_OK(read);
    if (!read.ok()) break;
    for (const ServedCall& call : read->calls) {
      EXPECT_EQ(call.queued_us, call.begun_us);
      EXPECT_EQ(call.caller, static_cast<uint32_t>(call.begun_us));
      EXPECT_TRUE(call.ended_us == 0 || call.ended_us == call.begun_us);
    }
  }
  ends = true;
  writer.join();
}

}  // namespace
}  // namespace cohort::shm
