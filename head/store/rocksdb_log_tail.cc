#include "head/store/rocksdb_log_tail.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "common/hash.h"

namespace cohort::head {
namespace {

// Masked CRC-32C, little-endian length, type; then the payload.  The checksum
// is over type and payload, not over the length.
constexpr size_t kHeaderBytes = 7;
constexpr size_t kTypeAt = 6;
// Full, first, middle, last and what newer formats added; 0 is no record.
constexpr uint8_t kTypeMax = 16;
// Disks lose sectors.
constexpr size_t kSectorBytes = 512;

uint8_t ByteAt(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

uint32_t MaskedCrc(absl::string_view header) {
  return static_cast<uint32_t>(ByteAt(header, 0)) |
         static_cast<uint32_t>(ByteAt(header, 1)) << 8 |
         static_cast<uint32_t>(ByteAt(header, 2)) << 16 |
         static_cast<uint32_t>(ByteAt(header, 3)) << 24;
}

// As RocksDB stores checksums of what may itself hold checksums.
uint32_t Mask(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

// The length of the valid record that `bytes` begin with, header included.
std::optional<size_t> ValidRecord(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  const uint8_t type = ByteAt(bytes, kTypeAt);
  if (type == 0 || type > kTypeMax) return std::nullopt;
  const size_t length = static_cast<size_t>(ByteAt(bytes, 4)) |
                        static_cast<size_t>(ByteAt(bytes, 5)) << 8;
  if (bytes.size() - kHeaderBytes < length) return std::nullopt;
  const uint32_t crc = Crc32c(bytes.substr(kTypeAt, 1 + length));
  if (Mask(crc) != MaskedCrc(bytes)) return std::nullopt;
  return kHeaderBytes + length;
}

bool HoldsValidRecord(absl::string_view bytes) {
  for (; bytes.size() > kHeaderBytes; bytes.remove_prefix(1)) {
    if (ValidRecord(bytes).has_value()) return true;
  }
  return false;
}

// Whether the record is all there and only its length is wrong.
bool IsWholeWithAnotherLength(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes || ByteAt(bytes, kTypeAt) == 0) return false;
  uint32_t crc = 0;
  for (size_t end = kTypeAt; end < bytes.size(); ++end) {
    crc = Crc32c(bytes.substr(end, 1), crc);
    if (Mask(crc) == MaskedCrc(bytes)) return true;
  }
  return false;
}

// Whether the record is all there and only its type is wrong.  RocksDB takes
// some types for the rest of an older log, and drops them without a word.
bool IsWholeWithAnotherType(absl::string_view bytes) {
  if (bytes.size() < kHeaderBytes) return false;
  const size_t length = static_cast<size_t>(ByteAt(bytes, 4)) |
                        static_cast<size_t>(ByteAt(bytes, 5)) << 8;
  if (bytes.size() - kHeaderBytes < length) return false;
  const absl::string_view payload = bytes.substr(kHeaderBytes, length);
  for (int type = 1; type <= kTypeMax; ++type) {
    const char byte = static_cast<char>(type);
    const uint32_t crc = Crc32c(payload, Crc32c(absl::string_view(&byte, 1)));
    if (Mask(crc) == MaskedCrc(bytes)) return true;
  }
  return false;
}

bool IsZero(absl::string_view bytes) {
  return bytes.find_first_not_of('\0') == absl::string_view::npos;
}

}  // namespace

LogTail InspectLogTail(absl::string_view block, bool zeros_follow) {
  size_t good = 0;
  while (const auto length = ValidRecord(block.substr(good))) good += *length;
  const absl::string_view rest = block.substr(good);
  const bool is_padding = rest.size() < kHeaderBytes &&
                          block.size() == kLogBlockBytes && IsZero(rest);
  if (rest.empty() || is_padding) {
    return {zeros_follow ? LogTail::Kind::kZeroed : LogTail::Kind::kWhole,
            good};
  }
  if (IsZero(rest)) return {LogTail::Kind::kZeroed, good};
  if (HoldsValidRecord(rest.substr(1)) || IsWholeWithAnotherLength(rest) ||
      IsWholeWithAnotherType(rest)) {
    return {LogTail::Kind::kDamaged, good};
  }
  const size_t last_sector = (block.size() - 1) / kSectorBytes * kSectorBytes;
  const bool zeroed = IsZero(block.substr(std::max(good, last_sector)));
  return {zeroed ? LogTail::Kind::kZeroed : LogTail::Kind::kTorn, good};
}

}  // namespace cohort::head
