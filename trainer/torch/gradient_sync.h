#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/nn/module.h"

#include "trainer/comm/comm.h"
#include "trainer/reducer.h"

namespace cohort::torch_adapter {

// Ties a module's gradients to a gang: the type-free part of
// DistributedDataParallel.
//
// Gradients are views into the reducer's arena, so backward writes where the
// ranks reduce.  Thread-compatible; module and communicator must outlive it.
class GradientSync {
 public:
  // Copies rank 0's parameters and buffers to all ranks and gives every
  // parameter that wants one its gradient, zero.  Every rank calls it alike.
  // InvalidArgument names a parameter that cannot be reduced, or says that the
  // communicator's memory is the GPU's; else the communicator's errors.
  static absl::StatusOr<std::unique_ptr<GradientSync>> Create(
      torch::nn::Module& module, trainer::Comm& comm,
      trainer::ReducerOptions options);

  // Zeroes the gradients in place.
  void Clear();

  // Replaces the gradients by their mean over the gang.
  absl::Status Reduce();

 private:
  GradientSync() = default;

  // Puts a gradient that somebody replaced back into its place.
  void Reattach();

  struct Slot {
    torch::Tensor parameter;
    torch::Tensor view;  // into the arena
  };
  std::unique_ptr<trainer::GradientReducer> reducer_;
  std::vector<Slot> slots_;
};

}  // namespace cohort::torch_adapter
