#include "trainer/comm/cuda_ipc_comm.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

// Handles that one meeting carries.
constexpr size_t kAnnouncedAtOnce = 8;

absl::Duration Now() { return MachineClock().Monotonic(); }

// What a rank tells of its new regions.
struct Announcement {
  uint64_t count = 0;
  cuda::IpcMemoryHandle handles[kAnnouncedAtOnce] = {};
};

size_t GpuOf(const GpuPlan& plan, int rank) {
  size_t gpu = 0;
  while (std::find(plan.gpus[gpu].begin(), plan.gpus[gpu].end(), rank) ==
         plan.gpus[gpu].end()) {
    ++gpu;
  }
  return gpu;
}

std::string Describe(const GpuSeat& seat, const GpuPlan& plan,
                     const std::vector<int>& members) {
  std::string text =
      absl::StrCat("CUDA IPC among rank(s) ", absl::StrJoin(members, ", "),
                   " on ", seat.stream().device().uuid());
  if (plan.uses_nccl) {
    absl::StrAppend(&text, ", NCCL ", nccl::VersionText(seat.nccl().version()),
                    " between ", plan.gpus.size(), " GPUs");
  }
  return text;
}

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
  std::vector<SharedGpu::Work> up = {};
  std::vector<Copy> copies_up = {};
  // Between the GPUs; nothing with one.
  NcclCommunicator::Collective across = {};
  std::vector<SharedGpu::Work> down = {};
  std::vector<Copy> copies_down = {};

  absl::Status Run(OwnerThread& owner, GpuSeat& seat) const {
    COHORT_RETURN_IF_ERROR(Enqueue(owner, seat.shared(), up, copies_up));
    // On the same stream, so it begins when the ranks' part is over.
    COHORT_RETURN_IF_ERROR(seat.nccl().Run(owner, across));
    COHORT_RETURN_IF_ERROR(Enqueue(owner, seat.shared(), down, copies_down));
    return seat.stream().Await(owner);
  }

 private:
  static absl::Status Enqueue(OwnerThread& owner, SharedGpu& gpu,
                              const std::vector<SharedGpu::Work>& works,
                              const std::vector<Copy>& copies) {
    for (const SharedGpu::Work& work : works) {
      COHORT_RETURN_IF_ERROR(gpu.Enqueue(owner, work));
    }
    for (const Copy& copy : copies) {
      COHORT_RETURN_IF_ERROR(
          gpu.EnqueueCopy(owner, copy.to, copy.from, copy.bytes));
    }
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<CudaIpcComm>> CudaIpcComm::Connect(
    std::unique_ptr<GpuSeat> seat, GpuPlan plan, const nccl::UniqueId& id,
    absl::Duration until) {
  const size_t gpu = GpuOf(plan, seat->identity().rank);
  const bool is_first = plan.gpus[gpu].front() == seat->identity().rank;
  const bool uses_nccl = plan.uses_nccl && is_first;
  const int members = static_cast<int>(plan.gpus.size());
  absl::Status connected = seat->Do(
      [&seat = *seat, id, gpu, uses_nccl, members](OwnerThread& owner) {
        COHORT_RETURN_IF_ERROR(seat.shared().Open(owner));
        if (!uses_nccl) return absl::OkStatus();
        return seat.nccl().Init(owner, id, static_cast<int>(gpu), members);
      },
      until, uses_nccl ? "connecting with NCCL" : "loading the kernels");
  // All or none.
  if (connected.ok()) connected = seat->control().Barrier(until - Now());
  if (connected.ok()) {
    std::string description = Describe(*seat, plan, plan.gpus[gpu]);
    return std::unique_ptr<CudaIpcComm>(new CudaIpcComm(
        std::move(seat), std::move(plan), std::move(description)));
  }
  seat->End(connected.message());
  // Those who are still connecting shall not wait for this rank.
  seat->control().Revoke();
  return connected;
}

CudaIpcComm::CudaIpcComm(std::unique_ptr<GpuSeat> seat, GpuPlan plan,
                         std::string description)
    : GpuComm(std::move(seat), std::move(description)),
      plan_(std::move(plan)),
      gpu_(GpuOf(plan_, rank())),
      members_(plan_.gpus[gpu_]),
      announced_(world()) {}

CudaIpcComm::~CudaIpcComm() {
  if (!seat().ended().ok()) return;
  const absl::Duration until = Now() + seat().options().deadlines.finish;
  absl::Status done = seat().Do(
      [&seat = seat()](OwnerThread& owner) {
        seat.shared().Forget(owner);
        return seat.nccl().Finish(owner);
      },
      until, "taking leave");
  // CI-4.
  if (done.ok()) done = seat().control().Barrier(until - Now());
  if (done.ok()) {
    done = seat().Do(
        [&seat = seat()](OwnerThread&) {
          seat.shared().LetGo();
          return absl::OkStatus();
        },
        until, "taking leave");
  }
  if (!done.ok()) seat().End(done.message());
}

BucketBytes CudaIpcComm::bucket_bytes() const {
  BucketBytes bytes = GpuComm::bucket_bytes();
  if (!plan_.uses_nccl) bytes.first = bytes.next;
  return bytes;
}

absl::StatusOr<std::span<std::byte>> CudaIpcComm::Allocate(size_t bytes) {
  auto region = std::make_shared<SharedGpu::Region>();
  const absl::Status done = seat().Do(
      [&seat = seat(), region, bytes](OwnerThread& owner) {
        COHORT_ASSIGN_OR_RETURN(*region, seat.shared().Allocate(owner, bytes));
        return seat.stream().Zero(owner, region->memory);
      },
      Now() + seat().options().deadlines.memory,
      absl::StrCat("allocating ", bytes, " bytes"));
  if (absl::IsResourceExhausted(done)) return done;
  if (!done.ok()) return seat().EndFor(done);
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
  // Whoever fails revokes: others may be within NCCL, which hears nothing else.
  if (LeaderOf(call) == rank()) {
    COHORT_RETURN_IF_ERROR(Lead(call, round, posts, until));
  }
  // CI-3: until all leaders are here, buffers are theirs.
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
  // NCCL knows the first one only; else each takes its turn.
  if (plan_.uses_nccl) return members_.front();
  return members_[call.sequence % members_.size()];
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
  program.across = {
      .kind = call.kind,
      .op = call.op == ReduceOp::kAverage ? ReduceOp::kSum : call.op};
  if (call.kind == Kind::kBroadcast) {
    program.across.root = static_cast<int>(GpuOf(plan_, call.root));
  }
  for (size_t i = 0; i < round.buffers.size(); ++i) {
    const Buffer& buffer = round.buffers[i];
    if (buffer.count == 0) continue;
    std::vector<SharedGpu::Place> places;
    for (const int member : members_) {
      COHORT_ASSIGN_OR_RETURN(places.emplace_back(),
                              PlaceOf(member, posts[member].spots[i]));
    }
    if (call.kind == Kind::kBroadcast) {
      PlanBroadcast(call, buffer, places, program);
    } else {
      PlanReduction(call, buffer, places, program);
    }
  }
  return program;
}

void CudaIpcComm::PlanReduction(const Call& call, const Buffer& buffer,
                                const std::vector<SharedGpu::Place>& places,
                                Program& program) const {
  const bool is_average = call.op == ReduceOp::kAverage;
  const uint32_t divisor = is_average ? static_cast<uint32_t>(world()) : 1;
  SharedGpu::Work work = {.dtype = buffer.dtype,
                          .op = is_average ? ReduceOp::kSum : call.op,
                          .count = buffer.count,
                          .sources = places,
                          .destinations = places};
  if (!plan_.uses_nccl) {
    work.divisor = divisor;
    program.up.push_back(std::move(work));
    return;
  }
  // To the leader, which is the first member; across; back to all.
  const std::vector<SharedGpu::Place> leader = {places.front()};
  work.destinations = leader;
  if (places.size() > 1) program.up.push_back(work);
  program.across.buffers.push_back(
      {places.front().address, buffer.count, buffer.dtype});
  work.sources = leader;
  work.destinations = places;
  work.divisor = divisor;
  if (places.size() > 1 || is_average) program.down.push_back(std::move(work));
}

void CudaIpcComm::PlanBroadcast(const Call& call, const Buffer& buffer,
                                const std::vector<SharedGpu::Place>& places,
                                Program& program) const {
  const size_t bytes = buffer.bytes();
  const auto root = std::find(members_.begin(), members_.end(), call.root);
  // Copies, not kernels: a broadcast keeps every bit, of a NaN too.
  size_t source = 0;  // the leader's place
  if (root != members_.end()) source = root - members_.begin();
  if (plan_.uses_nccl) {
    if (source != 0) {
      program.copies_up.push_back({places.front(), places[source], bytes});
    }
    program.across.buffers.push_back(
        {places.front().address, buffer.count, buffer.dtype});
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const bool has_it = i == source || (plan_.uses_nccl && i == 0);
    if (!has_it)
      program.copies_down.push_back({places[i], places[source], bytes});
  }
}

absl::Status CudaIpcComm::Lead(const Call& call, const Round& round,
                               std::span<const Post> posts,
                               absl::Duration until) {
  COHORT_ASSIGN_OR_RETURN(Program program, Plan(call, round, posts));
  return seat().Do([&seat = seat(), program = std::move(program)](
                       OwnerThread& owner) { return program.Run(owner, seat); },
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
  COHORT_RETURN_IF_ERROR(seat().Do(
      [&seat = seat(), answer, staged = round.staged, bytes,
       wanted](OwnerThread& owner) {
        owner.SetCall("cuPointerGetAttribute");
        for (const Staged& one : staged) {
          answer->reaches.push_back(
              seat.stream().device().Reaches(one.buffer.data));
        }
        COHORT_ASSIGN_OR_RETURN(answer->pinned,
                                seat.stream().ReservePinned(owner, bytes));
        if (wanted == 0) return absl::OkStatus();
        COHORT_ASSIGN_OR_RETURN(answer->region,
                                seat.shared().Allocate(owner, wanted));
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
  return seat().Do(
      [&seat = seat(), all = round.staged](OwnerThread& owner) {
        for (const Staged& staged : all) {
          const void* const from =
              staged.pinned != nullptr ? staged.pinned : staged.buffer.data;
          const absl::Status copied = seat.stream().Copy(
              owner, staged.in_region, from, staged.buffer.bytes());
          if (!copied.ok()) return copied;
        }
        // What the caller enqueued on the default stream, too.
        return seat.stream().Await(owner);
      },
      until, "the work that fills the buffers");
}

absl::Status CudaIpcComm::CopyOut(const Round& round, absl::Duration until) {
  if (round.staged.empty()) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(seat().Do(
      [&seat = seat(), all = round.staged](OwnerThread& owner) {
        for (const Staged& staged : all) {
          void* const to =
              staged.pinned != nullptr ? staged.pinned : staged.buffer.data;
          const absl::Status copied = seat.stream().Copy(
              owner, to, staged.in_region, staged.buffer.bytes());
          if (!copied.ok()) return copied;
        }
        return seat.stream().Await(owner);
      },
      until, "copying the result"));
  for (const Staged& staged : round.staged) {
    if (staged.pinned == nullptr) continue;
    std::memcpy(staged.buffer.data, staged.pinned, staged.buffer.bytes());
  }
  return absl::OkStatus();
}

}  // namespace cohort::trainer
