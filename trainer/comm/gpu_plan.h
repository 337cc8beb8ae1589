#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::trainer {

// How ranks with GPUs find out which communicator they all take (NC-9): each
// says what it has, all get all words, and each comes to the same plan.

// What a rank says of itself.
struct GpuOffer {
  std::string gpu = {};        // its uuid; empty: it has none,
  std::string no_gpu = {};     // for this reason
  int nccl_version = 0;        // 0: it has none,
  std::string no_nccl = {};    // for this reason
  bool has_kernels = false;    // of our own, for ranks that share a GPU
  std::string unique_id = {};  // rank 0's, where it has NCCL

  std::string Encode() const;
  // INTERNAL for what Encode did not make.
  static absl::StatusOr<GpuOffer> Decode(absl::string_view text);
};

struct GpuPlan {
  // The ranks of each GPU, in rank order; GPUs by their first ranks.
  std::vector<std::vector<int>> gpus;
  // Between the GPUs, by their first ranks.
  bool uses_nccl = false;
  // Within each GPU.
  bool uses_kernels = false;

  bool operator==(const GpuPlan&) const = default;
};

// FAILED_PRECONDITION, naming the ranks, when they cannot reduce on GPUs: one
// has no GPU; several GPUs, and no NCCL or different ones; ranks that share a
// GPU without kernels, or more than kReduceRanksMax.
absl::StatusOr<GpuPlan> PlanGpus(const std::vector<GpuOffer>& offers);

}  // namespace cohort::trainer
