#include "trainer/comm/gpu_transport.h"

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

absl::Status CheckNccl(const std::vector<GpuOffer>& offers) {
  const GpuOffer& first = offers[0];
  for (size_t rank = 0; rank < offers.size(); ++rank) {
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

absl::Status CheckKernels(const std::vector<GpuOffer>& offers) {
  const std::string& gpu = offers[0].gpu;
  const bool is_alone = offers.size() == 1;
  if (offers.size() > kReduceRanksMax) {
    return absl::FailedPreconditionError(
        absl::StrCat(offers.size(), " ranks share ", gpu, ", and at most ",
                     kReduceRanksMax, " can"));
  }
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].has_kernels) continue;
    const std::string who =
        is_alone ? absl::StrCat("rank 0 has ", gpu, " and no NCCL (",
                                offers[rank].no_nccl, ")")
                 : absl::StrCat("all ranks share ", gpu,
                                ", which NCCL does not serve");
    return absl::FailedPreconditionError(
        absl::StrCat(who, ", and the program of rank ", rank,
                     " was built without CUDA kernels (no nvcc)"));
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

absl::StatusOr<GpuTransport> ChooseTransport(
    const std::vector<GpuOffer>& offers) {
  std::map<std::string, std::vector<size_t>> ranks_of;  // by GPU
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const GpuOffer& offer = offers[rank];
    if (offer.gpu.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, ": ", offer.no_gpu));
    }
    ranks_of[offer.gpu].push_back(rank);
  }
  const bool is_alone = offers.size() == 1;
  if (ranks_of.size() == 1 && !(is_alone && offers[0].nccl_version != 0)) {
    COHORT_RETURN_IF_ERROR(CheckKernels(offers));
    return GpuTransport::kCudaIpc;
  }
  // NCCL would say "Duplicate GPU detected".
  for (const auto& [gpu, ranks] : ranks_of) {
    if (ranks.size() == 1) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "ranks ", absl::StrJoin(ranks, ", "), " share ", gpu, " in a gang of ",
        ranks_of.size(),
        " GPUs: ranks have a GPU each, or all share one (ask for whole GPUs)"));
  }
  COHORT_RETURN_IF_ERROR(CheckNccl(offers));
  return GpuTransport::kNccl;
}

}  // namespace cohort::trainer
