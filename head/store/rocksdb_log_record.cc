#include "head/store/rocksdb_log_record.h"

#include "common/hash.h"

namespace cohort::head {
namespace {

constexpr size_t kTypeAt = 6;

uint32_t ByteAt(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

}  // namespace

uint32_t MaskLogCrc(uint32_t crc) {
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

uint32_t LogCrcOf(absl::string_view header) {
  return ByteAt(header, 0) | ByteAt(header, 1) << 8 | ByteAt(header, 2) << 16 |
         ByteAt(header, 3) << 24;
}

size_t LogLengthOf(absl::string_view header) {
  return ByteAt(header, 4) | ByteAt(header, 5) << 8;
}

std::optional<LogRecord> ParseLogRecord(absl::string_view bytes) {
  if (bytes.size() < kLogHeaderBytes) return std::nullopt;
  const auto type = static_cast<LogRecordType>(ByteAt(bytes, kTypeAt));
  if (type == LogRecordType::kNone || type > LogRecordType::kMax) {
    return std::nullopt;
  }
  const size_t length = LogLengthOf(bytes);
  if (bytes.size() - kLogHeaderBytes < length) return std::nullopt;
  const uint32_t crc = Crc32c(bytes.substr(kTypeAt, 1 + length));
  if (MaskLogCrc(crc) != LogCrcOf(bytes)) return std::nullopt;
  return LogRecord{.type = type,
                   .payload = bytes.substr(kLogHeaderBytes, length)};
}

}  // namespace cohort::head
