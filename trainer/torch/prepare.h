#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"
#include "torch/optim/optimizer.h"
#include "torch/types.h"

#include "trainer/loader.h"
#include "trainer/torch/gradient_sync.h"
#include "trainer/torch/state_dict.h"
#include "trainer/train/backend.h"
#include "trainer/train/part.h"
#include "trainer/train/run.h"

// LibTorch's modules and optimizers as parts of a run: what Run::Prepare and
// Run::Backward do with them.  A program that includes this trains on LibTorch;
// before its loop the process is readied (process.h) and the GPU that it asks
// for is opened.
namespace cohort::train {

// A module in a run; the loop owns neither.
class ModelPart final : public Part {
 public:
  ModelPart(std::string name, std::shared_ptr<torch::nn::Module> module)
      : Part(std::move(name)), module_(std::move(module)) {}

  // Moves it to the device, restores it, gives all ranks rank 0's, and ties its
  // gradients to the gang.
  absl::Status Open(Run& run);

  const torch::nn::Module& module() const { return *module_; }
  torch_adapter::GradientSync& sync() { return *sync_; }

  absl::StatusOr<trainer::CheckpointFile> Save() override;
  absl::Status Settle() override { return sync_->Settle(); }
  // Rank 0's buffers, such as the statistics of a batch norm.
  bool IsBetween() const override { return sync_->is_accumulating(); }
  absl::Status Share() override { return sync_->ShareBuffers(*module_); }

 private:
  const std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<torch_adapter::GradientSync> sync_;
  torch_adapter::HostTensors saved_;  // of the last Save
};

// An optimizer in a run.
class OptimizerPart : public Part {
 public:
  using Part::Part;
  virtual absl::Status Step() = 0;
  virtual absl::Status Load(const trainer::SafetensorsFile& file) = 0;
  // Which one it is: what another one saved is not loaded.
  virtual std::string kind() const = 0;
  virtual torch::optim::Optimizer& optimizer() = 0;
};

// What Prepare makes of a module: called as that is.
template <typename M>
class Model {
 public:
  explicit Model(std::shared_ptr<M> module) : module_(std::move(module)) {}

  template <typename... Arguments>
  auto operator()(Arguments&&... arguments) {
    return module_->forward(std::forward<Arguments>(arguments)...);
  }
  M* operator->() const { return module_.get(); }
  M& operator*() const { return *module_; }

 private:
  // Shared: with the run and with the loop's own holder.
  std::shared_ptr<M> module_;
};

// What Prepare makes of an optimizer.  Errors are the run's.
class Optimizer {
 public:
  Optimizer(Run& run, std::shared_ptr<OptimizerPart> part)
      : run_(run), part_(std::move(part)) {}

  // Of all modules of the run; their gradients stay where the ranks reduce.
  void zero_grad();
  void step();
  // Of all parameter groups, from the next step on: for a schedule
  // (trainer/train/schedule.h).
  void SetLearningRate(double rate);
  // LibTorch's own.  Of an Adam that is ours only the learning rate is read
  // again.
  torch::optim::Optimizer* operator->() const { return &part_->optimizer(); }

 private:
  Run& run_;
  std::shared_ptr<OptimizerPart> part_;  // shared with the run
};

void PrepareModule(Run& run, std::shared_ptr<torch::nn::Module> module);
// torch::optim::Adam without weight decay and amsgrad, over all parameters of a
// prepared module, becomes ours (trainer/torch/adam.h), which computes the same
// in one pass over memory; others are LibTorch's.
Optimizer PrepareOptimizer(Run& run,
                           std::unique_ptr<torch::optim::Optimizer> optimizer);

// Run::Prepare(net), a module's holder.
template <typename M>
Model<M> PrepareIn(Run& run, const torch::nn::ModuleHolder<M>& holder) {
  PrepareModule(run, holder.ptr());
  return Model<M>(holder.ptr());
}
template <std::derived_from<torch::nn::Module> M>
Model<M> PrepareIn(Run& run, const std::shared_ptr<M>& module) {
  PrepareModule(run, module);
  return Model<M>(module);
}
// Run::Prepare(torch::optim::SGD(net->parameters(), 0.1)).
template <std::derived_from<torch::optim::Optimizer> O>
Optimizer PrepareIn(Run& run, O&& optimizer) {
  return PrepareOptimizer(run, std::make_unique<O>(std::move(optimizer)));
}

// Computes gradients of `loss`, adds them to what is there, and replaces the
// sum by its mean over the gang, unless told kLater.  FailedPrecondition when
// the run has not prepared exactly one module; errors of
// GradientSync::Backward.
absl::Status BackwardIn(Run& run, const torch::Tensor& loss,
                        torch_adapter::Sync sync = torch_adapter::Sync::kNow);

// What the run's modules are on.
torch::Device Device();
// A batch's inputs there, each of that shape: [size, shape...].  On the CPU it
// borrows the batch.
torch::Tensor Inputs(const trainer::Batch& batch,
                     const std::vector<int64_t>& shape);
// [size], int64.
torch::Tensor Labels(const trainer::Batch& batch);

// Copies the weights of the first module that the checkpoint's run had prepared
// into `module`.  Errors as ReadCheckpoint and LoadStateDict.
absl::Status LoadModel(const std::string& checkpoint,
                       const torch::nn::Module& module);

Backend* TorchBackend();
// In the programs that include this.
inline const bool kTorchIsBackend = SetProgramBackend(TorchBackend());

}  // namespace cohort::train
