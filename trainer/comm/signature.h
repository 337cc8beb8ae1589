#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

#include "trainer/comm/comm.h"

namespace cohort::trainer {

// What one rank says it does, for its peers to compare with what they do.  In
// shared memory and on the wire, between processes of one build.
struct Signature {
  uint64_t epoch = 0;
  uint64_t sequence = 0;
  uint64_t shape = 0;  // hash of all counts and types
  uint64_t first_count = 0;
  uint32_t kind = 0;
  uint32_t op = 0;
  int32_t root = 0;
  uint32_t buffers = 0;
  uint32_t first_dtype = 0;
  uint32_t round = 0;       // of this operation
  uint32_t has_failed = 0;  // this rank could not prepare for it
  uint32_t reserved = 0;
};
static_assert(sizeof(Signature) == 64);

Signature Sign(const Comm::Call& call, uint64_t epoch);

// INVALID_ARGUMENT, telling both, when rank `peer` does something else than
// this rank.  When any two ranks of a world differ, every rank differs from one
// at least, so all come to the same verdict.
absl::Status CheckAlike(const Signature& mine, int peer,
                        const Signature& theirs);

// What a buffer occupies when an operation's buffers are packed: the next one
// stays aligned.
size_t PackedBytes(const Buffer& buffer);
size_t PackedBytes(std::span<const Buffer> buffers);

// Copies all buffers to `to`, or back.
void Pack(std::span<const Buffer> buffers, std::byte* to);
void Unpack(const std::byte* from, std::span<const Buffer> buffers);

// Combines packed buffers, one pack a rank, into the buffers of `call`; or,
// with `packed`, there.
void ReducePacked(const Comm::Call& call,
                  std::span<const std::byte* const> packs,
                  std::byte* packed = nullptr);

struct Range {
  size_t begin = 0;
  size_t end = 0;

  bool empty() const { return begin >= end; }
};

// That part of it.
Buffer PartOf(const Buffer& buffer, const Range& range);

// The elements of `buffer` that `rank` combines: whole cache lines, so that no
// two ranks write one line.
Range OwnRange(const Buffer& buffer, int rank, int world);
// Rank's block of it (Comm::ReduceScatter, Comm::AllGather).
Range BlockOf(const Buffer& buffer, int rank, int world);
// What `rank` combines in that call, or brings to it: its own range, or its
// block.
Range CombinedRange(const Comm::Call& call, const Buffer& buffer, int rank,
                    int world);

}  // namespace cohort::trainer
