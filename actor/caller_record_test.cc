#include "actor/caller_record.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "actor/call_limits.h"

namespace cohort::actor {
namespace {

using ::testing::SizeIs;

v1::ActorResults::Result ResultWith(uint64_t sequence, std::string value) {
  v1::ActorResults::Result result;
  result.set_sequence(sequence);
  result.set_value(std::move(value));
  return result;
}

class CallerRecordTest : public ::testing::Test {
 protected:
  void Send(uint64_t sequence, const std::string& value = "value") {
    auto results = std::make_shared<v1::ActorResults>();
    *results->add_results() = ResultWith(sequence, value);
    const size_t bytes = BytesOf(results->results(0));
    record_.NoteSent(std::move(results), bytes);
  }

  CallerRecord record_{/*unknown=*/0};
  std::vector<CallerRecord::Results> gone_;
};

TEST_F(CallerRecordTest, KnowsOfEachLaneWhichCallsHaveBegun) {
  record_.NoteBegun(0, 4);
  record_.NoteBegun(1, 2);
  EXPECT_TRUE(record_.HasBegun(0, 3));
  EXPECT_TRUE(record_.HasBegun(0, 4));
  EXPECT_FALSE(record_.HasBegun(0, 5));
  EXPECT_FALSE(record_.HasBegun(1, 3));
}

TEST_F(CallerRecordTest, TakesOlderCallsForBegun) {
  const CallerRecord record(/*unknown=*/7);
  EXPECT_TRUE(record.HasBegun(0, 7));
  EXPECT_FALSE(record.HasBegun(0, 8));
}

TEST_F(CallerRecordTest, KeepsResultsThatWereNotTaken) {
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Send(sequence);
  EXPECT_TRUE(record_.NoteTaken(1, gone_));
  EXPECT_TRUE(record_.NoteTaken(1, gone_));
  EXPECT_EQ(record_.NewMessage()->results_size(), 0);
  EXPECT_THAT(gone_, SizeIs(0));
  EXPECT_FALSE(record_.NoteTaken(4, gone_));
  record_.NoteStreamOver();
  EXPECT_FALSE(record_.TakeKept(1).has_value());
  EXPECT_EQ(record_.TakeKept(2)->value(), "value");
  EXPECT_FALSE(record_.TakeKept(2).has_value());
  EXPECT_TRUE(record_.TakeKept(3).has_value());
  EXPECT_EQ(record_.bytes(), 0u);
  // The count of messages begins again with each stream.
  EXPECT_FALSE(record_.NoteTaken(1, gone_));
  Send(4);
  EXPECT_TRUE(record_.NoteTaken(1, gone_));
  EXPECT_EQ(record_.bytes(), 0u);
}

TEST_F(CallerRecordTest, ForgetsWhatIsNotAskedFor) {
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    record_.Keep(ResultWith(sequence, "value"));
  }
  EXPECT_TRUE(record_.TakeKept(2).has_value());
  EXPECT_FALSE(record_.TakeKept(1).has_value());
  EXPECT_GT(record_.bytes(), 0u);
  record_.DropKept();
  EXPECT_EQ(record_.bytes(), 0u);
}

TEST_F(CallerRecordTest, ForgetsTheOldestBeyondTheBound) {
  const std::string large(kResultsKeptBytes / 3, 'x');
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Send(sequence, large);
  EXPECT_LE(record_.bytes(), kResultsKeptBytes);
  record_.NoteStreamOver();
  for (uint64_t sequence = 4; sequence <= 5; ++sequence) {
    record_.Keep(ResultWith(sequence, large));
    EXPECT_LE(record_.bytes(), kResultsKeptBytes);
  }
  EXPECT_FALSE(record_.TakeKept(3).has_value());
  EXPECT_TRUE(record_.TakeKept(4).has_value());
  EXPECT_TRUE(record_.TakeKept(5).has_value());
}

}  // namespace
}  // namespace cohort::actor
