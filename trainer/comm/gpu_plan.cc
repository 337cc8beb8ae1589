#include "trainer/comm/gpu_plan.h"

#include <cstddef>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "common/status_macros.h"
#include "trainer/comm/nccl_library.h"
#include "trainer/comm/reduce_args.h"

namespace cohort::trainer {
namespace {

// NCCL's part: between the first ranks of the GPUs.
absl::Status CheckNccl(const std::vector<GpuOffer>& offers,
                       const GpuPlan& plan) {
  const GpuOffer& first = offers[0];
  for (const std::vector<int>& ranks : plan.gpus) {
    const int rank = ranks.front();
    const GpuOffer& offer = offers[rank];
    if (offer.nccl_version == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, ": ", offer.no_nccl));
    }
    if (offer.nccl_version != first.nccl_version) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank 0 has NCCL ", nccl::VersionText(first.nccl_version), ", rank ",
          rank, " ", nccl::VersionText(offer.nccl_version)));
    }
  }
  if (first.unique_id.size() != sizeof(nccl::UniqueId)) {
    return absl::InternalError("rank 0 sent no unique id");
  }
  return absl::OkStatus();
}

// Our own part: among the ranks of each GPU.
absl::Status CheckKernels(const std::vector<GpuOffer>& offers,
                          const GpuPlan& plan) {
  for (const std::vector<int>& ranks : plan.gpus) {
    const std::string& gpu = offers[ranks.front()].gpu;
    if (ranks.size() > kReduceRanksMax) {
      return absl::FailedPreconditionError(
          absl::StrCat(ranks.size(), " ranks share ", gpu, ", and at most ",
                       kReduceRanksMax, " can"));
    }
    for (const int rank : ranks) {
      if (offers[rank].has_kernels) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "),
          ranks.size() == 1 ? " has " : " share ", gpu,
          ", which NCCL does not serve",
          ranks.size() == 1 ? absl::StrCat(" (", offers[rank].no_nccl, ")")
                            : "",
          ", and the program of rank ", rank,
          " was built without CUDA kernels (no nvcc)"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string GpuOffer::Encode() const {
  return absl::StrJoin(
      {absl::CEscape(gpu), absl::CEscape(no_gpu), absl::StrCat(nccl_version),
       absl::CEscape(no_nccl), std::string(has_kernels ? "1" : "0"),
       absl::Base64Escape(unique_id)},
      "\n");
}

absl::StatusOr<GpuOffer> GpuOffer::Decode(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, '\n');
  GpuOffer offer;
  if (fields.size() != 6 || !absl::CUnescape(fields[0], &offer.gpu) ||
      !absl::CUnescape(fields[1], &offer.no_gpu) ||
      !absl::SimpleAtoi(fields[2], &offer.nccl_version) ||
      !absl::CUnescape(fields[3], &offer.no_nccl) ||
      !absl::Base64Unescape(fields[5], &offer.unique_id)) {
    return absl::InternalError("a rank's offer of another build");
  }
  offer.has_kernels = fields[4] == "1";
  return offer;
}

absl::StatusOr<GpuPlan> PlanGpus(const std::vector<GpuOffer>& offers) {
  GpuPlan plan;
  std::map<std::string, size_t> places;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const GpuOffer& offer = offers[rank];
    if (offer.gpu.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, ": ", offer.no_gpu));
    }
    const auto [place, is_new] =
        places.try_emplace(offer.gpu, plan.gpus.size());
    if (is_new) plan.gpus.emplace_back();
    plan.gpus[place->second].push_back(static_cast<int>(rank));
  }
  // What NCCL calls "Duplicate GPU detected".
  const bool is_shared = plan.gpus.size() < offers.size();
  const bool is_alone = offers.size() == 1;
  plan.uses_nccl =
      is_alone ? offers[0].nccl_version != 0 : plan.gpus.size() > 1;
  plan.uses_kernels = is_shared || (is_alone && !plan.uses_nccl);
  if (plan.uses_kernels) {
    COHORT_RETURN_IF_ERROR(CheckKernels(offers, plan));
  }
  if (plan.uses_nccl) {
    COHORT_RETURN_IF_ERROR(CheckNccl(offers, plan));
  }
  return plan;
}

}  // namespace cohort::trainer
