#include "trainer/comm/signature.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"
#include "trainer/comm/reduce.h"

namespace cohort::trainer {
namespace {

constexpr size_t kCacheLineBytes = 64;

// FNV-1a over words, rotated so that high bits come into play.
uint64_t ShapeOf(std::span<const Buffer> buffers) {
  uint64_t hash = 14695981039346656037u;
  for (const Buffer& buffer : buffers) {
    for (const uint64_t word :
         {uint64_t{buffer.count}, static_cast<uint64_t>(buffer.dtype)}) {
      hash = std::rotl((hash ^ word) * 1099511628211u, 31);
    }
  }
  return hash;
}

std::string Describe(const Signature& signature) {
  const Comm::Call call = {
      .kind = static_cast<Comm::Kind>(signature.kind),
      .sequence = signature.sequence,
      .op = static_cast<ReduceOp>(signature.op),
      .root = signature.root,
  };
  if (signature.buffers == 0) {
    return absl::StrCat(call.ToString(), " without buffers");
  }
  return absl::StrCat(call.ToString(), " with ", signature.buffers,
                      " buffer(s), the first of ", signature.first_count, " ",
                      ToString(static_cast<DType>(signature.first_dtype)));
}

}  // namespace

Signature Sign(const Comm::Call& call, uint64_t epoch) {
  Signature signature;
  signature.epoch = epoch;
  signature.sequence = call.sequence;
  signature.shape = ShapeOf(call.buffers);
  signature.kind = static_cast<uint32_t>(call.kind);
  signature.op = static_cast<uint32_t>(call.op);
  signature.root = call.root;
  signature.buffers = static_cast<uint32_t>(call.buffers.size());
  if (!call.buffers.empty()) {
    signature.first_count = call.buffers[0].count;
    signature.first_dtype = static_cast<uint32_t>(call.buffers[0].dtype);
  }
  return signature;
}

absl::Status CheckAlike(const Signature& mine, int peer,
                        const Signature& theirs) {
  if (mine.epoch == theirs.epoch && mine.sequence == theirs.sequence &&
      mine.shape == theirs.shape && mine.kind == theirs.kind &&
      mine.op == theirs.op && mine.root == theirs.root &&
      mine.buffers == theirs.buffers && mine.round == theirs.round) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "ranks differ: rank ", peer, " calls ", Describe(theirs), " in epoch ",
      theirs.epoch, ", this rank ", Describe(mine), " in epoch ", mine.epoch));
}

size_t PackedBytes(const Buffer& buffer) {
  return (buffer.bytes() + sizeof(int64_t) - 1) / sizeof(int64_t) *
         sizeof(int64_t);
}

size_t PackedBytes(std::span<const Buffer> buffers) {
  size_t bytes = 0;
  for (const Buffer& buffer : buffers) bytes += PackedBytes(buffer);
  return bytes;
}

void Pack(std::span<const Buffer> buffers, std::byte* to) {
  for (const Buffer& buffer : buffers) {
    if (buffer.count > 0) std::memcpy(to, buffer.data, buffer.bytes());
    to += PackedBytes(buffer);
  }
}

void Unpack(const std::byte* from, std::span<const Buffer> buffers) {
  for (const Buffer& buffer : buffers) {
    if (buffer.count > 0) std::memcpy(buffer.data, from, buffer.bytes());
    from += PackedBytes(buffer);
  }
}

void ReducePacked(const Comm::Call& call,
                  std::span<const std::byte* const> packs, std::byte* packed) {
  std::vector<const std::byte*> sources(packs.begin(), packs.end());
  for (const Buffer& buffer : call.buffers) {
    std::byte* const to =
        packed != nullptr ? packed : static_cast<std::byte*>(buffer.data);
    Reduce({.dtype = buffer.dtype,
            .op = call.op,
            .sources = sources,
            .destinations = std::span(&to, 1),
            .mean_of = call.mean_of},
           0, buffer.count);
    const size_t bytes = PackedBytes(buffer);
    for (const std::byte*& source : sources) source += bytes;
    if (packed != nullptr) packed += bytes;
  }
}

Buffer PartOf(const Buffer& buffer, const Range& range) {
  return {
      static_cast<std::byte*>(buffer.data) + range.begin * SizeOf(buffer.dtype),
      range.end - range.begin, buffer.dtype};
}

Range OwnRange(const Buffer& buffer, int rank, int world) {
  const size_t line = kCacheLineBytes / SizeOf(buffer.dtype);
  const size_t share = (buffer.count + world - 1) / world;
  const size_t step = RoundUp(share, line);
  return {std::min(buffer.count, step * rank),
          std::min(buffer.count, step * (rank + 1))};
}

Range BlockOf(const Buffer& buffer, int rank, int world) {
  const size_t block = buffer.count / world;
  return {block * rank, block * (rank + 1)};
}

Range CombinedRange(const Comm::Call& call, const Buffer& buffer, int rank,
                    int world) {
  if (call.parts > 0) return OwnRange(buffer, rank, call.parts);
  return call.kind == Comm::Kind::kAllReduce ? OwnRange(buffer, rank, world)
                                             : BlockOf(buffer, rank, world);
}

}  // namespace cohort::trainer
