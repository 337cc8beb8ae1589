#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/nn/module.h"

#include "trainer/adam.h"
#include "trainer/safetensors.h"
#include "trainer/torch/foreach_adam.h"
#include "trainer/torch/state_dict.h"

namespace cohort::torch_adapter {

// torch.optim.Adam over a module's parameters, with state that goes to a
// checkpoint and comes back bit by bit: on the CPU in one pass over memory, on
// a device by operations over all tensors together.
//
// Of a parameter in 16 bits the state is in float32, and so is a copy of it,
// the master, which is updated and then rounded into the parameter: alone it
// would lose most updates.  Masters are taken from the parameters at the first
// Step or State, or come from Load; who changes parameters otherwise later is
// not heard.
//
// Thread-compatible; keeps the parameters alive, not the module.
class Adam {
 public:
  // InvalidArgument for a parameter that is neither float32, float64, float16
  // nor bfloat16, or not dense; INTERNAL is LibTorch's error,
  // such as a lack of memory for the state.
  static absl::StatusOr<std::unique_ptr<Adam>> Create(
      const torch::nn::Module& module, const trainer::AdamOptions& options);

  // Updates every parameter that has a gradient, also one that is zero; on a
  // device that is begun.  Gradients are those of a loss that was multiplied by
  // 1 / gradient_scale: LossScaler::inverse_scale(), where all of them are
  // finite (GradientSync::AllFinite).
  //
  // InvalidArgument names a gradient that is not as its parameter is; nothing
  // is changed then.  INTERNAL is LibTorch's error; parameters and state are
  // undefined then.
  absl::Status Step(float gradient_scale = 1);

  int64_t step() const { return step_; }
  // From the next step on.
  void SetLearningRate(double lr) { options_.lr = lr; }

  // "exp_avg.<parameter>", "exp_avg_sq.<parameter>", of one in 16 bits
  // "master.<parameter>", and "step"; valid until the next Step or Load. Errors
  // as HostTensors::Add.
  absl::StatusOr<HostTensors> State();

  // InvalidArgument or NotFound names what does not fit; the state is undefined
  // then.
  absl::Status Load(const trainer::SafetensorsFile& file);

 private:
  struct Slot {
    std::string name;
    torch::Tensor parameter;
    torch::Tensor exp_avg;
    torch::Tensor exp_avg_sq;
    torch::Tensor master;  // of a parameter in 16 bits, once it is taken
    int64_t step = 0;      // those in which it had a gradient
  };

  explicit Adam(const trainer::AdamOptions& options) : options_(options) {}

  std::string Place() const;  // "cuda:0: ", for errors
  absl::Status CheckGradients() const;
  absl::Status TakeMasters();
  void UpdateOnCpu(const Slot& slot, float gradient_scale) const;
  void UpdateOnDevice(float gradient_scale) const;

  trainer::AdamOptions options_;
  std::vector<Slot> slots_;
  int64_t step_ = 0;
  std::vector<int64_t> slot_steps_;  // as State gave them
};

}  // namespace cohort::torch_adapter
