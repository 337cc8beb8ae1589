#include "trainer/comm/nccl_comm.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

// More shapes than a model has; all ranks forget them at the same call.
constexpr size_t kAgreedMax = 4096;

absl::Duration Now() { return MachineClock().Monotonic(); }

// What a call is but for when.
std::string ShapeOf(Signature signature) {
  signature.sequence = 0;
  return std::string(reinterpret_cast<const char*>(&signature),
                     sizeof(signature));
}

// What each rank shows the others in the exchange of a call.  Between processes
// of one build.
struct Post {
  Signature signature;
  uint64_t unregistered = 0;  // hash of sizes
  uint64_t is_launched = 0;
};
static_assert(std::is_trivially_copyable_v<Post>);

uint64_t HashOf(const std::vector<uint64_t>& sizes) {
  uint64_t hash = 0;
  for (const uint64_t size : sizes) {
    hash = (hash ^ (size + 1)) * 1099511628211u;
  }
  return hash;
}

std::string Describe(const GpuSeat& seat) {
  return absl::StrCat("NCCL ", nccl::VersionText(seat.nccl().version()), " on ",
                      seat.stream().device().uuid());
}

}  // namespace

NcclComm::NcclComm(std::unique_ptr<GpuSeat> seat, std::string description)
    : GpuComm(std::move(seat), std::move(description)) {}

absl::StatusOr<std::unique_ptr<NcclComm>> NcclComm::Connect(
    std::unique_ptr<GpuSeat> seat, const nccl::UniqueId& id,
    absl::Duration until) {
  const absl::Status connected = seat->Do(
      [&seat = *seat, id](OwnerThread& owner) {
        return seat.nccl().Init(owner, id, seat.identity().rank,
                                seat.identity().world);
      },
      until, "connecting with NCCL");
  if (connected.ok()) {
    std::string description = Describe(*seat);
    return std::unique_ptr<NcclComm>(
        new NcclComm(std::move(seat), std::move(description)));
  }
  seat->End(connected.message());
  // Those who are still connecting shall not wait for this rank.
  seat->control().Revoke();
  return connected;
}

NcclComm::~NcclComm() {
  if (!seat().ended().ok()) return;
  const absl::Status done =
      seat().Do([&seat = seat()](
                    OwnerThread& owner) { return seat.nccl().Finish(owner); },
                Now() + seat().options().deadlines.finish, "taking leave");
  if (!done.ok()) seat().End(done.message());
}

absl::StatusOr<std::span<std::byte>> NcclComm::Allocate(size_t bytes) {
  using Allocation = NcclCommunicator::Allocation;
  auto allocation = std::make_shared<Allocation>();
  const absl::Status done = seat().Do(
      [&seat = seat(), allocation, bytes](OwnerThread& owner) {
        COHORT_ASSIGN_OR_RETURN(*allocation,
                                seat.nccl().Allocate(owner, bytes));
        return absl::OkStatus();
      },
      Now() + seat().options().deadlines.memory,
      absl::StrCat("allocating ", bytes, " bytes"));
  if (absl::IsResourceExhausted(done)) return done;
  if (!done.ok()) return seat().EndFor(done);
  if (allocation->can_register) unregistered_.push_back(bytes);
  if (bytes > 0) allocated_.push_back(allocation->memory);
  return allocation->memory;
}

absl::Status NcclComm::RunUntil(const Call& call, absl::Duration until) {
  if (call.kind == Kind::kBarrier) {
    return Meet(call, until, /*is_ready=*/true, /*is_launched=*/false);
  }
  const absl::StatusOr<Prepared> prepared = Prepare(call, until);
  // That there is no room to stage is told to all when they meet.
  if (!prepared.ok() && !absl::IsResourceExhausted(prepared.status())) {
    return prepared.status();
  }
  std::shared_ptr<OwnerThread::Job> launched;
  const std::string shape = ShapeOf(Sign(call, epoch()));
  // NC-5: what all have agreed on is launched first and compared beside.
  const bool is_agreed = agreed_.contains(shape);
  if (is_agreed && prepared.ok()) launched = Launch(*prepared);
  const absl::Status met =
      Meet(call, until, prepared.ok(), /*is_launched=*/launched != nullptr);
  if (!met.ok()) {
    return absl::IsResourceExhausted(met) && !prepared.ok() ? prepared.status()
                                                            : met;
  }
  if (!is_agreed) {
    if (agreed_.size() >= kAgreedMax) agreed_.clear();
    agreed_.insert(shape);
    COHORT_RETURN_IF_ERROR(RegisterWindows(call, until));
    launched = Launch(*prepared);
  }
  COHORT_RETURN_IF_ERROR(
      seat().Await(*launched, until,
                   absl::StrCat("the collective that all ranks came to within ",
                                absl::FormatDuration(call.deadline))));
  // NC-6.
  if (!prepared->staged.empty()) {
    Unpack(prepared->stage.pinned, prepared->staged);
  }
  return absl::OkStatus();
}

bool NcclComm::IsAllocated(const Buffer& buffer) const {
  const auto* const begin = static_cast<const std::byte*>(buffer.data);
  return std::any_of(
      allocated_.begin(), allocated_.end(), [&](std::span<std::byte> memory) {
        return begin >= memory.data() &&
               begin + buffer.bytes() <= memory.data() + memory.size();
      });
}

absl::StatusOr<NcclComm::Prepared> NcclComm::Prepare(const Call& call,
                                                     absl::Duration until) {
  Prepared prepared;
  prepared.collective = {.kind = call.kind, .op = call.op, .root = call.root};
  std::vector<Buffer> foreign;
  for (const Buffer& buffer : call.buffers) {
    if (buffer.count == 0) continue;
    if (IsAllocated(buffer)) {
      prepared.collective.buffers.push_back(buffer);
    } else {
      foreign.push_back(buffer);
    }
  }
  if (foreign.empty()) return prepared;

  struct Answer {
    std::vector<bool> reaches;
    Stage stage;
  };
  auto answer = std::make_shared<Answer>();
  COHORT_RETURN_IF_ERROR(seat().Do(
      [&seat = seat(), answer, foreign](OwnerThread& owner) {
        owner.SetCall("cuPointerGetAttribute");
        size_t bytes = 0;
        for (const Buffer& buffer : foreign) {
          answer->reaches.push_back(
              seat.stream().device().Reaches(buffer.data));
          if (!answer->reaches.back()) bytes += PackedBytes(buffer);
        }
        COHORT_ASSIGN_OR_RETURN(answer->stage,
                                seat.nccl().Reserve(owner, bytes));
        return absl::OkStatus();
      },
      until, "preparing to stage"));
  prepared.stage = answer->stage;
  Collective& collective = prepared.collective;
  for (size_t i = 0; i < foreign.size(); ++i) {
    Buffer buffer = foreign[i];
    if (!answer->reaches[i]) {
      prepared.staged.push_back(buffer);
      buffer.data = prepared.stage.device + collective.staged_bytes;
      collective.staged_bytes += PackedBytes(buffer);
    }
    collective.buffers.push_back(buffer);
  }
  Pack(prepared.staged, prepared.stage.pinned);
  return prepared;
}

std::shared_ptr<OwnerThread::Job> NcclComm::Launch(const Prepared& prepared) {
  return seat().Post(
      [&seat = seat(), collective = prepared.collective](OwnerThread& owner) {
        return seat.nccl().Run(owner, collective);
      });
}

absl::Status NcclComm::Meet(const Call& call, absl::Duration until,
                            bool is_ready, bool is_launched) {
  Post mine;
  mine.signature = Sign(call, epoch());
  mine.signature.has_failed = is_ready ? 0 : 1;
  mine.unregistered = HashOf(unregistered_);
  mine.is_launched = is_launched ? 1 : 0;
  COHORT_ASSIGN_OR_RETURN(const std::vector<Post> posts,
                          Gather(call, mine, until));
  absl::Status verdict;
  bool any_launched = false;
  bool is_same_memory = true;
  for (int peer = 0; peer < world(); ++peer) {
    const Post& theirs = posts[peer];
    if (verdict.ok()) {
      verdict = CheckAlike(mine.signature, peer, theirs.signature);
    }
    any_launched |= theirs.is_launched != 0;
    is_same_memory &= theirs.unregistered == mine.unregistered;
  }
  for (int peer = 0; peer < world() && verdict.ok(); ++peer) {
    if (posts[peer].signature.has_failed == 0) continue;
    verdict = absl::ResourceExhaustedError(absl::StrCat(
        "rank ", peer, " has no memory to stage ", PackedBytes(call.buffers),
        " bytes; use buffers from Allocate"));
  }
  // What was launched cannot be taken back, on no rank.
  if (!verdict.ok() && any_launched) seat().End(verdict.message());
  can_register_ = is_same_memory && !unregistered_.empty();
  return verdict;
}

absl::Status NcclComm::RegisterWindows(const Call& call, absl::Duration until) {
  if (!can_register_) return absl::OkStatus();
  unregistered_.clear();
  auto refused = std::make_shared<absl::Status>();
  COHORT_RETURN_IF_ERROR(seat().Do(
      [&seat = seat(), refused](OwnerThread& owner) {
        *refused = seat.nccl().RegisterWindows(owner);
        return owner.ended();
      },
      until, "registering memory"));
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<uint64_t> refusals,
      Gather(call, uint64_t{refused->ok() ? 0u : 1u}, until));
  const auto first = std::find(refusals.begin(), refusals.end(), 1);
  if (first == refusals.end()) return absl::OkStatus();
  return ConnectAgain(
      call,
      !refused->ok()
          ? refused->message()
          : absl::StrCat("rank ", first - refusals.begin(), " has no windows"),
      until);
}

absl::Status NcclComm::ConnectAgain(const Call& call, absl::string_view why,
                                    absl::Duration until) {
  COHORT_LOG(kWarning, "nccl_windows_refused", {"rank", rank()},
             {"epoch", epoch()}, {"why", why});
  auto id = std::make_shared<nccl::UniqueId>();
  COHORT_RETURN_IF_ERROR(seat().Do(
      [&seat = seat(), id, why = std::string(why)](OwnerThread& owner) {
        seat.nccl().Abandon(owner, why);
        if (seat.identity().rank != 0) return absl::OkStatus();
        COHORT_ASSIGN_OR_RETURN(*id, seat.nccl().NewId(owner));
        return absl::OkStatus();
      },
      until, "giving up a communicator that refused windows"));
  COHORT_ASSIGN_OR_RETURN(const std::vector<nccl::UniqueId> ids,
                          Gather(call, *id, until));
  return seat().Do(
      [&seat = seat(), id = ids[0]](OwnerThread& owner) {
        return seat.nccl().Init(owner, id, seat.identity().rank,
                                seat.identity().world);
      },
      until, "connecting with NCCL without windows");
}

}  // namespace cohort::trainer
