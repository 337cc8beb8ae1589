#include "trainer/comm/nccl_comm.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

// More shapes than a model has; all ranks forget them at the same call.
constexpr size_t kAgreedMax = 4096;

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
  uint64_t is_launched = 0;
};
static_assert(std::is_trivially_copyable_v<Post>);

std::string Describe(const GpuContext& context) {
  return absl::StrCat("NCCL ", nccl::VersionText(context.nccl().version()),
                      " on ", context.stream().device().uuid());
}

}  // namespace

NcclComm::NcclComm(std::unique_ptr<GpuContext> context, std::string description)
    : GpuComm(std::move(context), std::move(description)) {}

absl::StatusOr<std::unique_ptr<NcclComm>> NcclComm::Connect(
    std::unique_ptr<GpuContext> context, const nccl::UniqueId& id,
    absl::Duration until) {
  const absl::Status connected = context->Do(
      [&context = *context, id](OwnerThread& owner) {
        return context.nccl().Init(owner, id);
      },
      until, "connecting with NCCL");
  if (connected.ok()) {
    std::string description = Describe(*context);
    return std::unique_ptr<NcclComm>(
        new NcclComm(std::move(context), std::move(description)));
  }
  context->End(connected.message());
  // Those who are still connecting shall not wait for this rank.
  context->control().Revoke();
  return connected;
}

NcclComm::~NcclComm() {
  if (!context().ended().ok()) return;
  const absl::Status done = context().Do(
      [&context = context()](OwnerThread& owner) {
        return context.nccl().Finish(owner);
      },
      MonotonicNow() + context().options().deadlines.finish, "taking leave");
  if (!done.ok()) context().End(done.message());
}

absl::StatusOr<std::span<std::byte>> NcclComm::Allocate(size_t bytes) {
  auto memory = std::make_shared<std::span<std::byte>>();
  const absl::Status done = context().Do(
      [&context = context(), memory, bytes](OwnerThread& owner) {
        COHORT_ASSIGN_OR_RETURN(*memory, context.nccl().Allocate(owner, bytes));
        return absl::OkStatus();
      },
      MonotonicNow() + context().options().deadlines.memory,
      absl::StrCat("allocating ", bytes, " bytes"));
  if (absl::IsResourceExhausted(done)) return done;
  if (!done.ok()) return context().EndFor(done);
  if (bytes > 0) allocated_.push_back(*memory);
  return *memory;
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
    launched = Launch(*prepared);
  }
  COHORT_RETURN_IF_ERROR(context().Await(
      *launched, until,
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
  prepared.collective = {
      .kind = call.kind, .op = call.op, .root = call.root, .world = world()};
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
  COHORT_RETURN_IF_ERROR(context().Do(
      [&context = context(), answer, foreign](OwnerThread& owner) {
        owner.SetCall("cuPointerGetAttribute");
        size_t bytes = 0;
        for (const Buffer& buffer : foreign) {
          answer->reaches.push_back(
              context.stream().device().Reaches(buffer.data));
          if (!answer->reaches.back()) bytes += PackedBytes(buffer);
        }
        COHORT_ASSIGN_OR_RETURN(answer->stage,
                                context.nccl().Reserve(owner, bytes));
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
  return context().Post([&context = context(),
                         collective = prepared.collective](OwnerThread& owner) {
    return context.nccl().Run(owner, collective);
  });
}

absl::Status NcclComm::Meet(const Call& call, absl::Duration until,
                            bool is_ready, bool is_launched) {
  Post mine;
  mine.signature = Sign(call, epoch());
  mine.signature.has_failed = is_ready ? 0 : 1;
  mine.is_launched = is_launched ? 1 : 0;
  COHORT_ASSIGN_OR_RETURN(const std::vector<Post> posts,
                          Gather(call, mine, until));
  absl::Status verdict;
  bool any_launched = false;
  for (int peer = 0; peer < world(); ++peer) {
    const Post& theirs = posts[peer];
    if (verdict.ok()) {
      verdict = CheckAlike(mine.signature, peer, theirs.signature);
    }
    any_launched |= theirs.is_launched != 0;
  }
  for (int peer = 0; peer < world() && verdict.ok(); ++peer) {
    if (posts[peer].signature.has_failed == 0) continue;
    verdict = absl::ResourceExhaustedError(absl::StrCat(
        "rank ", peer, " has no memory to stage ", PackedBytes(call.buffers),
        " bytes; use buffers from Allocate"));
  }
  // What was launched cannot be taken back, on no rank.
  if (!verdict.ok() && any_launched) context().End(verdict.message());
  return verdict;
}

}  // namespace cohort::trainer
