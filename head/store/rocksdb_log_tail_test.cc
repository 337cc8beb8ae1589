#include "head/store/rocksdb_log_tail.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/hash.h"
#include "head/store/rocksdb_log_record.h"

namespace cohort::head {
namespace {

using Kind = LogTail::Kind;

std::string Record(const std::string& payload) {
  const std::string body = '\1' + payload;
  const uint32_t crc = Crc32c(body);
  const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  std::string record;
  for (int shift = 0; shift < 32; shift += 8) {
    record.push_back(static_cast<char>((masked >> shift) & 0xff));
  }
  record.push_back(static_cast<char>(payload.size() & 0xff));
  record.push_back(static_cast<char>(payload.size() >> 8));
  return record + body;
}

LogTail Inspect(const std::string& block) {
  return InspectLogTail(block, /*zeros_follow=*/false);
}

const std::string kOne = Record("the first batch");
const std::string kTwo = Record(std::string(300, 'x'));

TEST(LogTailTest, WholeRecordsAreWhole) {
  EXPECT_EQ(Inspect("").kind, Kind::kWhole);
  EXPECT_EQ(Inspect(kOne + kTwo).kind, Kind::kWhole);
}

TEST(LogTailTest, ARecordCutAnywhereIsTorn) {
  for (size_t size = 1; size < kTwo.size(); ++size) {
    const LogTail tail = Inspect(kOne + kTwo.substr(0, size));
    ASSERT_EQ(tail.kind, Kind::kTorn) << size;
    EXPECT_EQ(tail.good_bytes, kOne.size());
  }
}

TEST(LogTailTest, SpaceNeverWrittenIsZeroed) {
  const LogTail tail = Inspect(kOne + std::string(500, '\0'));
  EXPECT_EQ(tail.kind, Kind::kZeroed);
  EXPECT_EQ(tail.good_bytes, kOne.size());
  EXPECT_EQ(InspectLogTail(kOne, /*zeros_follow=*/true).kind, Kind::kZeroed);
}

TEST(LogTailTest, ThePaddingOfABlockIsNoDamage) {
  const std::string full = Record(std::string(kLogBlockBytes - 7 - 6, 'x'));
  EXPECT_EQ(Inspect(full + std::string(6, '\0')).kind, Kind::kWhole);
}

// A record of three sectors of which the later ones never reached the disk.
TEST(LogTailTest, SectorsThatNeverReachedTheDiskAreZeroed) {
  const std::string block = kOne + Record(std::string(1400, 'x'));
  for (const size_t kept : {512, 1024}) {
    std::string lost = block.substr(0, kept);
    lost.resize(block.size(), '\0');
    const LogTail tail = Inspect(lost);
    EXPECT_EQ(tail.kind, Kind::kZeroed);
    EXPECT_EQ(tail.good_bytes, kOne.size());
  }
}

TEST(LogTailTest, AFlippedBitOfAPayloadIsLeftToRocksdb) {
  std::string block = kOne + kTwo;
  block.back() ^= 1;
  EXPECT_EQ(Inspect(block).kind, Kind::kTorn);
}

TEST(LogTailTest, AFlippedBitOfALengthIsDamage) {
  for (const std::string& rest : {std::string(), kTwo}) {
    for (int bit = 0; bit < 16; ++bit) {
      std::string record = kOne;
      record[static_cast<size_t>(4 + bit / 8)] ^=
          static_cast<char>(1 << (bit % 8));
      ASSERT_EQ(Inspect(kTwo + record + rest).kind, Kind::kDamaged)
          << "bit " << bit << " before " << rest.size() << " bytes";
    }
  }
}

// Seed 8544608185162903918 of rocksdb_store_test: a log's only record vanished.
TEST(LogTailTest, AFlippedBitOfATypeIsDamage) {
  for (int bit = 0; bit < 8; ++bit) {
    std::string record = kOne;
    record[6] ^= static_cast<char>(1 << bit);
    EXPECT_EQ(Inspect(record).kind, Kind::kDamaged) << "bit " << bit;
  }
}

TEST(LogTailTest, AZeroedHeaderBeforeAValidRecordIsDamage) {
  std::string record = kOne;
  record.replace(0, 7, 7, '\0');
  EXPECT_EQ(Inspect(record + kTwo).kind, Kind::kDamaged);
}

}  // namespace
}  // namespace cohort::head
