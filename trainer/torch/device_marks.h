#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "torch/types.h"

#include "common/clock.h"

namespace cohort::torch_adapter {

// Marks in what a device does, which is begun now and over later.  Numbered by
// the caller; one that is set again stands for the later work alone.
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
};

// LibTorch's events, by its interface to devices of any kind: nothing here
// needs CUDA's headers, and a LibTorch for CPUs compiles it too.
std::unique_ptr<DeviceMarks> MakeDeviceMarks(torch::Device device);

// Returns when what is before `mark` is over.  INTERNAL is the device's error;
// DEADLINE_EXCEEDED after `patience`, naming the device and `what`, "the
// backward pass": a device that does not answer must not hold a rank for ever.
absl::Status AwaitMark(const DeviceMarks& marks, size_t mark,
                       absl::string_view what, const Clock& clock,
                       absl::Duration patience);

}  // namespace cohort::torch_adapter
