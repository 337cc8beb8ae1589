#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torch/types.h"

#include "common/clock.h"

namespace cohort::torch_adapter {

// Marks in what a device does, which is begun now and over later, and whose
// memory it does it in.  Marks are numbered by the caller; one that is set
// again stands for the later work alone.
//
// An interface, so that what stands on it is tested where there is no device.
// Errors are thrown, as LibTorch does (CatchTorch).  Thread-compatible.
class DeviceMarks {
 public:
  virtual ~DeviceMarks() = default;

  // "cuda:0"
  virtual std::string device() const = 0;
  // The queue on which the calling thread begins work now.
  virtual int64_t CurrentStream() const = 0;
  // Sets `mark` behind all that was begun on it.
  virtual void Set(size_t mark) = 0;
  // Whether what is before `mark` is over; so it is of one that was never set.
  virtual bool IsOver(size_t mark) const = 0;

  // The device whose memory this is, as the driver says: "cuda:1".
  virtual std::string OwnerOf(std::byte* memory) const = 0;
  // What was begun on the current stream uses `tensor`: its memory is not given
  // out again before that is over, on whatever stream it was allocated.
  virtual void Keep(const torch::Tensor& tensor) const = 0;
};

// How long a device may take over what was begun on it, a backward pass, before
// it counts as one that no longer answers.
inline constexpr absl::Duration kPassTimeout = absl::Minutes(5);

// LibTorch's events, by its interface to devices of any kind: nothing here
// needs CUDA's headers, and a LibTorch for CPUs compiles it too.
std::unique_ptr<DeviceMarks> MakeDeviceMarks(torch::Device device);

// How somebody waits for a device.
struct DeviceWait {
  const Clock& clock;
  absl::Duration timeout;
  // Asked every kLookInterval while the device is busy; its error ends the
  // wait.  Such as Comm::CheckPeers: who waits for a device does not hear
  // otherwise that the epoch is revoked or a peer gone.
  std::function<absl::Status()> look = nullptr;
};
// A look costs a system call for each rank of the node, and what it finds has a
// second to be acted on.
inline constexpr absl::Duration kLookInterval = absl::Milliseconds(5);

// Returns when what is before `mark` is over.  Errors name the device and
// `what`, "the backward pass".  INTERNAL is the device's; DEADLINE_EXCEEDED
// after wait.timeout: a device that does not answer must not hold a rank for
// ever; else the look's.
absl::Status AwaitMark(const DeviceMarks& marks, size_t mark,
                       absl::string_view what, const DeviceWait& wait);

// The same for all that was begun on the calling thread's stream: sets `mark`
// behind it.
absl::Status AwaitBegun(DeviceMarks& marks, size_t mark, absl::string_view what,
                        const DeviceWait& wait);

}  // namespace cohort::torch_adapter
