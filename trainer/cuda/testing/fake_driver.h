#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"

#include "common/mutex.h"
#include "trainer/cuda/driver.h"
#include "trainer/cuda/testing/call_faults.h"

namespace cohort::trainer::cuda {

// What a kernel of the fake does: takes the arguments of a launch, as
// cuLaunchKernel gets them, and answers the work to do on the stream.
using FakeKernel = std::function<std::function<void()>(void** parameters)>;

// The CUDA driver as one process with one GPU sees it, over host memory: device
// addresses are real ones, each stream is a thread that works in order, events
// are done when their stream has come to them.  Memory that another fake opens
// through its handle is the same at another address, as between processes.
//
// Thread-safe, as the driver is.  Must outlive its table's users, but for what
// others have opened.
class FakeDriver {
 public:
  struct Options {
    int device_count = 1;
    int version = 13000;
    // Device 0's uuid is sixteen times this byte.
    char uuid_byte = 1;
    size_t memory_bytes = size_t{1} << 30;
  };

  explicit FakeDriver(Options options);
  FakeDriver() : FakeDriver(Options{}) {}
  ~FakeDriver();

  std::shared_ptr<const DriverTable> table() const { return table_; }
  CallFaults& faults() { return faults_; }

  // What is held now: nothing, after all was given back.
  size_t device_bytes() const;
  // Others' memory that is open here.
  size_t opened() const;
  int modules() const;
  size_t pinned_bytes() const;
  int streams() const;
  int events() const;
  int contexts() const;

  // How often memory was freed that another had open: undefined, as the driver
  // documents cuIpcOpenMemHandle.
  int misuses() const;

  // The kernels that modules have, by name.
  void AddKernel(const std::string& name, FakeKernel kernel);

  // For the fake NCCL: work on a stream, memory as cuMemAlloc gives it.
  static void Enqueue(Stream stream, std::function<void()> work);
  Result AllocateDevice(DevicePointer* memory, size_t bytes);
  Result FreeDevice(DevicePointer memory);

 private:
  void FillDeviceCalls(DriverTable& table);
  void FillMemoryCalls(DriverTable& table);
  void FillStreamCalls(DriverTable& table);
  void FillIpcCalls(DriverTable& table);
  void FillKernelCalls(DriverTable& table);
  void DropContext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct Block;

  const Options options_;
  CallFaults faults_;
  std::shared_ptr<const DriverTable> table_;
  mutable Mutex mutex_;
  // By first address: what was allocated here, and what others did.
  std::map<DevicePointer, std::shared_ptr<Block>> device_
      ABSL_GUARDED_BY(mutex_);
  std::map<DevicePointer, std::shared_ptr<Block>> opened_
      ABSL_GUARDED_BY(mutex_);
  // Bytes by first address.
  std::map<DevicePointer, size_t> pinned_ ABSL_GUARDED_BY(mutex_);
  size_t device_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<Event> events_ ABSL_GUARDED_BY(mutex_);  // not destroyed
  int contexts_ ABSL_GUARDED_BY(mutex_) = 0;
  int modules_ ABSL_GUARDED_BY(mutex_) = 0;
  int misuses_ ABSL_GUARDED_BY(mutex_) = 0;
  // Functions point to these.
  std::map<std::string, FakeKernel> kernels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::trainer::cuda
