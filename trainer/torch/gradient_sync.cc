#include "trainer/torch/gradient_sync.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "torch/types.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/torch/state_dict.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {
namespace {

using trainer::Buffer;
using trainer::GradientReducer;
using trainer::GradientShape;

absl::Status BroadcastState(const torch::nn::Module& module,
                            trainer::Comm& comm, absl::Duration patience) {
  if (comm.world() == 1) return absl::OkStatus();
  std::vector<Buffer> buffers;
  for (const NamedTensor& named : NamedTensors(module)) {
    if (named.tensor.numel() == 0) continue;
    COHORT_ASSIGN_OR_RETURN(const Buffer buffer, BufferOf(named));
    buffers.push_back(buffer);
  }
  return Annotate(comm.Broadcast(buffers, /*root=*/0, patience),
                  "copying rank 0's parameters");
}

}  // namespace

absl::StatusOr<std::unique_ptr<GradientSync>> GradientSync::Create(
    torch::nn::Module& module, trainer::Comm& comm,
    trainer::ReducerOptions options) {
  if (comm.allocates_on_device()) {
    return absl::InvalidArgumentError(
        "the communicator's memory is the GPU's, and gradients are views of it "
        "as CPU tensors: join without can_use_gpu");
  }
  COHORT_RETURN_IF_ERROR(BroadcastState(module, comm, options.patience));
  std::unique_ptr<GradientSync> sync(new GradientSync());
  std::vector<GradientShape> shapes;
  for (const auto& entry : module.named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    COHORT_ASSIGN_OR_RETURN(const Buffer buffer,
                            BufferOf({entry.key(), entry.value()}));
    shapes.push_back({entry.key(), buffer.count, buffer.dtype});
    sync->slots_.push_back({entry.value(), torch::Tensor()});
  }
  COHORT_ASSIGN_OR_RETURN(
      sync->reducer_,
      GradientReducer::Create(comm, std::move(shapes), options));
  COHORT_RETURN_IF_ERROR(CatchTorch([&sync] {
    for (size_t i = 0; i < sync->slots_.size(); ++i) {
      Slot& slot = sync->slots_[i];
      slot.view = torch::from_blob(
          sync->reducer_->gradient(i).data(), slot.parameter.sizes(),
          slot.parameter.options().requires_grad(false));
      slot.parameter.mutable_grad() = slot.view;
    }
    return absl::OkStatus();
  }));
  sync->Clear();
  return sync;
}

void GradientSync::Clear() {
  reducer_->Clear();
  for (Slot& slot : slots_) slot.parameter.mutable_grad() = slot.view;
}

absl::Status GradientSync::Reduce() {
  COHORT_RETURN_IF_ERROR(CatchTorch([this] {
    Reattach();
    return absl::OkStatus();
  }));
  return reducer_->Reduce();
}

void GradientSync::Reattach() {
  for (Slot& slot : slots_) {
    const torch::Tensor& grad = slot.parameter.grad();
    if (grad.defined() && grad.data_ptr() == slot.view.data_ptr()) continue;
    // Such as optimizer.zero_grad(), which drops gradients by default.
    if (grad.defined()) {
      slot.view.copy_(grad);
    } else {
      slot.view.zero_();
    }
    slot.parameter.mutable_grad() = slot.view;
  }
}

}  // namespace cohort::torch_adapter
