#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "torch/types.h"

#include "common/mutex.h"
#include "trainer/reducer.h"
#include "trainer/torch/device_marks.h"

namespace cohort::torch_adapter {

// How far a device has come with a backward pass, bucket by bucket: what
// gradient hooks tell goes in, what GradientReducer::ReduceAsReady awaits comes
// out.
//
//   BP-1: a bucket is over when every write to its gradients that was told, or
//         was begun on the caller's stream before End, is over.
//   BP-2: its mark is set as soon as its last gradient is told, so that it is
//         not held up by the layers before it.
//   BP-3: what is awaited in which order is the caller's; nothing here depends
//         on the order in which gradients come.
//
// One thread calls Begin, End or Abandon, and what waits.  Hooks may run on
// threads of autograd's and, of a pass that failed, still do beside the next
// one: backward() returns behind all hooks only where it succeeds.  Such a hook
// does no harm: what it tells is written by then, and who writes it again tells
// it again, which moves the mark.
class BackwardPass {
 public:
  // `buckets` as GradientReducer has them, `gradients` in all.
  BackwardPass(std::span<const trainer::Bucket> buckets, size_t gradients,
               std::unique_ptr<DeviceMarks> marks);

  // A pass begins, and its gradients will be averaged.
  void Begin();
  // A hook's: this one was accumulated on the calling thread's current stream.
  // Ignored outside of a pass, where gradients are only added up.
  void OnGradient(size_t gradient);
  // It is written once more after its hook, on the caller's current stream:
  // copied out of `from`, or zeroed where that is undefined.
  void OnLateWrite(size_t gradient, const torch::Tensor& from);
  // All of the pass is begun, and the caller's current stream is behind it.
  // Marks the buckets that have gradients no hook told of.
  void End();
  // Drops a pass that failed.
  void Abandon();

  // Waits for a bucket of the pass that ended; errors as AwaitMark.
  absl::Status Await(size_t bucket, const DeviceWait& wait) const;
  // Waits for all that was begun on the caller's current stream.
  absl::Status Settle(const DeviceWait& wait);
  // And for what hooks of a pass that failed marked on other streams.
  absl::Status Drain(const DeviceWait& wait);

 private:
  struct Progress {
    size_t gradients = 0;
    size_t missing = 0;
    int64_t stream = 0;  // of its first gradient in this pass
    // One mark is behind one stream's work: where a bucket's gradients come
    // from several it is set at the end.
    bool is_mixed = false;
    bool is_marked = false;
  };

  const size_t count_;             // of buckets, whose marks are 0 ...
  std::vector<size_t> bucket_of_;  // by gradient
  // Set while a pass is open under mutex_, looked at while none is.
  const std::unique_ptr<DeviceMarks> marks_;

  Mutex mutex_;
  std::vector<Progress> buckets_ ABSL_GUARDED_BY(mutex_);
  std::vector<bool> is_told_ ABSL_GUARDED_BY(mutex_);  // by gradient
  bool is_open_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::torch_adapter
