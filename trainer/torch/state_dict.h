#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "torch/nn/module.h"

#include "trainer/comm/comm.h"
#include "trainer/safetensors.h"

// Between LibTorch tensors and plain buffers.  Tensors are dense, else
// InvalidArgument names them; in files they are row-major, whatever their
// strides (channels_last) are.  Those of a device go through the
// host's memory, behind what was begun on the calling thread's stream, for
// which a device has kPassTimeout (DEADLINE_EXCEEDED).
namespace cohort::torch_adapter {

// A parameter or a buffer, by the name that Python's state_dict() gives it.
struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// All parameters, then all buffers, in registration order.
std::vector<NamedTensor> NamedTensors(const torch::nn::Module& module);

// The tensor's memory as a file's entry; valid as long as its storage.
// InvalidArgument also for one that is not on the CPU or not contiguous, and
// for a type that a file cannot hold: these are float32, float64, float16,
// bfloat16, int32, int64, uint8, bool.
absl::StatusOr<trainer::TensorView> ViewOf(const NamedTensor& named);
// As a communicator's buffer, also of its device: float32, float64, float16,
// bfloat16, int32, int64, in the order of their memory: strides are alike on
// all ranks.  InvalidArgument for one that has gaps or overlaps.  INTERNAL is
// LibTorch's error, of a tensor without memory.
absl::StatusOr<trainer::Buffer> BufferOf(const NamedTensor& named);

// Tensors as a file's entries: contiguous ones on the CPU as they lie there,
// valid as long as their storage, of others a copy, which this holds.
class HostTensors {
 public:
  // INTERNAL is LibTorch's error while it copies; else as ViewOf.
  absl::Status Add(const NamedTensor& named);
  void Add(trainer::TensorView view) { views_.push_back(std::move(view)); }

  // In the order in which they were added.
  const std::vector<trainer::TensorView>& views() const { return views_; }

 private:
  std::vector<trainer::TensorView> views_;
  std::vector<torch::Tensor> copies_;
};

// What Python's safetensors.torch.save_file(module.state_dict()) would write.
absl::StatusOr<HostTensors> StateDict(const torch::nn::Module& module);

// Copies a file's tensors into the module.  Strict, as PyTorch is by default:
// InvalidArgument names the tensors that are missing, unknown, or of another
// type or shape; the module is unchanged then.
absl::Status LoadStateDict(const trainer::SafetensorsFile& file,
                           const torch::nn::Module& module);

// Copies `source`'s bytes into `target`.  InvalidArgument when type or shape
// differ; unchanged then.
absl::Status CopyInto(const trainer::TensorView& source,
                      const NamedTensor& target);

}  // namespace cohort::torch_adapter
