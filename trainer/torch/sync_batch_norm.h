#pragma once

#include <cstdint>

#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"
#include "torch/types.h"

#include "trainer/comm/comm.h"

namespace cohort::train {

// Batch norm over the joined batch of all ranks, for batches [n,c,...] that are
// too small by themselves (the idea and names are PyTorch's
// torch.nn.SyncBatchNorm, which refuses CPUs up to 2.x).
//
//   cohort::train::SyncBatchNorm norm(run.comm(), 64);
//
// While training, every rank calls it alike, with at least one value a channel
// in all; the running statistics are the same on all ranks.  An error of the
// communicator is thrown, as LibTorch's are; Run::Backward and the loop's end
// tell it.  On a GPU the sums go through the host's memory; that has not run
// yet.  Thread-compatible; the communicator outlives it and its graphs.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  SyncBatchNormImpl(trainer::Comm& comm, int64_t channels);

  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor weight, bias;               // [channels]
  torch::Tensor running_mean, running_var;  // [channels]

 private:
  trainer::Comm& comm_;
};
TORCH_MODULE(SyncBatchNorm);

}  // namespace cohort::train
