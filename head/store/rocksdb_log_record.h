#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

// The records of a RocksDB log (or of a manifest, which is one), as bytes.
namespace cohort::head {

// Blocks of a log; records never straddle them, so a block starts with one.
inline constexpr size_t kLogBlockBytes = 32 * 1024;
// Masked CRC-32C, little-endian length, type; then the payload.  The checksum
// is over type and payload, not over the length.
inline constexpr size_t kLogHeaderBytes = 7;

enum class LogRecordType : uint8_t {
  kNone = 0,  // space that was never written
  kFull = 1,
  // Parts of what does not fit into what is left of a block.
  kFirst = 2,
  kMiddle = 3,
  kLast = 4,
  // What newer formats add is between.
  kMax = 16,
};

struct LogRecord {
  LogRecordType type = LogRecordType::kNone;
  absl::string_view payload;

  size_t bytes() const { return kLogHeaderBytes + payload.size(); }
};

// The valid record that `bytes` begin with, which it points into.
std::optional<LogRecord> ParseLogRecord(absl::string_view bytes);

// How RocksDB stores checksums of what may itself hold checksums.
uint32_t MaskLogCrc(uint32_t crc);

// The checksum that a header holds.  REQUIRES: there is one.
uint32_t LogCrcOf(absl::string_view header);

// The length of the payload that a header holds.  REQUIRES: there is one.
size_t LogLengthOf(absl::string_view header);

}  // namespace cohort::head
