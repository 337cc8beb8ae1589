#include "shm/seq_cell.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "shm/metrics_cell.h"

namespace cohort::shm {
namespace {

class Memory {
 public:
  explicit Memory(size_t bytes) : words_(bytes / sizeof(Line)) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(words_.data()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64] = {};
  };
  std::vector<Line> words_;
};

std::span<const std::byte> Bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(SeqCellTest, HoldsNothingBeforeTheFirstPublication) {
  Memory memory(SeqCell::SizeFor(100));
  EXPECT_EQ(SeqCell(memory.data(), 100).Read(), std::nullopt);
}

TEST(SeqCellTest, ReturnsTheLastValueWithItsNumber) {
  Memory memory(SeqCell::SizeFor(100));
  SeqCell cell(memory.data(), 100);
  EXPECT_EQ(cell.Publish(Bytes("one")), 1u);
  EXPECT_EQ(cell.Publish(Bytes("and two")), 2u);
  const auto value = cell.Read();
  ASSERT_TRUE(value);
  EXPECT_EQ(value->sequence, 2u);
  EXPECT_EQ(value->bytes, "and two");
}

TEST(SeqCellTest, HoldsNothingAsAValueAndAFullOne) {
  Memory memory(SeqCell::SizeFor(100));
  SeqCell cell(memory.data(), 100);
  cell.Publish(Bytes(std::string(100, 'x')));
  EXPECT_EQ(cell.Read()->bytes, std::string(100, 'x'));
  cell.Publish(Bytes(""));
  EXPECT_EQ(cell.Read()->bytes, "");
}

// SQ-2: a rank that is started again goes on counting.
TEST(SeqCellTest, GoesOnCountingUnderAnotherWriter) {
  Memory memory(SeqCell::SizeFor(100));
  SeqCell(memory.data(), 100).Publish(Bytes("first"));
  EXPECT_EQ(SeqCell(memory.data(), 100).Publish(Bytes("second")), 2u);
}

// SQ-1 for a writer that died between its first byte and its number: the bytes
// are written by hand where the next publication would begin.
TEST(SeqCellTest, KeepsTheLastWholeValueWhenTheWriterDiesInTheMiddle) {
  Memory memory(SeqCell::SizeFor(64));
  SeqCell cell(memory.data(), 64);
  cell.Publish(Bytes("whole"));
  for (size_t at = 64; at < 128; ++at) memory.data()[at] = std::byte{0xff};
  reinterpret_cast<uint64_t*>(memory.data())[1] = 64;  // the other's size
  const auto value = cell.Read();
  ASSERT_TRUE(value);
  EXPECT_EQ(value->sequence, 1u);
  EXPECT_EQ(value->bytes, "whole");
}

// SQ-1: each value repeats one letter, its length tells which.
TEST(SeqCellTest, NeverShowsHalfAValueToAReader) {
  constexpr size_t kCapacity = 4096;
  constexpr uint64_t kPublications = 20'000;
  Memory memory(SeqCell::SizeFor(kCapacity));
  std::thread writer([&] {
    SeqCell cell(memory.data(), kCapacity);
    for (uint64_t i = 1; i <= kPublications; ++i) {
      cell.Publish(
          Bytes(std::string(i % kCapacity, static_cast<char>('a' + i % 26))));
    }
  });
  SeqCell cell(memory.data(), kCapacity);
  uint64_t last = 0;
  while (last < kPublications) {
    const auto value = cell.Read();
    if (!value) continue;
    ASSERT_GE(value->sequence, last);
    last = value->sequence;
    ASSERT_EQ(value->bytes, std::string(last % kCapacity,
                                        static_cast<char>('a' + last % 26)));
  }
  writer.join();
}

TEST(MetricsCellTest, CoalescesReportsAndTellsHowMany) {
  Memory memory(MetricsCell::kSizeBytes);
  MetricsCell cell(memory.data());
  EXPECT_EQ(cell.ReadAfter(0), std::nullopt);
  for (const char* loss : {"2.3", "1.1", "0.4"}) {
    COHORT_ASSERT_OK(cell.Publish(loss));
  }
  const auto report = cell.ReadAfter(0);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->sequence, 3u);  // two were coalesced
  EXPECT_EQ(report->payload, "0.4");
  EXPECT_EQ(cell.ReadAfter(3), std::nullopt);
}

TEST(MetricsCellTest, RefusesAReportThatIsTooLarge) {
  Memory memory(MetricsCell::kSizeBytes);
  MetricsCell cell(memory.data());
  COHORT_ASSERT_OK(
      cell.Publish(std::string(MetricsCell::kPayloadBytesMax, 'm')));
  EXPECT_THAT(cell.Publish(std::string(MetricsCell::kPayloadBytesMax + 1, 'm')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       ::testing::HasSubstr("65536")));
  EXPECT_EQ(cell.ReadAfter(0)->sequence, 1u);
}

}  // namespace
}  // namespace cohort::shm
