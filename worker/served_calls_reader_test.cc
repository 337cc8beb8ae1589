#include "worker/served_calls_reader.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "cohort/v1/domain.pb.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"
#include "shm/served_calls.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST(ServedCallsReaderTest, SendsWhatWasNotedDownPieceByPiece) {
  const TempDir dir;
  v1::SendLog order;
  order.set_slot(2);
  order.set_incarnation(5);
  order.set_calls(true);
  const v1::LogPiece none = ServedCallsReader(dir.path(), order).Read(0, 1000);
  EXPECT_FALSE(none.known());
  EXPECT_TRUE(none.end());
  EXPECT_THAT(none.data(), HasSubstr("no calls"));

  const auto served = shm::ServedCalls::Create(
      absl::StrCat(dir.path(), "/", shm::ServedCalls::FileName(2)), 5);
  COHORT_ASSERT_OK(served);
  const uint32_t add = (*served)->AddMethod("Add");
  (*served)->End(
      (*served)->Begin(
          {.method = add, .caller = 9, .queued_us = 10, .begun_us = 12}),
      15);
  (*served)->Begin({.method = add, .track = 1, .queued_us = 20});
  ServedCallsReader reader(dir.path(), order);
  std::string bytes;
  for (bool ends = false; !ends;) {
    const v1::LogPiece piece =
        reader.Read(static_cast<int64_t>(bytes.size()), 7);
    ASSERT_TRUE(piece.known());
    EXPECT_LE(piece.data().size(), 7u);
    bytes += piece.data();
    ends = piece.end();
  }
  v1::ServedCalls calls;
  ASSERT_TRUE(calls.ParseFromString(bytes));
  ASSERT_THAT(calls.calls(), SizeIs(2));
  EXPECT_EQ(calls.methods(static_cast<int>(calls.calls(0).method())), "Add");
  EXPECT_EQ(calls.calls(0).caller(), 9u);
  EXPECT_EQ(calls.calls(0).queued_us(), 10);
  EXPECT_EQ(calls.calls(0).waited_us(), 2);
  EXPECT_EQ(calls.calls(0).ran_us(), 3);
  EXPECT_EQ(calls.calls(1).thread(), 1u);
  EXPECT_EQ(calls.calls(1).ran_us(), -1);

  order.set_incarnation(6);
  EXPECT_FALSE(ServedCallsReader(dir.path(), order).Read(0, 1000).known());
}

}  // namespace
}  // namespace cohort::worker
