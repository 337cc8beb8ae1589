#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "trainer/comm/gpu_context.h"
#include "trainer/cuda/call_watch.h"

namespace cohort::trainer {

// What a rank has of GPUs: which, and by what it reaches them.
struct GpuGrant {
  // Of those that this process sees; the first is the one that it reduces on.
  std::vector<int> ordinals = {0};
  cuda::CallWatch::Loader load_driver = [] { return cuda::LoadDriver(); };
  // For a communicator on the first.  Called when all have opened.
  std::function<GpuCommOptions()> comm = &GpuOfThisMachine;
};

// As the worker daemon says in the environment; none where it granted none.
std::optional<GpuGrant> GpuGrantOfThisRank();

// Opens each GPU, one after the other, and gives it back: their names, as
// "GPU-01234567-... (NVIDIA H200)", else what is wrong with the first that does
// not open: the errors of LoadDriver and cuda::Device.  For a call
// that does not come back within `timeout`, `hung` is called, as
// cuda::CallWatch does.
absl::StatusOr<std::vector<std::string>> OpenGpus(const GpuGrant& grant,
                                                  absl::Duration timeout,
                                                  cuda::CallWatch::Hung hung);

}  // namespace cohort::trainer
