#include "trainer/comm/cuda_ipc_comm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

// Handles that one meeting carries.
constexpr size_t kAnnouncedAtOnce = 8;

// What a rank tells of its new regions.
struct Announcement {
  uint64_t count = 0;
  cuda::IpcMemoryHandle handles[kAnnouncedAtOnce] = {};
};

}  // namespace

// What each rank shows the others before the GPU works.
struct CudaIpcComm::Post {
  Signature signature;
  uint64_t regions = 0;  // that this rank has
  Spot spots[kRoundBuffers] = {};
};

struct CudaIpcComm::Program {
  struct Copy {
    SharedGpu::Place to;
    SharedGpu::Place from;
    size_t bytes = 0;
  };
  std::vector<SharedGpu::Work> works = {};
  std::vector<Copy> copies = {};

  absl::Status Run(OwnerThread& owner, GpuContext& context) const {
    for (const SharedGpu::Work& work : works) {
      COHORT_RETURN_IF_ERROR(context.shared().Enqueue(owner, work));
    }
    for (const Copy& copy : copies) {
      COHORT_RETURN_IF_ERROR(
          context.shared().EnqueueCopy(owner, copy.to, copy.from, copy.bytes));
    }
    return context.stream().Await(owner);
  }
};

absl::StatusOr<std::unique_ptr<CudaIpcComm>> CudaIpcComm::Connect(
    std::unique_ptr<GpuContext> context, absl::Duration until) {
  absl::Status connected = context->Do(
      [&context = *context](OwnerThread& owner) {
        return context.shared().Open(owner);
      },
      until, "loading the kernels");
  // All or none.
  if (connected.ok())
    connected = context->control().Barrier(until - MonotonicNow());
  if (connected.ok()) {
    std::string description =
        absl::StrCat("CUDA IPC among ", context->identity().world,
                     " rank(s) on ", context->stream().device().uuid());
    return std::unique_ptr<CudaIpcComm>(
        new CudaIpcComm(std::move(context), std::move(description)));
  }
  context->End(connected.message());
  // Those who are still connecting shall not wait for this rank.
  context->control().Revoke();
  return connected;
}

CudaIpcComm::CudaIpcComm(std::unique_ptr<GpuContext> context,
                         std::string description)
    : GpuComm(std::move(context), std::move(description)),
      announced_(world()) {}

CudaIpcComm::~CudaIpcComm() {
  if (!context().ended().ok()) return;
  const absl::Duration until =
      MonotonicNow() + context().options().deadlines.finish;
  absl::Status done = context().Do(
      [&context = context()](OwnerThread& owner) {
        context.shared().Forget(owner);
        return absl::OkStatus();
      },
      until, "taking leave");
  // CI-4.
  if (done.ok()) done = context().control().Barrier(until - MonotonicNow());
  if (done.ok()) {
    done = context().Do(
        [&context = context()](OwnerThread&) {
          context.shared().Release();
          return absl::OkStatus();
        },
        until, "taking leave");
  }
  if (!done.ok()) context().End(done.message());
}

BucketBytes CudaIpcComm::bucket_bytes() const {
  BucketBytes bytes = GpuComm::bucket_bytes();
  bytes.first = bytes.next;
  return bytes;
}

absl::StatusOr<std::span<std::byte>> CudaIpcComm::Allocate(size_t bytes) {
  auto region = std::make_shared<SharedGpu::Region>();
  const absl::Status done = context().Do(
      [&context = context(), region, bytes](OwnerThread& owner) {
        COHORT_ASSIGN_OR_RETURN(*region,
                                context.shared().Allocate(owner, bytes));
        return context.stream().Zero(owner, region->memory);
      },
      MonotonicNow() + context().options().deadlines.memory,
      absl::StrCat("allocating ", bytes, " bytes"));
  if (absl::IsResourceExhausted(done)) return done;
  if (!done.ok()) return context().EndFor(done);
  regions_.push_back(*region);
  return region->memory;
}

// ---- a call

absl::Status CudaIpcComm::RunUntil(const Call& call, absl::Duration until) {
  std::span<const Buffer> left = call.buffers;
  Round round;
  do {
    round.buffers = left.first(std::min(left.size(), kRoundBuffers));
    left = left.subspan(round.buffers.size());
    COHORT_RETURN_IF_ERROR(RunRound(call, round, until));
    ++round.index;
  } while (!left.empty());
  return absl::OkStatus();
}

absl::Status CudaIpcComm::RunRound(const Call& call, Round round,
                                   absl::Duration until) {
  const absl::Status prepared = Prepare(round, until);
  // That there is no room to stage is told to all when they meet.
  if (!prepared.ok() && !absl::IsResourceExhausted(prepared)) return prepared;
  const Post mine = MakePost(call, round, prepared.ok());
  COHORT_ASSIGN_OR_RETURN(const std::vector<Post> posts,
                          Gather(call, mine, until));
  if (const absl::Status alike = Compare(call, mine, posts); !alike.ok()) {
    return absl::IsResourceExhausted(alike) && !prepared.ok() ? prepared
                                                              : alike;
  }
  if (round.buffers.empty()) return absl::OkStatus();  // Barrier.
  COHORT_RETURN_IF_ERROR(Announce(call, posts, until));
  if (LeaderOf(call) == rank()) {
    COHORT_RETURN_IF_ERROR(Lead(call, round, posts, until));
  }
  // CI-3: until the leader is here, buffers are its.
  COHORT_RETURN_IF_ERROR(Gather(call, uint64_t{0}, until).status());
  return CopyOut(round, until);
}

CudaIpcComm::Post CudaIpcComm::MakePost(const Call& call, const Round& round,
                                        bool is_ready) const {
  Post post;
  post.signature = Sign(call, epoch());
  post.signature.round = round.index;
  post.signature.has_failed = is_ready ? 0 : 1;
  post.regions = regions_.size();
  std::copy(round.spots.begin(), round.spots.end(), post.spots);
  return post;
}

absl::Status CudaIpcComm::Compare(const Call& call, const Post& mine,
                                  std::span<const Post> posts) const {
  for (int peer = 0; peer < world(); ++peer) {
    COHORT_RETURN_IF_ERROR(
        CheckAlike(mine.signature, peer, posts[peer].signature));
  }
  for (int peer = 0; peer < world(); ++peer) {
    if (posts[peer].signature.has_failed == 0) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        "rank ", peer, " has no memory to stage ", PackedBytes(call.buffers),
        " bytes; use buffers from Allocate"));
  }
  return absl::OkStatus();
}

absl::Status CudaIpcComm::Announce(const Call& call,
                                   std::span<const Post> posts,
                                   absl::Duration until) {
  const auto is_news = [&] {
    for (int peer = 0; peer < world(); ++peer) {
      if (announced_[peer].size() < posts[peer].regions) return true;
    }
    return false;
  };
  while (is_news()) {
    Announcement mine;
    for (size_t i = announced_[rank()].size();
         i < posts[rank()].regions && mine.count < kAnnouncedAtOnce; ++i) {
      mine.handles[mine.count++] = regions_[i].handle;
    }
    COHORT_ASSIGN_OR_RETURN(const std::vector<Announcement> all,
                            Gather(call, mine, until));
    for (int peer = 0; peer < world(); ++peer) {
      const size_t count =
          std::min(static_cast<size_t>(all[peer].count), kAnnouncedAtOnce);
      announced_[peer].insert(announced_[peer].end(), all[peer].handles,
                              all[peer].handles + count);
      if (count == 0 && announced_[peer].size() < posts[peer].regions) {
        return absl::AbortedError(
            absl::StrCat("rank ", peer, " does not tell of its memory"));
      }
    }
  }
  return absl::OkStatus();
}

// ---- what the GPU is to do

int CudaIpcComm::LeaderOf(const Call& call) const {
  return static_cast<int>(call.sequence % static_cast<uint64_t>(world()));
}

absl::StatusOr<SharedGpu::Place> CudaIpcComm::PlaceOf(int rank,
                                                      const Spot& spot) const {
  if (rank == this->rank()) {
    return SharedGpu::Place{.address = regions_[spot.region].memory.data() +
                                       spot.offset};
  }
  const std::vector<cuda::IpcMemoryHandle>& theirs = announced_[rank];
  if (spot.region >= theirs.size()) {
    return absl::AbortedError(
        absl::StrCat("rank ", rank, " names memory that it did not tell of"));
  }
  return SharedGpu::Place{.handle = theirs[spot.region], .offset = spot.offset};
}

absl::StatusOr<CudaIpcComm::Program> CudaIpcComm::Plan(
    const Call& call, const Round& round, std::span<const Post> posts) const {
  Program program;
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const Buffer& buffer = round.buffers[i];
    if (buffer.count == 0) continue;
    std::vector<SharedGpu::Place> places;
    for (int peer = 0; peer < world(); ++peer) {
      COHORT_ASSIGN_OR_RETURN(places.emplace_back(),
                              PlaceOf(peer, posts[peer].spots[i]));
    }
    if (call.kind == Kind::kBroadcast) {
      PlanBroadcast(call, buffer, places, program);
    } else if (call.kind == Kind::kAllGather) {
      PlanGather(buffer, places, program);
    } else {
      // Of a ReduceScatter too: what is outside of a rank's block is undefined.
      PlanReduction(call, buffer, places, program);
    }
  }
  return program;
}

void CudaIpcComm::PlanReduction(const Call& call, const Buffer& buffer,
                                const std::vector<SharedGpu::Place>& places,
                                Program& program) const {
  const bool is_average = call.op == ReduceOp::kAverage;
  program.works.push_back(
      {.dtype = buffer.dtype,
       .op = is_average ? ReduceOp::kSum : call.op,
       .count = buffer.count,
       .divisor = is_average ? static_cast<uint32_t>(world()) : 1,
       .sources = places,
       .destinations = places});
}

void CudaIpcComm::PlanBroadcast(const Call& call, const Buffer& buffer,
                                const std::vector<SharedGpu::Place>& places,
                                Program& program) {
  // Copies, not kernels: a broadcast keeps every bit, of a NaN too.
  const size_t root = static_cast<size_t>(call.root);
  for (size_t i = 0; i < places.size(); ++i) {
    if (i == root) continue;
    program.copies.push_back({places[i], places[root], buffer.bytes()});
  }
}

void CudaIpcComm::PlanGather(const Buffer& buffer,
                             const std::vector<SharedGpu::Place>& places,
                             Program& program) {
  const int ranks = static_cast<int>(places.size());
  for (int from = 0; from < ranks; ++from) {
    const Range block = BlockOf(buffer, from, ranks);
    const size_t size = SizeOf(buffer.dtype);
    const auto at = [&](SharedGpu::Place place) {
      if (place.address != nullptr) {
        place.address += block.begin * size;
      } else {
        place.offset += block.begin * size;
      }
      return place;
    };
    if (block.empty()) continue;
    for (int to = 0; to < ranks; ++to) {
      if (to == from) continue;
      program.copies.push_back(
          {at(places[to]), at(places[from]), (block.end - block.begin) * size});
    }
  }
}

absl::Status CudaIpcComm::Lead(const Call& call, const Round& round,
                               std::span<const Post> posts,
                               absl::Duration until) {
  COHORT_ASSIGN_OR_RETURN(Program program, Plan(call, round, posts));
  return context().Do(
      [&context = context(), program = std::move(program)](OwnerThread& owner) {
        return program.Run(owner, context);
      },
      until,
      absl::StrCat("the collective that all ranks came to within ",
                   absl::FormatDuration(call.deadline)));
}

// ---- where buffers are

absl::Status CudaIpcComm::Prepare(Round& round, absl::Duration until) {
  round.spots.assign(round.buffers.size(), Spot{});
  round.staged.clear();
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const Buffer& buffer = round.buffers[i];
    if (buffer.count == 0) continue;
    const auto* const begin = static_cast<const std::byte*>(buffer.data);
    const auto region = std::find_if(
        regions_.begin(), regions_.end(), [&](const SharedGpu::Region& mine) {
          return begin >= mine.memory.data() &&
                 begin + buffer.bytes() <=
                     mine.memory.data() + mine.memory.size();
        });
    if (region != regions_.end()) {
      round.spots[i] = {
          .region = static_cast<uint64_t>(region - regions_.begin()),
          .offset = static_cast<uint64_t>(begin - region->memory.data())};
    } else {
      round.staged.push_back({.index = i, .buffer = buffer});
    }
  }
  if (round.buffers.empty()) return absl::OkStatus();
  if (!round.staged.empty()) COHORT_RETURN_IF_ERROR(PrepareStage(round, until));
  return CopyIn(round, until);
}

absl::Status CudaIpcComm::PrepareStage(Round& round, absl::Duration until) {
  size_t bytes = 0;
  for (const Staged& staged : round.staged) bytes += PackedBytes(staged.buffer);
  struct Answer {
    SharedGpu::Region region;
    std::vector<bool> reaches;
    std::byte* pinned = nullptr;
  };
  auto answer = std::make_shared<Answer>();
  // Doubled, so that what smaller stages took is less than what this one
  // takes: peers keep those open.
  const bool is_larger = bytes > stage_bytes_;
  const size_t wanted = is_larger ? std::max(bytes, 2 * stage_bytes_) : 0;
  COHORT_RETURN_IF_ERROR(context().Do(
      [&context = context(), answer, staged = round.staged, bytes,
       wanted](OwnerThread& owner) {
        owner.SetCall("cuPointerGetAttribute");
        for (const Staged& one : staged) {
          answer->reaches.push_back(
              context.stream().device().Reaches(one.buffer.data));
        }
        COHORT_ASSIGN_OR_RETURN(answer->pinned,
                                context.stream().ReservePinned(owner, bytes));
        if (wanted == 0) return absl::OkStatus();
        COHORT_ASSIGN_OR_RETURN(answer->region,
                                context.shared().Allocate(owner, wanted));
        return absl::OkStatus();
      },
      until, "preparing to stage"));
  if (is_larger) {
    stage_region_ = regions_.size();
    stage_bytes_ = wanted;
    regions_.push_back(answer->region);
  }
  size_t offset = 0;
  for (size_t i = 0; i < round.staged.size(); ++i) {
    Staged& staged = round.staged[i];
    staged.in_region = regions_[stage_region_].memory.data() + offset;
    if (!answer->reaches[i]) staged.pinned = answer->pinned + offset;
    round.spots[staged.index] = {.region = stage_region_, .offset = offset};
    offset += PackedBytes(staged.buffer);
  }
  return absl::OkStatus();
}

absl::Status CudaIpcComm::CopyIn(const Round& round, absl::Duration until) {
  // NC-6: by the caller's own thread.
  for (const Staged& staged : round.staged) {
    if (staged.pinned == nullptr) continue;
    std::memcpy(staged.pinned, staged.buffer.data, staged.buffer.bytes());
  }
  return context().Do(
      [&context = context(), all = round.staged](OwnerThread& owner) {
        for (const Staged& staged : all) {
          const void* const from =
              staged.pinned != nullptr ? staged.pinned : staged.buffer.data;
          const absl::Status copied = context.stream().Copy(
              owner, staged.in_region, from, staged.buffer.bytes());
          if (!copied.ok()) return copied;
        }
        // What the caller enqueued on the default stream, too.
        return context.stream().Await(owner);
      },
      until, "the work that fills the buffers");
}

absl::Status CudaIpcComm::CopyOut(const Round& round, absl::Duration until) {
  if (round.staged.empty()) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(context().Do(
      [&context = context(), all = round.staged](OwnerThread& owner) {
        for (const Staged& staged : all) {
          void* const to =
              staged.pinned != nullptr ? staged.pinned : staged.buffer.data;
          const absl::Status copied = context.stream().Copy(
              owner, to, staged.in_region, staged.buffer.bytes());
          if (!copied.ok()) return copied;
        }
        return context.stream().Await(owner);
      },
      until, "copying the result"));
  for (const Staged& staged : round.staged) {
    if (staged.pinned == nullptr) continue;
    std::memcpy(staged.buffer.data, staged.pinned, staged.buffer.bytes());
  }
  return absl::OkStatus();
}

}  // namespace cohort::trainer
