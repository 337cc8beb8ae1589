#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Messages in one direction through memory that two processes share.
//
// RG-1: what is popped is what was pushed: whole, in order, once.
// RG-2: each end keeps its own position and reads the other's as a stranger's
//       word: whatever is written there it stays within the memory.
// RG-3: a message is popped by a reader that looks, or by one that its writer
//       wakes: of SetLooks(false), Pop and Push, IsLookedAt at least one sees
//       the other.
namespace cohort::shm {

struct RingHead {
  alignas(64) std::atomic<uint64_t> written;  // bytes, ever
  alignas(64) std::atomic<uint64_t> read;
  alignas(64) std::atomic<uint32_t> looks;  // the reader does
};

// Zeroed memory that outlives both ends.  `capacity` is a multiple of 16.
struct RingMemory {
  RingHead* head = nullptr;
  std::byte* data = nullptr;
  size_t capacity = 0;
};

// One thread at a time, but for the const methods.
class RingWriter {
 public:
  explicit RingWriter(RingMemory memory) : memory_(memory) {}

  // False: there is no room.  `stamp` is the writer's own.
  bool Push(uint64_t stamp, absl::string_view bytes);
  // Whether the reader will look once more before it sleeps.
  bool IsLookedAt() const;
  bool HasUnread() const;

 private:
  RingMemory memory_;
  uint64_t written_ = 0;
};

// One thread at a time, but for HasMore and SetLooks.
class RingReader {
 public:
  explicit RingReader(RingMemory memory) : memory_(memory) {}

  // The next message, unless its stamp is over `stamp_max`; false: there is
  // none.  DATA_LOSS: what is there is not a message.
  absl::StatusOr<bool> Pop(uint64_t stamp_max, std::string& bytes);
  // A hint: cheap enough to ask again and again.
  bool HasMore() const;
  void SetLooks(bool looks);

 private:
  RingMemory memory_;
  uint64_t read_ = 0;
};

}  // namespace cohort::shm
