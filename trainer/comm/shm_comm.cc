#include "trainer/comm/shm_comm.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/round_up.h"
#include "common/status_macros.h"
#include "trainer/comm/reduce.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

using shm::layout::Posted;

constexpr size_t kLineBytes = 64;
// Copied or combined between two looks at whether the epoch is revoked: a few
// milliseconds.
constexpr size_t kUncheckedBytes = size_t{4} << 20;

// Small enough for the control segment, as a whole.
bool FitsInline(std::span<const Buffer> buffers) {
  return buffers.size() <= size_t{shm::kPostedBuffersMax} &&
         PackedBytes(buffers) <= shm::kInlineBytesMax;
}

Signature SignatureOf(const Posted& post) {
  Signature signature;
  std::memcpy(&signature, post.signature, sizeof(signature));
  return signature;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ShmComm>> ShmComm::Create(shm::ArenaPlace& place,
                                                         uint64_t epoch) {
  const shm::Arena& arena = place.arena();
  if (epoch < arena.epoch() || epoch > shm::kEpochMax) {
    return absl::FailedPreconditionError(
        absl::StrCat("epoch ", epoch, " of attempt ", arena.attempt(),
                     ", whose first is ", arena.epoch()));
  }
  if (epoch <= arena.revoked_epoch()) {
    return absl::AbortedError(absl::StrCat("epoch ", epoch, " of attempt ",
                                           arena.attempt(), " is revoked"));
  }
  return std::unique_ptr<ShmComm>(
      new ShmComm(place, {.rank = place.local_rank(),
                          .world = arena.local_world(),
                          .epoch = epoch}));
}

ShmComm::ShmComm(shm::ArenaPlace& place, const Identity& identity)
    : Comm(identity), place_(place), barrier_(place, identity.epoch) {}

absl::StatusOr<std::span<std::byte>> ShmComm::Allocate(size_t bytes) {
  return place_.Allocate(bytes);
}

absl::Status ShmComm::CheckPeers() const {
  COHORT_RETURN_IF_ERROR(barrier_.CheckEpoch());
  return barrier_.CheckPeers();
}

void ShmComm::Revoke() { place_.arena().Revoke(epoch()); }

bool ShmComm::is_revoked() const {
  return place_.arena().revoked_epoch() >= epoch();
}

Posted& ShmComm::posted(int rank) const {
  return place_.arena().posted(rank, rounds_);
}

absl::Status ShmComm::Run(const Call& call) {
  COHORT_RETURN_IF_ERROR(barrier_.CheckEpoch());
  const shm::Instant until = shm::After(call.deadline);
  // Tried before the ranks meet, told to all when they do.
  const absl::Status staged = Reserve(call);
  std::span<const Buffer> left = call.buffers;
  Round round = {.is_inline = FitsInline(call.buffers)};
  do {
    round.buffers =
        left.first(std::min(left.size(), size_t{shm::kPostedBuffersMax}));
    left = left.subspan(round.buffers.size());
    const absl::Status done = RunRound(call, round, staged.ok(), until);
    if (!done.ok()) {
      return absl::IsResourceExhausted(done) && !staged.ok() ? staged : done;
    }
    ++round.index;
  } while (!left.empty());
  return absl::OkStatus();
}

absl::Status ShmComm::RunRound(const Call& call, Round round, bool staged,
                               shm::Instant until) {
  ++rounds_;
  if (staged) COHORT_RETURN_IF_ERROR(StageIn(call, round));
  Post(call, round, staged);
  COHORT_RETURN_IF_ERROR(Meet(call, until));
  COHORT_RETURN_IF_ERROR(ComparePosts(call));
  if (absl::Status executed = Execute(call, round); !executed.ok()) {
    // The others already rely on this rank.
    Revoke();
    return absl::AbortedError(executed.message());
  }
  // Inline bytes are written again only after everyone has come to the next
  // round; other memory is the caller's as soon as it returns.
  if (round.is_inline) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(Meet(call, until));
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const Buffer& buffer = round.buffers[i];
    if (!Reduces(call) || round.reachable[i] == buffer.data) continue;
    const Range range = call.kind == Kind::kReduceScatter
                            ? CombinedRange(call, buffer, rank(), world())
                            : Range{0, buffer.count};
    if (range.empty()) continue;
    const size_t size = SizeOf(buffer.dtype);
    std::memcpy(static_cast<std::byte*>(buffer.data) + range.begin * size,
                round.reachable[i] + range.begin * size,
                (range.end - range.begin) * size);
  }
  return absl::OkStatus();
}

bool ShmComm::Reduces(const Call& call) {
  return call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter;
}

bool ShmComm::NeedsStage(const Call& call, const Buffer& buffer) const {
  // Who receives a broadcast copies it from the root, wherever to.
  if (call.kind == Kind::kBroadcast && call.root != rank()) return false;
  return !place_.Locate(buffer.data, buffer.bytes()).has_value();
}

absl::Status ShmComm::Reserve(const Call& call) {
  if (FitsInline(call.buffers)) return absl::OkStatus();
  size_t needed = 0;
  size_t in_round = 0;
  for (size_t i = 0; i < call.buffers.size(); ++i) {
    if (i % shm::kPostedBuffersMax == 0) in_round = 0;
    if (NeedsStage(call, call.buffers[i])) {
      in_round += RoundUp(call.buffers[i].bytes(), kLineBytes);
    }
    needed = std::max(needed, in_round);
  }
  if (needed <= stage_.size()) return absl::OkStatus();
  // Doubled, so that what smaller stages took is less than what this one takes.
  COHORT_ASSIGN_OR_RETURN(stage_,
                          place_.Allocate(std::max(needed, 2 * stage_.size())));
  return absl::OkStatus();
}

absl::Status ShmComm::Copy(std::byte* to, const void* from,
                           size_t bytes) const {
  for (size_t done = 0; done < bytes; done += kUncheckedBytes) {
    COHORT_RETURN_IF_ERROR(barrier_.CheckEpoch());
    std::memcpy(to + done, static_cast<const std::byte*>(from) + done,
                std::min(kUncheckedBytes, bytes - done));
  }
  return absl::OkStatus();
}

absl::Status ShmComm::StageIn(const Call& call, Round& round) {
  round.reachable.assign(round.buffers.size(), nullptr);
  if (round.is_inline) return absl::OkStatus();
  std::byte* free = stage_.data();
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const Buffer& buffer = round.buffers[i];
    round.reachable[i] = static_cast<std::byte*>(buffer.data);
    if (buffer.count == 0 || !NeedsStage(call, buffer)) continue;
    round.reachable[i] = free;
    // Of a gather only what this rank brings.
    const Range range = call.kind == Kind::kAllGather
                            ? CombinedRange(call, buffer, rank(), world())
                            : Range{0, buffer.count};
    const size_t size = SizeOf(buffer.dtype);
    COHORT_RETURN_IF_ERROR(
        Copy(free + range.begin * size,
             static_cast<const std::byte*>(buffer.data) + range.begin * size,
             (range.end - range.begin) * size));
    free += RoundUp(buffer.bytes(), kLineBytes);
  }
  return absl::OkStatus();
}

void ShmComm::Post(const Call& call, const Round& round, bool staged) {
  Posted& post = posted(rank());
  Signature signature = Sign(call, epoch());
  signature.round = round.index;
  signature.has_failed = staged ? 0 : 1;
  std::memcpy(post.signature, &signature, sizeof(signature));
  if (!staged) return;
  if (round.is_inline) {
    Pack(round.buffers, post.inline_bytes);
    return;
  }
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const auto location =
        place_.Locate(round.reachable[i], round.buffers[i].bytes());
    // What is nowhere nobody reads: an empty buffer, or where a broadcast goes.
    if (!location) continue;
    post.buffer[i].region = location->region;
    post.buffer[i].offset = location->offset;
  }
}

absl::Status ShmComm::Meet(const Call& call, shm::Instant until) {
  barrier_.Arrive();
  const absl::Status met = barrier_.Wait(until);
  return absl::IsDeadlineExceeded(met) ? NotArrived(call, barrier_.Missing())
                                       : met;
}

absl::Status ShmComm::ComparePosts(const Call& call) const {
  const Signature mine = SignatureOf(posted(rank()));
  for (int peer = 0; peer < world(); ++peer) {
    COHORT_RETURN_IF_ERROR(CheckAlike(mine, peer, SignatureOf(posted(peer))));
  }
  for (int peer = 0; peer < world(); ++peer) {
    if (SignatureOf(posted(peer)).has_failed == 0) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", peer, " has no shared memory to stage ",
                     PackedBytes(call.buffers),
                     " bytes; use buffers from Allocate, or more room"));
  }
  return absl::OkStatus();
}

absl::Status ShmComm::Execute(const Call& call, const Round& round) {
  switch (call.kind) {
    case Kind::kAllReduce:
    case Kind::kReduceScatter:
      if (!round.is_inline) return ReduceOwnRange(call, round);
      ReduceInline(call, round);
      return absl::OkStatus();
    case Kind::kAllGather:
      return GatherBlocks(call, round);
    case Kind::kBroadcast:
      if (call.root == rank()) return absl::OkStatus();
      if (!round.is_inline) return CopyFromRoot(call, round);
      Unpack(posted(call.root).inline_bytes, round.buffers);
      return absl::OkStatus();
    case Kind::kBarrier:
    case Kind::kLeave:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status ShmComm::ReduceOwnRange(const Call& call, const Round& round) {
  std::vector<std::byte*> views(world());
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const Buffer& buffer = round.buffers[i];
    const Range range = CombinedRange(call, buffer, rank(), world());
    if (range.empty()) continue;
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) {
        views[peer] = round.reachable[i];
        continue;
      }
      COHORT_ASSIGN_OR_RETURN(views[peer], View(peer, i, buffer.bytes()));
    }
    const size_t step = kUncheckedBytes / SizeOf(buffer.dtype);
    for (size_t begin = range.begin; begin < range.end; begin += step) {
      COHORT_RETURN_IF_ERROR(barrier_.CheckEpoch());
      Reduce({.dtype = buffer.dtype,
              .op = call.op,
              .sources = views,
              .destinations = call.kind == Kind::kReduceScatter
                                  ? std::span(&views[rank()], 1)
                                  : std::span(views),
              .mean_of = call.mean_of},
             begin, std::min(begin + step, range.end));
    }
  }
  return absl::OkStatus();
}

void ShmComm::ReduceInline(Call call, const Round& round) {
  std::vector<const std::byte*> packs(world());
  for (int peer = 0; peer < world(); ++peer) {
    packs[peer] = posted(peer).inline_bytes;
  }
  call.buffers = round.buffers;
  ReducePacked(call, packs);
}

absl::Status ShmComm::GatherBlocks(const Call& call, const Round& round) {
  size_t offset = 0;  // of inline bytes
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const Buffer& buffer = round.buffers[i];
    const size_t size = SizeOf(buffer.dtype);
    for (int peer = 0; peer < world(); ++peer) {
      const Range block = CombinedRange(call, buffer, peer, world());
      if (peer == rank() || block.empty()) continue;
      const std::byte* from = nullptr;
      if (round.is_inline) {
        from = posted(peer).inline_bytes + offset;
      } else {
        COHORT_ASSIGN_OR_RETURN(from, View(peer, i, buffer.bytes()));
      }
      COHORT_RETURN_IF_ERROR(
          Copy(static_cast<std::byte*>(buffer.data) + block.begin * size,
               from + block.begin * size, (block.end - block.begin) * size));
    }
    offset += PackedBytes(buffer);
  }
  return absl::OkStatus();
}

absl::Status ShmComm::CopyFromRoot(const Call& call, const Round& round) {
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const Buffer& buffer = round.buffers[i];
    if (buffer.count == 0) continue;
    COHORT_ASSIGN_OR_RETURN(const std::byte* const from,
                            View(call.root, i, buffer.bytes()));
    COHORT_RETURN_IF_ERROR(
        Copy(static_cast<std::byte*>(buffer.data), from, buffer.bytes()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> ShmComm::View(int rank_of_buffer, size_t index,
                                         size_t bytes) {
  const shm::layout::PostedBuffer& buffer =
      posted(rank_of_buffer).buffer[index];
  return place_.MapPeer(rank_of_buffer, {buffer.region, buffer.offset}, bytes);
}

}  // namespace cohort::trainer
