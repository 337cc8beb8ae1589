#include "shm/ring.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cohort::shm {
namespace {

struct RingRecord {
  uint64_t stamp;
  uint64_t size_bytes;
};
// Records begin at multiples of it, so that none is split.
constexpr size_t kAlign = sizeof(RingRecord);
static_assert(kAlign == 16);

size_t SpanOf(uint64_t size_bytes) {
  return sizeof(RingRecord) + (size_bytes + kAlign - 1) / kAlign * kAlign;
}

void CopyIn(const RingMemory& memory, uint64_t at, absl::string_view bytes) {
  const size_t begin = at % memory.capacity;
  const size_t first = std::min(bytes.size(), memory.capacity - begin);
  std::memcpy(memory.data + begin, bytes.data(), first);
  std::memcpy(memory.data, bytes.data() + first, bytes.size() - first);
}

void CopyOut(const RingMemory& memory, uint64_t at, char* to, size_t size) {
  const size_t begin = at % memory.capacity;
  const size_t first = std::min(size, memory.capacity - begin);
  std::memcpy(to, memory.data + begin, first);
  std::memcpy(to + first, memory.data, size - first);
}

}  // namespace

bool RingWriter::Push(uint64_t stamp, absl::string_view bytes) {
  if (bytes.size() > memory_.capacity) return false;
  const uint64_t used =
      written_ - memory_.head->read.load(std::memory_order_acquire);
  const size_t span = SpanOf(bytes.size());
  if (used > memory_.capacity || span > memory_.capacity - used) return false;
  const RingRecord record = {.stamp = stamp, .size_bytes = bytes.size()};
  std::memcpy(memory_.data + written_ % memory_.capacity, &record,
              sizeof(record));
  CopyIn(memory_, written_ + sizeof(record), bytes);
  written_ += span;
  memory_.head->written.store(written_, std::memory_order_release);
  return true;
}

bool RingWriter::IsLookedAt() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return memory_.head->looks.load(std::memory_order_relaxed) != 0;
}

bool RingWriter::HasUnread() const {
  return memory_.head->read.load(std::memory_order_acquire) !=
         memory_.head->written.load(std::memory_order_relaxed);
}

absl::StatusOr<bool> RingReader::Pop(uint64_t stamp_max, std::string& bytes) {
  const uint64_t there =
      memory_.head->written.load(std::memory_order_acquire) - read_;
  if (there == 0) return false;
  RingRecord record;  // a copy: what is checked is what is used
  std::memcpy(&record, memory_.data + read_ % memory_.capacity, sizeof(record));
  if (there > memory_.capacity || there % kAlign != 0 ||
      record.size_bytes > memory_.capacity ||
      SpanOf(record.size_bytes) > there) {
    return absl::DataLossError(absl::StrCat(
        "what the other process wrote to the ring is not a message: ",
        record.size_bytes, " bytes of ", there));
  }
  if (record.stamp > stamp_max) return false;
  bytes.resize(record.size_bytes);
  CopyOut(memory_, read_ + sizeof(record), bytes.data(), bytes.size());
  read_ += SpanOf(record.size_bytes);
  memory_.head->read.store(read_, std::memory_order_release);
  return true;
}

bool RingReader::HasMore() const {
  return memory_.head->written.load(std::memory_order_acquire) !=
         memory_.head->read.load(std::memory_order_relaxed);
}

void RingReader::SetLooks(bool looks) {
  memory_.head->looks.store(looks ? 1 : 0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace cohort::shm
