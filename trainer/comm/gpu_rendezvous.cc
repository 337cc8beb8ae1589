#include "trainer/comm/gpu_rendezvous.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/cuda_ipc_comm.h"
#include "trainer/comm/gpu_transport.h"
#include "trainer/comm/nccl_comm.h"

namespace cohort::trainer {
namespace {

absl::Status TakeNccl(OwnerThread& owner, GpuContext& context,
                      GpuOffer& offer) {
  COHORT_RETURN_IF_ERROR(context.nccl().Open(owner, context.options().nccl));
  if (context.identity().rank == 0) {
    COHORT_ASSIGN_OR_RETURN(const nccl::UniqueId id,
                            context.nccl().NewId(owner));
    offer.unique_id.assign(id.internal, sizeof(id.internal));
  }
  offer.nccl_version = context.nccl().version();
  return absl::OkStatus();
}

// What this rank has; a reason where it has not.  Every call that may hang is
// the owner's.
GpuOffer TakeGpu(GpuContext& context, absl::Duration until) {
  // Shared with the owner, since it may come back later.
  auto offer = std::make_shared<GpuOffer>();
  const absl::Status taken = context.Do(
      [&context, offer](OwnerThread& owner) {
        COHORT_RETURN_IF_ERROR(
            context.stream().Open(owner, context.options().driver));
        offer->gpu = context.stream().device().uuid();
        // Ranks that share one GPU do without.
        const absl::Status nccl = TakeNccl(owner, context, *offer);
        if (!nccl.ok()) offer->no_nccl = std::string(nccl.message());
        return absl::OkStatus();
      },
      until, "taking the GPU");
  GpuOffer mine;
  if (taken.ok()) {
    mine = *offer;
  } else {
    mine.no_gpu = std::string(taken.message());
  }
  mine.has_kernels = !context.options().kernels.empty();
  return mine;
}

absl::StatusOr<std::vector<GpuOffer>> ExchangeOffers(const GpuContext& context,
                                                     const GpuOffer& mine,
                                                     Exchange& exchange,
                                                     absl::Duration until) {
  const Comm::Identity& identity = context.identity();
  // NC-8: under the epoch's name.
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                          exchange(absl::StrCat("gpus/", identity.epoch),
                                   mine.Encode(), until - MonotonicNow()));
  if (words.size() != static_cast<size_t>(identity.world)) {
    return absl::InternalError(absl::StrCat("exchange gave ", words.size(),
                                            " blobs for ", identity.world,
                                            " ranks"));
  }
  std::vector<GpuOffer> offers;
  for (const std::string& text : words) {
    COHORT_ASSIGN_OR_RETURN(offers.emplace_back(), GpuOffer::Decode(text));
  }
  return offers;
}

// Whatever went wrong before the ranks chose ends this rank's hold only.
absl::Status Refuse(GpuContext& context, absl::Status why) {
  context.End(why.message());
  return why;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuComm>> ConnectGpuComm(GpuCommOptions options,
                                                        Comm& control,
                                                        Exchange& exchange) {
  const absl::Duration until = MonotonicNow() + options.connect_deadline;
  auto context = std::make_unique<GpuContext>(std::move(options), control);
  // Of the deadline a quarter at least is for telling the peers, who would else
  // wait for a rank whose GPU does not answer and never learn why.
  const GpuOffer mine = TakeGpu(
      *context, MonotonicNow() + std::min(context->options().deadlines.take,
                                          0.75 * (until - MonotonicNow())));
  const auto offers = ExchangeOffers(*context, mine, exchange, until);
  if (!offers.ok()) return Refuse(*context, offers.status());
  const absl::StatusOr<GpuTransport> transport = ChooseTransport(*offers);
  if (absl::IsFailedPrecondition(transport.status())) {
    return Refuse(*context, SetReason(transport.status(), kGpusUnusable));
  }
  if (!transport.ok()) return Refuse(*context, transport.status());
  if (*transport == GpuTransport::kCudaIpc) {
    return CudaIpcComm::Connect(std::move(context), until);
  }
  nccl::UniqueId id = {};
  std::memcpy(id.internal, (*offers)[0].unique_id.data(),
              std::min(sizeof(id.internal), (*offers)[0].unique_id.size()));
  return NcclComm::Connect(std::move(context), id, until);
}

}  // namespace cohort::trainer
