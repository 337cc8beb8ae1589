#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"

#include "common/status_macros.h"
#include "trainer/comm/comm.h"
#include "trainer/reducer.h"
#include "trainer/torch/gradient_sync.h"

namespace cohort::torch_adapter {

// A LibTorch module trained on a gang, each rank on its own samples: the
// DistributedDataParallel that LibTorch lacks in C++.
//
//   auto model = DistributedDataParallel<Net>::Create(net, session.comm());
//   for (...) {
//     model->ZeroGradients();
//     COHORT_RETURN_IF_ERROR(model->Backward(Loss(model->forward(x), y)));
//     optimizer.Step();
//   }
//
// In float16, whose range is small, with a trainer::LossScaler:
//
//     COHORT_RETURN_IF_ERROR(model->Backward(loss * scaler.scale()));
//     COHORT_ASSIGN_OR_RETURN(const bool is_finite, model->AllFinite());
//     if (is_finite) {
//       COHORT_RETURN_IF_ERROR(optimizer.Step(scaler.inverse_scale()));
//     }
//     COHORT_RETURN_IF_ERROR(scaler.Update(is_finite));
//
// bfloat16 needs none of that.  Adam keeps float32 masters of both.
//
//   DP-1: after Create all ranks hold rank 0's parameters and buffers.
//   DP-2: after Backward(kNow) all ranks hold the same gradients: the mean over
//         ranks of what each has added up since ZeroGradients.
//   DP-3: with a deterministic optimizer the parameters stay bit-equal.
//
// The module is on the CPU, or on the GPU of a session that was joined with
// can_use_gpu (OpenGpu); then the reduction of a bucket overlaps with the
// backward pass through the layers before it.
//
// Buffers, such as those of batch norm, are each rank's own after Create. Every
// rank calls Create and Backward(kNow) alike; a parameter that a rank's loss
// does not reach counts as zero.  Thread-compatible; the communicator outlives
// it.  The module may stay behind; its gradients go (~GradientSync).
template <typename Module>
class DistributedDataParallel {
 public:
  // Errors as GradientSync::Create.
  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Create(
      std::shared_ptr<Module> module, trainer::Comm& comm,
      trainer::ReducerOptions options = {}) {
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<GradientSync> sync,
                            GradientSync::Create(*module, comm, options));
    return std::unique_ptr<DistributedDataParallel>(
        new DistributedDataParallel(std::move(module), std::move(sync)));
  }

  Module& module() { return *module_; }

  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  // Instead of the optimizer's zero_grad(), which would drop the views.
  void ZeroGradients() { sync_->Clear(); }

  // Computes gradients of `loss`, adds them to what is there, and averages the
  // sum over the gang if told so.  Errors as GradientSync::Backward.
  absl::Status Backward(const torch::Tensor& loss, Sync sync = Sync::kNow) {
    return sync_->Backward(loss, sync);
  }

  // Waits until what was begun on the module's device is over; OK at once on
  // the CPU.  Before item() and cpu(), which have no deadline.  Errors as
  // GradientSync::Settle.
  absl::Status Settle() { return sync_->Settle(); }

  // The verdict for a LossScaler; as GradientSync::AllFinite.
  absl::StatusOr<bool> AllFinite() { return sync_->AllFinite(); }

 private:
  DistributedDataParallel(std::shared_ptr<Module> module,
                          std::unique_ptr<GradientSync> sync)
      : module_(std::move(module)), sync_(std::move(sync)) {}

  // Shared with the optimizer and all others that hold the module.
  const std::shared_ptr<Module> module_;
  const std::unique_ptr<GradientSync> sync_;
};

}  // namespace cohort::torch_adapter
