#include "shm/seq_cell.h"

#include <algorithm>
#include <cstring>

namespace cohort::shm {
namespace {

constexpr int kReadAttempts = 1000;

// Words, not memcpy: a reader may copy while the writer writes (and then throws
// its copy away), which only atomic accesses allow.  Release stores keep a
// buffer's bytes behind the number that was published before them; acquire
// loads keep the reader's second look at the number behind its bytes.
void StoreBytes(std::atomic<uint64_t>* words,
                std::span<const std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at,
                std::min(sizeof(word), bytes.size() - at));
    words[at / sizeof(word)].store(word, std::memory_order_release);
  }
}

void LoadBytes(const std::atomic<uint64_t>* words, std::string& bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word =
        words[at / sizeof(word)].load(std::memory_order_acquire);
    std::memcpy(bytes.data() + at, &word,
                std::min(sizeof(word), bytes.size() - at));
  }
}

}  // namespace

std::atomic<uint64_t>* SeqCell::Buffer(uint64_t sequence) const {
  std::byte* const first = reinterpret_cast<std::byte*>(head_ + 1);
  return reinterpret_cast<std::atomic<uint64_t>*>(
      first + (sequence % 2) * BufferSize(capacity_));
}

uint64_t SeqCell::Publish(std::span<const std::byte> bytes) {
  const uint64_t next = head_->published.load(std::memory_order_relaxed) + 1;
  head_->size_bytes[next % 2].store(bytes.size(), std::memory_order_release);
  StoreBytes(Buffer(next), bytes);
  head_->published.store(next, std::memory_order_release);
  return next;
}

std::optional<SeqCell::Value> SeqCell::Read() const {
  for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
    Value value;
    value.sequence = head_->published.load(std::memory_order_acquire);
    if (value.sequence == 0) return std::nullopt;
    const uint64_t size_bytes =
        head_->size_bytes[value.sequence % 2].load(std::memory_order_acquire);
    // Between two publications the size may be the next one's; a writer of
    // another build could also leave nonsense.
    if (size_bytes > capacity_) continue;
    value.bytes.resize(size_bytes);
    LoadBytes(Buffer(value.sequence), value.bytes);
    // The buffer is written again only after the publication that follows.
    if (sequence() == value.sequence) return value;
  }
  return std::nullopt;
}

uint64_t SeqCell::sequence() const {
  return head_->published.load(std::memory_order_acquire);
}

}  // namespace cohort::shm
