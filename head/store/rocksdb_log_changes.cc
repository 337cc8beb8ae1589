#include "head/store/rocksdb_log_changes.h"

#include "absl/strings/str_cat.h"

namespace cohort::head {
namespace {

// Of a batch: the number of its first change and how many they are.
constexpr size_t kNumberBytes = 8;
constexpr size_t kCountBytes = 4;
constexpr size_t kBatchHeaderBytes = kNumberBytes + kCountBytes;

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
  }
  return value;
}

}  // namespace

void LogChanges::BeginLog() {
  first_ = 0;
  in_batch_ = false;
  is_known_ = true;
}

std::optional<std::string> LogChanges::Add(const LogRecord& record) {
  const bool begins = record.type == LogRecordType::kFull ||
                      record.type == LogRecordType::kFirst;
  const bool goes_on = record.type == LogRecordType::kMiddle ||
                       record.type == LogRecordType::kLast;
  is_known_ = is_known_ && (begins || goes_on);
  if (!is_known_) return std::nullopt;
  if (begins) {
    if (in_batch_ && !head_.empty()) return "a batch ends there without an end";
    head_.clear();
  } else if (!in_batch_) {
    return "a batch begins there without its beginning";
  }
  absl::StrAppend(&head_,
                  record.payload.substr(0, kBatchHeaderBytes - head_.size()));
  in_batch_ = record.type == LogRecordType::kFirst ||
              record.type == LogRecordType::kMiddle;
  return in_batch_ ? std::nullopt : AddBatch();
}

std::optional<std::string> LogChanges::AddBatch() {
  if (head_.size() < kBatchHeaderBytes) return "a batch there is none";
  const absl::string_view head = head_;
  const uint64_t number = LittleEndian(head.substr(0, kNumberBytes));
  const uint64_t count = LittleEndian(head.substr(kNumberBytes));
  // RocksDB begins a log with such a one.
  if (count == 0) return std::nullopt;
  if (number < next_) {
    return absl::StrCat("change ", number, " stands there after change ",
                        next_ - 1,
                        ", as in a file that holds bytes twice, or another "
                        "one's");
  }
  if (first_ == 0) {
    first_ = number;
  } else if (number > next_) {
    return absl::StrCat("changes ", next_, " to ", number - 1,
                        " are missing there");
  }
  next_ = number + count;
  return std::nullopt;
}

}  // namespace cohort::head
