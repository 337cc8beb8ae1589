#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "torch/nn/module.h"
#include "torch/types.h"

#include "common/real_clock.h"
#include "trainer/comm/comm.h"
#include "trainer/reducer.h"
#include "trainer/torch/backward_pass.h"
#include "trainer/torch/device_marks.h"
#include "trainer/torch/state_dict.h"

namespace cohort::torch_adapter {

// What Backward does about the other ranks.
enum class Sync {
  kNow,    // average the gradients over the gang
  kLater,  // add them up locally; PyTorch's no_sync()
};

// How long memory is kept for a device that still works on it when all goes: a
// pass of most models, and no more of a restart that waits for this rank.
inline constexpr absl::Duration kDrainTimeout = absl::Seconds(5);

// Ties a module's gradients to a gang: the type-free part of
// DistributedDataParallel.
//
// Gradients are views into the reducer's arena, so backward writes where the
// ranks reduce.  On a device a pass is begun, not run: hooks set a mark behind
// the last gradient of each bucket, and buckets are reduced as their marks are
// passed, while the device goes on with the layers before.  That needs a pass
// on another stream than the legacy default one, which NCCL's stream is ordered
// with; OpenGpu makes one current.
//
// Thread-compatible; the communicator must outlive it.
class GradientSync {
 public:
  // Copies rank 0's parameters and buffers to all ranks and gives every
  // parameter that wants one its gradient, zero.  Every rank calls it alike.
  //
  // The module is wholly on the CPU or on a device: the one whose memory `comm`
  // allocates, or with a `comm` of the host's any, through whose memory all is
  // then copied (StagedComm).  InvalidArgument names a parameter that cannot be
  // reduced, or the devices on which the two are where these differ; INTERNAL
  // is LibTorch's error; else the communicator's errors.
  //
  // `marks` follow the module's device: LibTorch's events, or a test's, which
  // also make the CPU one.
  static absl::StatusOr<std::unique_ptr<GradientSync>> Create(
      torch::nn::Module& module, trainer::Comm& comm,
      trainer::ReducerOptions options,
      std::unique_ptr<DeviceMarks> marks = nullptr);

  // Waits for what was begun on the calling thread's stream, kDrainTimeout at
  // most: the gradients' memory goes with the communicator, and after an error,
  // such as a peer's death, the device may still write to it.  (Backward itself
  // tells such an error at once.)  What autograd's threads begin later still,
  // of a pass in which it failed, is not covered.  Parameters lose the
  // gradients that lie there.
  ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Zeroes the gradients in place.  Backward tells an error.
  void Clear();

  // Computes gradients of `loss`, adds them to what is there, and replaces the
  // sum by its mean over the gang if told so.  A gradient that somebody
  // replaced meanwhile counts as it is, one that was dropped as what this pass
  // adds.  A parameter that no rank has used since Clear has no gradient then,
  // so that an optimizer leaves it alone; not so on a device, where it is zero.
  // INTERNAL is LibTorch's error, DEADLINE_EXCEEDED a device that does
  // not answer within kPassTimeout; else the communicator's, also while the
  // device is waited for.
  //
  // On a device a pass that is not averaged, in a gang of one or under kLater,
  // is only begun: Settle.
  absl::Status Backward(const torch::Tensor& loss, Sync sync);

  // Returns when what the calling thread began on the module's device is over;
  // at once on the CPU.  Call it before a number is read on the host (item(),
  // cpu()), which waits without a deadline.  INTERNAL is the device's error,
  // DEADLINE_EXCEEDED one that does not answer within kPassTimeout, ABORTED
  // the communicator's while it is waited for.
  absl::Status Settle();

  // Copies rank 0's buffers of the module, such as the running statistics of a
  // batch norm, to all ranks: what PyTorch's broadcast_buffers does before each
  // forward pass is needed only where they are read.  Every rank calls it.
  // Errors as Settle and the communicator's.
  absl::Status ShareBuffers(const torch::nn::Module& module);

  // Whether gradients were added up (kLater) since they were averaged or
  // cleared.
  bool is_accumulating() const { return is_accumulating_; }

  // Whether no gradient is infinite or NaN: the verdict for a LossScaler, the
  // same on all ranks behind Backward(kNow), since it is taken of what all hold
  // (LS-1).  On a device it waits as Settle does; errors as there.
  absl::StatusOr<bool> AllFinite();

 private:
  struct Slot {
    torch::Tensor parameter;
    torch::Tensor view;  // into the arena
  };
  // Of autograd's node that adds up a parameter's gradient, which lives as long
  // as somebody holds it.
  struct Hooks;

  GradientSync(trainer::Comm& comm, torch::Device device)
      : comm_(comm), device_(device) {}

  // Rank 0's to all, behind what was begun on the device.
  absl::Status BroadcastTensors(const std::vector<NamedTensor>& tensors);
  void Attach();
  void AddHooks();
  // Averages on the CPU, together with which parameters are used.
  absl::Status Reduce();
  // Puts a gradient that somebody replaced back into its place.
  void Reattach();
  // For the module's device, with an eye on the gang.
  DeviceWait Wait() const;
  // `status` of the module's device; names the rank.
  absl::Status OfRank(const absl::Status& status) const;

  // The one that reaches the module's memory.
  trainer::Comm& comm_of_module() { return staged_ ? *staged_ : comm_; }

  trainer::Comm& comm_;
  const torch::Device device_;  // the module's
  const MachineClock clock_;
  // Of a module on a device whose gang's communicator is the host's.
  std::unique_ptr<trainer::Comm> staged_;
  std::unique_ptr<trainer::GradientReducer> reducer_;
  std::vector<Slot> slots_;
  absl::Status cleared_;
  bool is_accumulating_ = false;
  // On the CPU, by slot: 1 where a gradient was told since Clear.
  std::span<float> used_;
  absl::Duration timeout_;  // for the other ranks
  // Of a module on a device; null on the CPU.  Shared with the hooks, which may
  // outlive this.
  std::shared_ptr<BackwardPass> pass_;
  torch::Tensor arena_;  // all gradients, as bytes
  std::shared_ptr<Hooks> hooks_;
};

}  // namespace cohort::torch_adapter
