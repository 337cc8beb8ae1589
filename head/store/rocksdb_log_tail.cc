#include "head/store/rocksdb_log_tail.h"

#include <algorithm>
#include <cstdint>

#include "common/hash.h"
#include "head/store/rocksdb_log_record.h"

namespace cohort::head {
namespace {

// Disks lose sectors.
constexpr size_t kSectorBytes = 512;
constexpr size_t kTypeAt = 6;

bool HoldsValidRecord(absl::string_view bytes) {
  for (; bytes.size() > kLogHeaderBytes; bytes.remove_prefix(1)) {
    if (ParseLogRecord(bytes).has_value()) return true;
  }
  return false;
}

// Whether the record is all there and only its length is wrong.
bool IsWholeWithAnotherLength(absl::string_view bytes) {
  if (bytes.size() < kLogHeaderBytes || bytes[kTypeAt] == 0) return false;
  uint32_t crc = 0;
  for (size_t end = kTypeAt; end < bytes.size(); ++end) {
    crc = Crc32c(bytes.substr(end, 1), crc);
    if (MaskLogCrc(crc) == LogCrcOf(bytes)) return true;
  }
  return false;
}

// Whether the record is all there and only its type is wrong.  RocksDB takes
// some types for the rest of an older log, and drops them without a word.
bool IsWholeWithAnotherType(absl::string_view bytes) {
  if (bytes.size() < kLogHeaderBytes) return false;
  const size_t length = LogLengthOf(bytes);
  if (bytes.size() - kLogHeaderBytes < length) return false;
  const absl::string_view payload = bytes.substr(kLogHeaderBytes, length);
  for (int type = 1; type <= static_cast<int>(LogRecordType::kMax); ++type) {
    const char byte = static_cast<char>(type);
    const uint32_t crc = Crc32c(payload, Crc32c(absl::string_view(&byte, 1)));
    if (MaskLogCrc(crc) == LogCrcOf(bytes)) return true;
  }
  return false;
}

bool IsZero(absl::string_view bytes) {
  return bytes.find_first_not_of('\0') == absl::string_view::npos;
}

}  // namespace

LogTail InspectLogTail(absl::string_view block, bool zeros_follow) {
  size_t good = 0;
  while (const auto record = ParseLogRecord(block.substr(good))) {
    good += record->bytes();
  }
  const absl::string_view rest = block.substr(good);
  const bool is_padding = rest.size() < kLogHeaderBytes &&
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
