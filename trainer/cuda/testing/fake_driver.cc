#include "trainer/cuda/testing/fake_driver.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

namespace cohort::trainer::cuda {
namespace {

constexpr size_t kAlignment = 512;  // cuMemAlloc's is 256 at least

// Answers what a test chose for the call, if it did.
#define COHORT_FAKE_ENTER(faults, call) \
  if (const auto chosen = (faults).Enter(call)) return *chosen

// A stream: one thread, one queue.
class FakeStream {
 public:
  FakeStream() : thread_([this] { Run(); }) {}
  ~FakeStream() {
    {
      MutexLock lock(mutex_);
      ending_ = true;
      changed_.SignalAll();
    }
    thread_.join();
  }

  void Push(std::function<void()> work) {
    MutexLock lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.SignalAll();
  }

 private:
  void Run() {
    for (;;) {
      std::function<void()> work;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !ending_) changed_.Wait(mutex_);
        if (queue_.empty()) return;
        work = std::move(queue_.front());
        queue_.pop_front();
      }
      work();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the others
};

// Counts, so that an event that is recorded again is done with its last record.
struct FakeEvent {
  std::atomic<int> recorded{0};
  std::atomic<int> done{0};
};

FakeStream* Of(Stream stream) { return reinterpret_cast<FakeStream*>(stream); }
// Shared with the stream's queue: an event may be destroyed before it is done.
using SharedEvent = std::shared_ptr<FakeEvent>;
SharedEvent* Of(Event event) { return reinterpret_cast<SharedEvent*>(event); }

std::byte* Address(DevicePointer pointer) {
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(pointer));
}

bool Contains(const std::map<DevicePointer, size_t>& blocks,
              DevicePointer address) {
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return false;
  --after;
  return address < after->first + after->second;
}

void* NewBlock(size_t bytes) {
  void* const memory = std::aligned_alloc(
      kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  // As real memory is: not what anybody hoped for.
  if (memory != nullptr) std::memset(memory, 0xAB, bytes);
  return memory;
}

}  // namespace

FakeDriver::FakeDriver(Options options) : options_(options) {
  auto table = std::make_shared<DriverTable>();
  FillDeviceCalls(*table);
  FillMemoryCalls(*table);
  FillStreamCalls(*table);
  table_ = std::move(table);
}

FakeDriver::~FakeDriver() {
  MutexLock lock(mutex_);
  for (const auto& [address, bytes] : device_) std::free(Address(address));
  for (const auto& [address, bytes] : pinned_) std::free(Address(address));
  for (const Event event : events_) delete Of(event);
}

size_t FakeDriver::device_bytes() const {
  MutexLock lock(mutex_);
  return device_bytes_;
}
size_t FakeDriver::pinned_bytes() const {
  MutexLock lock(mutex_);
  size_t bytes = 0;
  for (const auto& [address, size] : pinned_) bytes += size;
  return bytes;
}
int FakeDriver::streams() const {
  MutexLock lock(mutex_);
  return streams_;
}
int FakeDriver::events() const {
  MutexLock lock(mutex_);
  return static_cast<int>(events_.size());
}
int FakeDriver::contexts() const {
  MutexLock lock(mutex_);
  return contexts_;
}

void FakeDriver::Enqueue(Stream stream, std::function<void()> work) {
  Of(stream)->Push(std::move(work));
}

Result FakeDriver::AllocateDevice(DevicePointer* memory, size_t bytes) {
  MutexLock lock(mutex_);
  if (bytes == 0) return kInvalidValue;
  if (device_bytes_ + bytes > options_.memory_bytes) return kOutOfMemory;
  *memory = reinterpret_cast<uintptr_t>(NewBlock(bytes));
  device_[*memory] = bytes;
  device_bytes_ += bytes;
  return kSuccess;
}

Result FakeDriver::FreeDevice(DevicePointer memory) {
  MutexLock lock(mutex_);
  const auto found = device_.find(memory);
  if (found == device_.end()) return kInvalidValue;
  device_bytes_ -= found->second;
  device_.erase(found);
  std::free(Address(memory));
  return kSuccess;
}

void FakeDriver::FillDeviceCalls(DriverTable& t) {
  t.cuInit = [this](unsigned) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuInit");
    return kSuccess;
  };
  t.cuDriverGetVersion = [this](int* version) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuDriverGetVersion");
    *version = options_.version;
    return kSuccess;
  };
  t.cuGetErrorName = [](Result result, const char** text) -> Result {
    switch (result) {
      case kOutOfMemory:
        *text = "CUDA_ERROR_OUT_OF_MEMORY";
        return kSuccess;
      case kEccUncorrectable:
        *text = "CUDA_ERROR_ECC_UNCORRECTABLE";
        return kSuccess;
      case kIllegalAddress:
        *text = "CUDA_ERROR_ILLEGAL_ADDRESS";
        return kSuccess;
      default:
        return kInvalidValue;
    }
  };
  t.cuGetErrorString = [](Result result, const char** text) -> Result {
    if (result != kOutOfMemory) return kInvalidValue;
    *text = "out of memory";
    return kSuccess;
  };
  t.cuDeviceGetCount = [this](int* count) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuDeviceGetCount");
    *count = options_.device_count;
    return kSuccess;
  };
  t.cuDeviceGet = [this](DeviceHandle* device, int ordinal) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuDeviceGet");
    *device = ordinal;
    return kSuccess;
  };
  t.cuDeviceGetName = [this](char* name, int size, DeviceHandle) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuDeviceGetName");
    std::strncpy(name, "Fake GPU", size);
    return kSuccess;
  };
  t.cuDeviceGetUuid = [this](Uuid* uuid, DeviceHandle device) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuDeviceGetUuid");
    std::memset(uuid->bytes, options_.uuid_byte + device, sizeof(uuid->bytes));
    return kSuccess;
  };
  t.cuDevicePrimaryCtxRetain = [this](Context* context, DeviceHandle) {
    COHORT_FAKE_ENTER(faults_, "cuDevicePrimaryCtxRetain");
    *context = reinterpret_cast<Context>(this);
    MutexLock lock(mutex_);
    ++contexts_;
    return kSuccess;
  };
  t.cuDevicePrimaryCtxRelease = [this](DeviceHandle) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuDevicePrimaryCtxRelease");
    MutexLock lock(mutex_);
    --contexts_;
    return kSuccess;
  };
  t.cuCtxSetCurrent = [this](Context) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuCtxSetCurrent");
    return kSuccess;
  };
}

void FakeDriver::FillMemoryCalls(DriverTable& t) {
  t.cuMemGetInfo = [this](size_t* free, size_t* total) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemGetInfo");
    MutexLock lock(mutex_);
    *free = options_.memory_bytes - device_bytes_;
    *total = options_.memory_bytes;
    return kSuccess;
  };
  t.cuMemAlloc = [this](DevicePointer* memory, size_t bytes) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemAlloc");
    return AllocateDevice(memory, bytes);
  };
  t.cuMemFree = [this](DevicePointer memory) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemFree");
    return FreeDevice(memory);
  };
  t.cuMemHostAlloc = [this](void** memory, size_t bytes, unsigned) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemHostAlloc");
    MutexLock lock(mutex_);
    *memory = NewBlock(bytes);
    pinned_[reinterpret_cast<uintptr_t>(*memory)] = bytes;
    return kSuccess;
  };
  t.cuMemFreeHost = [this](void* memory) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemFreeHost");
    MutexLock lock(mutex_);
    if (pinned_.erase(reinterpret_cast<uintptr_t>(memory)) == 0) {
      return kInvalidValue;
    }
    std::free(memory);
    return kSuccess;
  };
  t.cuMemcpyAsync = [this](DevicePointer to, DevicePointer from, size_t bytes,
                           Stream stream) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemcpyAsync");
    Enqueue(stream, [=] { std::memcpy(Address(to), Address(from), bytes); });
    return kSuccess;
  };
  t.cuMemsetD8Async = [this](DevicePointer to, unsigned char value,
                             size_t bytes, Stream stream) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemsetD8Async");
    Enqueue(stream, [=] { std::memset(Address(to), value, bytes); });
    return kSuccess;
  };
  t.cuPointerGetAttribute = [this](void* value, int, DevicePointer address) {
    COHORT_FAKE_ENTER(faults_, "cuPointerGetAttribute");
    MutexLock lock(mutex_);
    unsigned type = 0;
    if (Contains(device_, address)) {
      type = kMemoryTypeDevice;
    } else if (Contains(pinned_, address)) {
      type = kMemoryTypeHost;
    } else {
      return kInvalidValue;
    }
    std::memcpy(value, &type, sizeof(type));
    return kSuccess;
  };
}

void FakeDriver::FillStreamCalls(DriverTable& t) {
  t.cuStreamCreate = [this](Stream* stream, unsigned) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuStreamCreate");
    *stream = reinterpret_cast<Stream>(new FakeStream);
    MutexLock lock(mutex_);
    ++streams_;
    return kSuccess;
  };
  t.cuStreamDestroy = [this](Stream stream) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuStreamDestroy");
    delete Of(stream);
    MutexLock lock(mutex_);
    --streams_;
    return kSuccess;
  };
  t.cuEventCreate = [this](Event* event, unsigned) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuEventCreate");
    *event =
        reinterpret_cast<Event>(new SharedEvent(std::make_shared<FakeEvent>()));
    MutexLock lock(mutex_);
    events_.insert(*event);
    return kSuccess;
  };
  t.cuEventRecord = [this](Event event, Stream stream) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuEventRecord");
    const SharedEvent shared = *Of(event);
    const int record = ++shared->recorded;
    Enqueue(stream, [shared, record] { shared->done.store(record); });
    return kSuccess;
  };
  t.cuEventQuery = [this](Event event) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuEventQuery");
    const FakeEvent& fake = **Of(event);
    return fake.done.load() >= fake.recorded.load() ? kSuccess : kNotReady;
  };
  t.cuEventDestroy = [this](Event event) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuEventDestroy");
    delete Of(event);
    MutexLock lock(mutex_);
    events_.erase(event);
    return kSuccess;
  };
}

}  // namespace cohort::trainer::cuda
