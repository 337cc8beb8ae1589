#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/mutex.h"
#include "trainer/batch_memory.h"
#include "trainer/cuda/device.h"

namespace cohort::trainer {

// Batches in memory of the host that the driver has pinned: a GPU copies them
// by itself, while the thread that asked for it goes on, and no copy into pages
// of the driver's own comes before (cuMemcpyAsync in the driver API's
// "API synchronization behavior").
//
//   PM-1: memory is given back only after `await_copies`, which returns when
//   all
//         copies that were begun are over.  What it cannot vouch for, since the
//         GPU has failed or hangs, is left to the end of the process: the
//         driver would wait for the copies, or they would read what is
//         another's.
//
// Pinning is for speed.  Where the machine has no more memory to pin, what
// comes is the process's own, which the same calls copy, only slower, and one
// line in the log says so.  All other failures are errors.
class PinnedMemory final : public BatchMemory {
 public:
  // `device` must outlive it.  `await_copies` is called from any thread.
  PinnedMemory(const cuda::Device& device,
               std::function<absl::Status()> await_copies)
      : device_(device), await_copies_(std::move(await_copies)) {}

  // UNAVAILABLE, naming device and call, when the GPU is lost.
  absl::StatusOr<std::byte*> Allocate(size_t bytes) override;
  void Free(std::byte* memory) override;

 private:
  // Whether it was pinned.
  bool Forget(std::byte* memory);

  const cuda::Device& device_;
  const std::function<absl::Status()> await_copies_;

  Mutex mutex_;
  std::set<std::byte*> pinned_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> has_warned_ = false;
};

}  // namespace cohort::trainer
