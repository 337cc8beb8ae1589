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
#include "trainer/comm/gpu_plan.h"
#include "trainer/comm/nccl_comm.h"

namespace cohort::trainer {
namespace {

absl::Duration Now() { return MachineClock().Monotonic(); }

absl::Status TakeNccl(OwnerThread& owner, GpuSeat& seat, GpuOffer& offer) {
  COHORT_RETURN_IF_ERROR(seat.nccl().Open(owner, seat.options().nccl));
  if (seat.identity().rank == 0) {
    COHORT_ASSIGN_OR_RETURN(const nccl::UniqueId id, seat.nccl().NewId(owner));
    offer.unique_id.assign(id.internal, sizeof(id.internal));
  }
  offer.nccl_version = seat.nccl().version();
  return absl::OkStatus();
}

// What this rank has; a reason where it has not.  Every call that may hang is
// the owner's.
GpuOffer TakeGpu(GpuSeat& seat, absl::Duration until) {
  // Shared with the owner, since it may come back later.
  auto offer = std::make_shared<GpuOffer>();
  const absl::Status taken = seat.Do(
      [&seat, offer](OwnerThread& owner) {
        COHORT_RETURN_IF_ERROR(
            seat.stream().Open(owner, seat.options().driver));
        offer->gpu = seat.stream().device().uuid();
        // Ranks that share one GPU do without.
        const absl::Status nccl = TakeNccl(owner, seat, *offer);
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
  mine.has_kernels = !seat.options().kernels.empty();
  return mine;
}

absl::StatusOr<std::vector<GpuOffer>> ExchangeOffers(const GpuSeat& seat,
                                                     const GpuOffer& mine,
                                                     Exchange& exchange,
                                                     absl::Duration until) {
  const Comm::Identity& identity = seat.identity();
  // NC-8: under the epoch's name.
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> words,
                          exchange(absl::StrCat("gpus/", identity.epoch),
                                   mine.Encode(), until - Now()));
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
absl::Status Refuse(GpuSeat& seat, absl::Status why) {
  seat.End(why.message());
  return why;
}

}  // namespace

absl::StatusOr<std::unique_ptr<GpuComm>> ConnectGpuComm(GpuCommOptions options,
                                                        Comm& control,
                                                        Exchange& exchange) {
  const absl::Duration until = Now() + options.connect_deadline;
  auto seat = std::make_unique<GpuSeat>(std::move(options), control);
  // Of the deadline a quarter at least is for telling the peers, who would else
  // wait for a rank whose GPU does not answer and never learn why.
  const GpuOffer mine = TakeGpu(
      *seat,
      Now() + std::min(seat->options().deadlines.take, 0.75 * (until - Now())));
  const auto offers = ExchangeOffers(*seat, mine, exchange, until);
  if (!offers.ok()) return Refuse(*seat, offers.status());
  absl::StatusOr<GpuPlan> plan = PlanGpus(*offers);
  if (absl::IsFailedPrecondition(plan.status())) {
    return Refuse(*seat, SetReason(plan.status(), kGpusUnusable));
  }
  if (!plan.ok()) return Refuse(*seat, plan.status());
  nccl::UniqueId id = {};
  std::memcpy(id.internal, (*offers)[0].unique_id.data(),
              std::min(sizeof(id.internal), (*offers)[0].unique_id.size()));
  if (plan->uses_kernels) {
    return CudaIpcComm::Connect(std::move(seat), *std::move(plan), id, until);
  }
  return NcclComm::Connect(std::move(seat), id, until);
}

}  // namespace cohort::trainer
