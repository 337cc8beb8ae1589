#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/mutex.h"
#include "trainer/comm/comm.h"
#include "trainer/comm/owner_thread.h"
#include "trainer/cuda/device.h"
#include "trainer/cuda/driver.h"
#include "trainer/cuda/lookup.h"

namespace cohort::trainer {

// Between two looks at what a GPU does: at once for what takes microseconds,
// then by sleeps that stay short beside what they wait for.
class PollBackoff {
 public:
  PollBackoff();

  void Step(OwnerThread& owner);
  // True at first and then at every tenth look.
  bool IsDue() const { return looks_ % 10 == 0; }

  // How long to sleep when `elapsed` has passed: the wake-up included, what
  // ends meanwhile is seen late by an eighth of that at most, and by no more
  // than a millisecond.  Zero: not at all.
  static absl::Duration SleepAfter(absl::Duration elapsed);

 private:
  const absl::Duration began_;
  int looks_ = 0;
};

// One rank's GPU with the stream that its collectives run on, as its owner
// thread sees it: every call is the owner's own (NC-1).  Errors name rank and
// device.
class GpuStream {
 public:
  // Of GPU `ordinal` of those that this process sees.
  GpuStream(const Comm::Identity& identity, int ordinal);

  // Finds the driver and takes the GPU.
  absl::Status Open(OwnerThread& owner,
                    const cuda::Lookup<cuda::DriverTable>& driver);
  bool is_open() const { return device_ != nullptr; }
  const cuda::Device& device() const { return *device_; }
  const cuda::DriverTable& driver() const { return *driver_; }
  std::shared_ptr<const cuda::DriverTable> shared_driver() const {
    return driver_;
  }
  cuda::Stream handle() const { return stream_; }

  // Device memory, not zeroed; given back through device().Free.
  // RESOURCE_EXHAUSTED says how much is free.
  absl::StatusOr<cuda::DevicePointer> Allocate(OwnerThread& owner,
                                               size_t bytes);
  // Host memory that the GPU copies from and to, at least `bytes`; the one
  // before it is given back.
  absl::StatusOr<std::byte*> ReservePinned(OwnerThread& owner, size_t bytes);
  // Enqueues a copy; each address is the GPU's or pinned.
  absl::Status Copy(OwnerThread& owner, void* to, const void* from,
                    size_t bytes);
  // Returns when it is done.
  absl::Status Zero(OwnerThread& owner, std::span<std::byte> memory);

  // Polls until all that was enqueued is over, asking `look` now and then
  // whether to go on; ABORTED soon after the owner ends.
  absl::Status Await(OwnerThread& owner,
                     absl::FunctionRef<absl::Status()> look);
  absl::Status Await(OwnerThread& owner);
  // The same to the very end; a stream that never ends is the watch's.
  absl::Status Drain(OwnerThread& owner);

  // After Drain.
  void Close(OwnerThread& owner);

  // OK for kSuccess.
  absl::Status Check(cuda::Result result, absl::string_view call) const;
  // "rank 3 on GPU-... (NVIDIA H200)".  From any thread.
  std::string Place() const;

 private:
  void FreePinned(OwnerThread& owner);
  // Polls the stream, asking `look` between.
  absl::Status Poll(OwnerThread& owner,
                    absl::FunctionRef<absl::Status(const PollBackoff&)> look);

  const Comm::Identity identity_;
  const int ordinal_;
  std::shared_ptr<const cuda::DriverTable> driver_;
  std::unique_ptr<cuda::Device> device_;
  cuda::Stream stream_ = nullptr;
  cuda::Event event_ = nullptr;
  std::byte* pinned_ = nullptr;
  size_t pinned_bytes_ = 0;
  mutable Mutex place_mutex_;
  std::string device_name_ ABSL_GUARDED_BY(place_mutex_);
};

}  // namespace cohort::trainer
