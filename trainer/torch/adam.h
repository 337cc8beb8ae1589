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
// Thread-compatible; keeps the parameters alive, not the module.
class Adam {
 public:
  // InvalidArgument for a parameter that is neither float32 nor float64.
  static absl::StatusOr<std::unique_ptr<Adam>> Create(
      const torch::nn::Module& module, const trainer::AdamOptions& options);

  // Updates every parameter that has a gradient, also one that is zero; on a
  // device that is begun.  InvalidArgument names a gradient that cannot be
  // read; parameters before it are updated then.  INTERNAL is LibTorch's error.
  absl::Status Step();

  int64_t step() const { return step_; }

  // "exp_avg.<parameter>", "exp_avg_sq.<parameter>" and "step"; valid until the
  // next Step or Load.
  absl::StatusOr<HostTensors> State() const;

  // InvalidArgument or NotFound names what does not fit; the state is undefined
  // then.
  absl::Status Load(const trainer::SafetensorsFile& file);

 private:
  struct Slot {
    std::string name;
    torch::Tensor parameter;
    torch::Tensor exp_avg;
    torch::Tensor exp_avg_sq;
  };

  explicit Adam(const trainer::AdamOptions& options) : options_(options) {}

  // A slot on the CPU.
  template <typename T>
  void Update(Slot& slot, const torch::Tensor& gradient);
  absl::Status UpdateTogether(const AdamTensors& tensors) const;

  const trainer::AdamOptions options_;
  std::vector<Slot> slots_;
  int64_t step_ = 0;
};

}  // namespace cohort::torch_adapter
