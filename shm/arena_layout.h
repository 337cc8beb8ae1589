#pragma once

// What lies where in an arena's control segment.  Shared between builds that
// run the same attempt: change it and kControlLayoutVersion together; a
// golden-bytes test watches it.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "common/gang_limits.h"
#include "shm/metrics_cell.h"
#include "shm/segment.h"
#include "shm/seq_cell.h"

namespace cohort::shm {

// Ranks of one attempt on one node: the head places no more.
inline constexpr int kLocalRanksMax = kRanksPerNodeMax;
// Data segments a rank may take: small allocations share one, and a trainer
// asks for a few large ones.
inline constexpr uint32_t kRegionsMax = 64;
// Buffers that one round of a collective can describe.
inline constexpr int kPostedBuffersMax = 16;
// Operations up to this size travel inside the control segment.
inline constexpr size_t kInlineBytesMax = 4096;

namespace layout {

inline constexpr SegmentType kControlType = {SegmentKind::kArenaControl, 1};
inline constexpr SegmentType kDataType = {SegmentKind::kArenaData, 1};

struct Control {
  SegmentHeader header;
  char attempt[64];  // zero-terminated
  uint64_t epoch;
  uint32_t local_world;
  uint32_t slot_bytes;
  uint8_t reserved0[48];
  alignas(64) std::atomic<uint64_t> revoked_epoch;
  uint8_t reserved1[3896];
};
static_assert(sizeof(Control) == 4096);
static_assert(offsetof(Control, attempt) == 64);
static_assert(offsetof(Control, epoch) == 128);
static_assert(offsetof(Control, revoked_epoch) == 192);

// Where a posted buffer lies among the poster's regions.
struct PostedBuffer {
  uint64_t offset;
  uint32_t region;
  uint32_t reserved;
};
static_assert(sizeof(PostedBuffer) == 16);

// What a rank brings to one round of an operation.
struct Posted {
  std::byte signature[64];  // what it does; the communicator's own format
  std::array<PostedBuffer, kPostedBuffersMax> buffer;
  std::byte inline_bytes[kInlineBytesMax];
};
static_assert(offsetof(Posted, buffer) == 64);
static_assert(offsetof(Posted, inline_bytes) == 320);
static_assert(sizeof(Posted) == 4416);

// A rank's part of the control segment.
struct Slot {
  // Line 0: who holds the place.
  std::atomic<int32_t> pid;
  uint8_t reserved0[60];
  // Line 1: how often it arrived at a barrier: epoch << 40 | count.
  alignas(64) std::atomic<uint64_t> arrived;
  // Line 2: what it sleeps on, and whether it does.
  alignas(64) std::atomic<uint32_t> doorbell;
  std::atomic<uint32_t> sleeping;
  // Its data segments; those below `regions` exist.
  alignas(64) std::atomic<uint32_t> regions;
  uint8_t reserved1[60];
  // By the parity of the round.
  alignas(64) std::array<Posted, 2> posted;
  alignas(64) std::byte metrics[MetricsCell::kSizeBytes];
};
static_assert(offsetof(Slot, arrived) == 64);
static_assert(offsetof(Slot, doorbell) == 128);
static_assert(offsetof(Slot, regions) == 192);
static_assert(offsetof(Slot, posted) == 256);

// Slots start on a page each.
inline constexpr size_t kSlotBytes = (sizeof(Slot) + 4095) / 4096 * 4096;

}  // namespace layout
}  // namespace cohort::shm
