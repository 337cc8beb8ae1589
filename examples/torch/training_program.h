#pragma once

#include "absl/status/status.h"
#include "absl/strings/str_format.h"

#include "common/status_macros.h"
#include "examples/gang_training.h"
#include "trainer/torch/process.h"
#include "trainer/torch/training_device.h"

namespace cohort::examples {

// From options to the end of a training on LibTorch (TrainInGang).
template <typename Training, typename Options>
absl::Status TrainOnTorch(const Options& options) {
  const torch_adapter::ComputeFacts facts = torch_adapter::PrepareProcess();
  COHORT_ASSIGN_OR_RETURN(const torch::Device device,
                          torch_adapter::OpenDevice(options.use_gpu));
  return TrainInGang<Training>(
      options, device,
      absl::StrFormat("on %s, %d thread%s a rank, %s", device.str(),
                      facts.threads, facts.threads == 1 ? "" : "s",
                      facts.blas));
}

}  // namespace cohort::examples
