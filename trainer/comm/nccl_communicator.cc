#include "trainer/comm/nccl_communicator.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/signature.h"

// User guide: docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage, pages
// communicators ("Creating a communication with options", "Fault Tolerance"),
// groups.
namespace cohort::trainer {
namespace {

nccl::DataType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return nccl::kFloat32;
    case DType::kF64:
      return nccl::kFloat64;
    case DType::kI32:
      return nccl::kInt32;
    case DType::kI64:
      return nccl::kInt64;
    case DType::kF16:
      return nccl::kFloat16;
    case DType::kBF16:
      return nccl::kBfloat16;
  }
  return -1;  // Comm refuses unknown types.
}

nccl::RedOp OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return nccl::kSum;
    case ReduceOp::kMax:
      return nccl::kMax;
    case ReduceOp::kMin:
      return nccl::kMin;
    case ReduceOp::kAverage:
      return nccl::kAvg;
  }
  return -1;  // Comm refuses unknown operations.
}

}  // namespace

NcclCommunicator::NcclCommunicator(const Comm::Identity& identity,
                                   GpuStream& gpu,
                                   const NcclDeadlines& deadlines)
    : identity_(identity), gpu_(gpu), deadlines_(deadlines) {}

absl::Status NcclCommunicator::Open(
    OwnerThread& owner, const cuda::Lookup<nccl::Library>& library) {
  COHORT_ASSIGN_OR_RETURN(library_, library.Find([&owner](const char* call) {
    owner.SetCall(call);
  }));
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Nccl(nccl::Result result,
                                    absl::string_view call) const {
  if (result == nccl::kSuccess) return absl::OkStatus();
  return Annotate(nccl::NcclStatus(*library_, result, call, comm_),
                  gpu_.Place());
}

absl::StatusOr<nccl::UniqueId> NcclCommunicator::NewId(OwnerThread& owner) {
  owner.SetCall("ncclGetUniqueId");
  nccl::UniqueId id = {};
  COHORT_RETURN_IF_ERROR(
      Nccl(library_->table.ncclGetUniqueId(&id), "ncclGetUniqueId"));
  return id;
}

absl::Status NcclCommunicator::Init(OwnerThread& owner,
                                    const nccl::UniqueId& id) {
  nccl::Config config;
  // Only a non-blocking communicator can be aborted at any time.
  config.blocking = 0;
  owner.SetCall("ncclCommInitRankConfig");
  const nccl::Result started = library_->table.ncclCommInitRankConfig(
      &comm_, identity_.world, id, identity_.rank, &config);
  if (comm_ != nullptr) state_ = State::kInit;
  COHORT_RETURN_IF_ERROR(AwaitNccl(owner, "ncclCommInitRankConfig", started,
                                   absl::InfiniteDuration()));
  state_ = State::kUp;
  return absl::OkStatus();
}

absl::StatusOr<std::span<std::byte>> NcclCommunicator::Allocate(
    OwnerThread& owner, size_t bytes) {
  // The driver allocates no nothing.
  COHORT_ASSIGN_OR_RETURN(const cuda::DevicePointer memory,
                          gpu_.Allocate(owner, std::max(bytes, size_t{1})));
  blocks_.push_back(memory);
  const std::span<std::byte> allocated(cuda::AddressOf(memory), bytes);
  COHORT_RETURN_IF_ERROR(gpu_.Zero(owner, allocated));
  return allocated;
}

absl::StatusOr<NcclCommunicator::Stage> NcclCommunicator::Reserve(
    OwnerThread& owner, size_t bytes) {
  COHORT_ASSIGN_OR_RETURN(stage_.pinned, gpu_.ReservePinned(owner, bytes));
  if (bytes <= stage_.bytes) return stage_;
  const size_t wanted = std::max(bytes, 2 * stage_.bytes);
  FreeStage(owner);
  COHORT_ASSIGN_OR_RETURN(const cuda::DevicePointer memory,
                          gpu_.Allocate(owner, wanted));
  stage_.device = cuda::AddressOf(memory);
  stage_.bytes = wanted;
  return stage_;
}

void NcclCommunicator::FreeStage(OwnerThread& owner) {
  if (stage_.bytes == 0) return;
  owner.SetCall("cuMemFree");
  gpu_.device().Free(cuda::PointerTo(stage_.device));
  stage_.device = nullptr;
  stage_.bytes = 0;
}

absl::Status NcclCommunicator::Run(OwnerThread& owner,
                                   const Collective& collective) {
  if (collective.buffers.empty()) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(
      gpu_.Copy(owner, stage_.device, stage_.pinned, collective.staged_bytes));
  COHORT_RETURN_IF_ERROR(Enqueue(owner, collective));
  COHORT_RETURN_IF_ERROR(
      gpu_.Copy(owner, stage_.pinned, stage_.device, collective.staged_bytes));
  return gpu_.Await(owner, [&] { return Look(owner); });
}

absl::Status NcclCommunicator::Enqueue(OwnerThread& owner,
                                       const Collective& collective) {
  const char* const call = collective.kind == Comm::Kind::kBroadcast ||
                                   collective.kind == Comm::Kind::kAllGather
                               ? "ncclBroadcast"
                               : "ncclAllReduce";
  const nccl::NcclTable& table = library_->table;
  owner.SetCall("ncclGroupStart");
  COHORT_RETURN_IF_ERROR(Nccl(table.ncclGroupStart(), "ncclGroupStart"));
  owner.SetCall(call);
  nccl::Result enqueued = nccl::kSuccess;
  for (const Buffer& buffer : collective.buffers) {
    enqueued = EnqueueOne(collective, buffer);
    if (enqueued != nccl::kSuccess && enqueued != nccl::kInProgress) break;
    enqueued = nccl::kSuccess;
  }
  // A group that was begun is ended, whatever happened in it.
  owner.SetCall("ncclGroupEnd");
  const nccl::Result ended = table.ncclGroupEnd();
  COHORT_RETURN_IF_ERROR(Nccl(enqueued, call));
  // The kernels are on the stream only when this is over.
  return AwaitNccl(owner, "ncclGroupEnd", ended, absl::InfiniteDuration());
}

nccl::Result NcclCommunicator::EnqueueOne(const Collective& collective,
                                          const Buffer& buffer) {
  const nccl::NcclTable& table = library_->table;
  if (collective.kind == Comm::Kind::kBroadcast) {
    return table.ncclBroadcast(buffer.data, buffer.data, buffer.count,
                               TypeOf(buffer.dtype), collective.root, comm_,
                               gpu_.handle());
  }
  if (collective.kind == Comm::Kind::kAllGather) {
    return EnqueueBlocks(collective, buffer);
  }
  // Of a ReduceScatter too: what is outside of a rank's block is undefined.
  return table.ncclAllReduce(buffer.data, buffer.data, buffer.count,
                             TypeOf(buffer.dtype), OpOf(collective.op), comm_,
                             gpu_.handle());
}

// A broadcast of each rank's block, which NCCL joins, being in one group.
nccl::Result NcclCommunicator::EnqueueBlocks(const Collective& collective,
                                             const Buffer& buffer) {
  for (int root = 0; root < collective.world; ++root) {
    const Range block = BlockOf(buffer, root, collective.world);
    if (block.empty()) continue;
    std::byte* const at = static_cast<std::byte*>(buffer.data) +
                          block.begin * SizeOf(buffer.dtype);
    const nccl::Result enqueued = library_->table.ncclBroadcast(
        at, at, block.end - block.begin, TypeOf(buffer.dtype), root, comm_,
        gpu_.handle());
    if (enqueued != nccl::kSuccess && enqueued != nccl::kInProgress) {
      return enqueued;
    }
  }
  return nccl::kSuccess;
}

absl::Status NcclCommunicator::AwaitNccl(OwnerThread& owner, const char* call,
                                         nccl::Result started,
                                         absl::Duration until) {
  nccl::Result result = started;
  PollBackoff backoff;
  while (result == nccl::kInProgress) {
    if (owner.is_ending() && !is_leaving_) return owner.ended();
    if (MonotonicNow() >= until) {
      return absl::DeadlineExceededError(
          absl::StrCat(gpu_.Place(), ": ", call, " is not over"));
    }
    backoff.Step(owner);
    owner.SetCall("ncclCommGetAsyncError");
    const nccl::Result asked =
        library_->table.ncclCommGetAsyncError(comm_, &result);
    COHORT_RETURN_IF_ERROR(Nccl(asked, "ncclCommGetAsyncError"));
    owner.SetCall(call);
  }
  return Nccl(result, call);
}

absl::Status NcclCommunicator::Look(OwnerThread& owner) {
  owner.SetCall("ncclCommGetAsyncError");
  nccl::Result background = nccl::kSuccess;
  const nccl::Result asked =
      library_->table.ncclCommGetAsyncError(comm_, &background);
  COHORT_RETURN_IF_ERROR(Nccl(asked, "ncclCommGetAsyncError"));
  if (background == nccl::kInProgress) return absl::OkStatus();
  return Nccl(background, "in the background");
}

absl::Status NcclCommunicator::Finish(OwnerThread& owner) {
  if (state_ != State::kUp) return absl::OkStatus();
  owner.SetCall("ncclCommFinalize");
  COHORT_RETURN_IF_ERROR(AwaitNccl(owner, "ncclCommFinalize",
                                   library_->table.ncclCommFinalize(comm_),
                                   MonotonicNow() + deadlines_.finish));
  owner.SetCall("ncclCommDestroy");
  const nccl::Result destroyed =
      library_->table.ncclCommDestroy(std::exchange(comm_, nullptr));
  state_ = State::kNone;
  if (destroyed == nccl::kInProgress) return absl::OkStatus();
  return Nccl(destroyed, "ncclCommDestroy");
}

std::optional<GpuEnd> NcclCommunicator::Quiet(OwnerThread& owner,
                                              absl::string_view why) {
  is_leaving_ = true;
  if (comm_ == nullptr) return std::nullopt;
  std::string words = absl::StrCat(gpu_.device().name(), ": ", why);
  // What has not come up knows no revoke.
  if (state_ == State::kUp && library_->table.ncclCommRevoke) {
    const absl::Status revoked = Revoke(owner, why);
    if (revoked.ok()) {
      return GpuEnd{.level = GpuEnd::Level::kRevoked, .why = std::move(words)};
    }
    absl::StrAppend(&words, "; ", revoked.message());
  }
  Abort(owner, why);
  return GpuEnd{.level = GpuEnd::Level::kAborted, .why = std::move(words)};
}

absl::Status NcclCommunicator::Revoke(OwnerThread& owner,
                                      absl::string_view why) {
  const absl::Duration begin = MonotonicNow();
  owner.SetCall("ncclCommRevoke");
  const absl::Status revoked = AwaitNccl(
      owner, "ncclCommRevoke", library_->table.ncclCommRevoke(comm_, 0),
      begin + deadlines_.revoke);
  if (!revoked.ok()) {
    COHORT_LOG(kWarning, "nccl_revoke_failed", {"rank", identity_.rank},
               {"epoch", identity_.epoch}, {"device", gpu_.device().name()},
               {"why", revoked.message()}, {"after", MonotonicNow() - begin});
    return revoked;
  }
  state_ = State::kQuiet;
  COHORT_LOG(kWarning, "nccl_revoked", {"rank", identity_.rank},
             {"epoch", identity_.epoch}, {"device", gpu_.device().name()},
             {"why", why}, {"took", MonotonicNow() - begin});
  return absl::OkStatus();
}

void NcclCommunicator::Abort(OwnerThread& owner, absl::string_view why) {
  const absl::Duration begin = MonotonicNow();
  owner.SetCall("ncclCommAbort");
  // It frees the communicator whatever it answers.
  const nccl::Result aborted =
      library_->table.ncclCommAbort(std::exchange(comm_, nullptr));
  state_ = State::kQuiet;
  COHORT_LOG(kWarning, "nccl_aborted", {"rank", identity_.rank},
             {"epoch", identity_.epoch}, {"device", gpu_.device().name()},
             {"why", why}, {"result", aborted},
             {"took", MonotonicNow() - begin});
}

void NcclCommunicator::Close(OwnerThread& owner) {
  is_leaving_ = true;
  if (comm_ != nullptr) {
    owner.SetCall("ncclCommDestroy");
    library_->table.ncclCommDestroy(std::exchange(comm_, nullptr));
  }
  // NC-7.
  FreeStage(owner);
  owner.SetCall("cuMemFree");
  for (const cuda::DevicePointer block : blocks_) gpu_.device().Free(block);
  blocks_.clear();
}

}  // namespace cohort::trainer
