#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cohort::shm {

// A value of at most `capacity` bytes under a sequence lock, in memory that one
// writer and any number of readers share.
//
// Two buffers take turns, and the number of the last whole publication is
// written after its bytes: a writer that is killed in the middle leaves the
// publication before it whole, so there is no state in which a reader hangs or
// sees half a value.  A view: the memory, zeroed before its first use, must
// outlive it.  One writer at a time; readers are free.  Thread-compatible.
//
// SQ-1: what Read returns is one publication, whole, under its own number.
// SQ-2: numbers are 1, 2, 3 ... over the life of the memory, also when another
//       process goes on writing.
class SeqCell {
 public:
  struct Value {
    uint64_t sequence = 0;
    std::string bytes;
  };

  // Bytes that a cell of this capacity occupies; a multiple of 64.
  static constexpr size_t SizeFor(size_t capacity) {
    return sizeof(Head) + 2 * BufferSize(capacity);
  }

  // `memory` is 64-byte aligned and SizeFor(capacity) long.
  SeqCell(std::byte* memory, size_t capacity)
      : head_(reinterpret_cast<Head*>(memory)), capacity_(capacity) {}

  size_t capacity() const { return capacity_; }

  // Writer.  Replaces the value and returns its number.  REQUIRES: bytes.size()
  // <= capacity().
  uint64_t Publish(std::span<const std::byte> bytes);

  // Reader.  The last value; nullopt before the first one, and when the writer
  // published faster than 1,000 attempts to copy (then try later).
  std::optional<Value> Read() const;

  // Reader.  The number of the last publication, 0 before the first.
  uint64_t sequence() const;

 private:
  struct alignas(64) Head {
    std::atomic<uint64_t> published;
    std::atomic<uint64_t> size_bytes[2];
  };
  static_assert(sizeof(Head) == 64);

  static constexpr size_t BufferSize(size_t capacity) {
    return (capacity + 63) / 64 * 64;
  }
  std::atomic<uint64_t>* Buffer(uint64_t sequence) const;

  Head* head_;
  size_t capacity_;
};

}  // namespace cohort::shm
