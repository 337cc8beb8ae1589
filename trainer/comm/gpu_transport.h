#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::trainer {

// How ranks with GPUs find out which communicator they all take (NC-9): each
// says what it has, all get all words, and each comes to the same choice.

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

enum class GpuTransport {
  kNccl,     // each rank has a GPU of its own
  kCudaIpc,  // all ranks share one; a lone rank without NCCL, too
};

// FAILED_PRECONDITION, naming the ranks, when they cannot reduce on GPUs: one
// has no GPU; no NCCL or different ones; no kernels, or more than
// kReduceRanksMax, to share a GPU; some ranks share a GPU and others do not.
absl::StatusOr<GpuTransport> ChooseTransport(
    const std::vector<GpuOffer>& offers);

}  // namespace cohort::trainer
