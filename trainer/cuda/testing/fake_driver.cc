#include "trainer/cuda/testing/fake_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "common/round_up.h"

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
class FakeEvent {
 public:
  // The number of a new record.
  int Record() {
    MutexLock lock(mutex_);
    return ++recorded_;
  }
  // Of the last one.
  int recorded() const {
    MutexLock lock(mutex_);
    return recorded_;
  }
  void Finish(int record) {
    MutexLock lock(mutex_);
    done_ = record;
    changed_.SignalAll();
  }
  bool IsDone() const {
    MutexLock lock(mutex_);
    return done_ >= recorded_;
  }
  void Await(int record) {
    MutexLock lock(mutex_);
    while (done_ < record) changed_.Wait(mutex_);
  }

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  int recorded_ ABSL_GUARDED_BY(mutex_) = 0;
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The fake whose context is current on this thread.
thread_local const void* current_context = nullptr;

FakeStream* Of(Stream stream) { return reinterpret_cast<FakeStream*>(stream); }
// Shared with the stream's queue: an event may be destroyed before it is done.
using SharedEvent = std::shared_ptr<FakeEvent>;
SharedEvent* Of(Event event) { return reinterpret_cast<SharedEvent*>(event); }

size_t BytesOf(size_t bytes) { return bytes; }
template <typename Block>
size_t BytesOf(const std::shared_ptr<Block>& block) {
  return block->bytes;
}

template <typename Block>
bool Contains(const std::map<DevicePointer, Block>& blocks,
              DevicePointer address) {
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return false;
  --after;
  return address < after->first + BytesOf(after->second);
}

void* NewBlock(size_t bytes) {
  void* const memory =
      std::aligned_alloc(kAlignment, RoundUp(bytes, kAlignment));
  // As real memory is: not what anybody hoped for.
  if (memory != nullptr) std::memset(memory, 0xAB, bytes);
  return memory;
}

std::byte* Map(int fd, size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

// Device memory; a file in memory, so that others can map it.
struct FakeDriver::Block {
  explicit Block(size_t size)
      : bytes(size), fd(memfd_create("fake-device-memory", MFD_CLOEXEC)) {}
  ~Block() { close(fd); }

  const size_t bytes;
  const int fd;
  std::atomic<int> opened{0};
};

namespace {

// What handles name, in all the fakes of a process.
class Handles {
 public:
  static Handles& All() {
    static auto* const handles = new Handles;
    return *handles;
  }

  uint64_t Add(const void* driver, const std::shared_ptr<void>& block) {
    MutexLock lock(mutex_);
    blocks_[++last_] = {driver, block};
    return last_;
  }
  // Null for what is gone, and for what `driver` has itself.
  std::shared_ptr<void> Find(const void* driver, uint64_t handle) {
    MutexLock lock(mutex_);
    const auto found = blocks_.find(handle);
    if (found == blocks_.end() || found->second.driver == driver) {
      return nullptr;
    }
    return found->second.block.lock();
  }

 private:
  struct Entry {
    const void* driver = nullptr;
    std::weak_ptr<void> block = {};
  };

  Mutex mutex_;
  std::map<uint64_t, Entry> blocks_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

FakeDriver::FakeDriver(Options options) : options_(options) {
  auto table = std::make_shared<DriverTable>();
  FillDeviceCalls(*table);
  FillMemoryCalls(*table);
  FillStreamCalls(*table);
  FillIpcCalls(*table);
  FillKernelCalls(*table);
  table_ = std::move(table);
}

FakeDriver::~FakeDriver() {
  MutexLock lock(mutex_);
  for (const auto* const blocks : {&device_, &opened_}) {
    for (const auto& [address, block] : *blocks) {
      munmap(AddressOf(address), block->bytes);
    }
  }
  for (const auto& [address, bytes] : pinned_) std::free(AddressOf(address));
  for (const Event event : events_) delete Of(event);
}

size_t FakeDriver::device_bytes() const {
  MutexLock lock(mutex_);
  return device_bytes_;
}
size_t FakeDriver::opened() const {
  MutexLock lock(mutex_);
  return opened_.size();
}
int FakeDriver::modules() const {
  MutexLock lock(mutex_);
  return modules_;
}
int FakeDriver::misuses() const {
  MutexLock lock(mutex_);
  return misuses_;
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

void FakeDriver::AddKernel(const std::string& name, FakeKernel kernel) {
  MutexLock lock(mutex_);
  kernels_[name] = std::move(kernel);
}

Result FakeDriver::AllocateDevice(DevicePointer* memory, size_t bytes) {
  MutexLock lock(mutex_);
  if (bytes == 0) return kInvalidValue;
  if (device_bytes_ + bytes > options_.memory_bytes) return kOutOfMemory;
  auto block = std::make_shared<Block>(bytes);
  if (ftruncate(block->fd, static_cast<off_t>(bytes)) != 0) return kUnknown;
  std::byte* const mapped = Map(block->fd, bytes);
  if (mapped == nullptr) return kUnknown;
  // As real memory is: not what anybody hoped for.  Pages cost time.
  constexpr size_t kSpoilt = size_t{64} << 10;
  std::memset(mapped, 0xAB, std::min(bytes, kSpoilt));
  *memory = reinterpret_cast<uintptr_t>(mapped);
  device_[*memory] = std::move(block);
  device_bytes_ += bytes;
  return kSuccess;
}

Result FakeDriver::FreeDevice(DevicePointer memory) {
  MutexLock lock(mutex_);
  const auto found = device_.find(memory);
  if (found == device_.end()) return kInvalidValue;
  if (found->second->opened > 0) ++misuses_;
  device_bytes_ -= found->second->bytes;
  munmap(AddressOf(memory), found->second->bytes);
  device_.erase(found);
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
    if (--contexts_ == 0) DropContext();
    return kSuccess;
  };
  t.cuCtxSetCurrent = [this](Context context) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuCtxSetCurrent");
    current_context = context;
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
    if (current_context != this) return kInvalidContext;
    MutexLock lock(mutex_);
    *memory = NewBlock(bytes);
    pinned_[reinterpret_cast<uintptr_t>(*memory)] = bytes;
    return kSuccess;
  };
  t.cuMemFreeHost = [this](void* memory) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemFreeHost");
    if (current_context != this) return kInvalidContext;
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
    Enqueue(stream,
            [=] { std::memcpy(AddressOf(to), AddressOf(from), bytes); });
    return kSuccess;
  };
  t.cuMemsetD8Async = [this](DevicePointer to, unsigned char value,
                             size_t bytes, Stream stream) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuMemsetD8Async");
    Enqueue(stream, [=] { std::memset(AddressOf(to), value, bytes); });
    return kSuccess;
  };
  t.cuPointerGetAttribute = [this](void* value, int, DevicePointer address) {
    COHORT_FAKE_ENTER(faults_, "cuPointerGetAttribute");
    MutexLock lock(mutex_);
    unsigned type = 0;
    if (Contains(device_, address) || Contains(opened_, address)) {
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
    const int record = shared->Record();
    Enqueue(stream, [shared, record] { shared->Finish(record); });
    return kSuccess;
  };
  t.cuStreamWaitEvent = [this](Stream stream, Event event, unsigned) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuStreamWaitEvent");
    const SharedEvent shared = *Of(event);
    const int record = shared->recorded();
    Enqueue(stream, [shared, record] { shared->Await(record); });
    return kSuccess;
  };
  t.cuEventQuery = [this](Event event) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuEventQuery");
    return (*Of(event))->IsDone() ? kSuccess : kNotReady;
  };
  t.cuEventDestroy = [this](Event event) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuEventDestroy");
    delete Of(event);
    MutexLock lock(mutex_);
    events_.erase(event);
    return kSuccess;
  };
}

// What a context holds ends with it, as with its process.
void FakeDriver::DropContext() {
  for (auto& [address, block] : opened_) {
    --block->opened;
    munmap(AddressOf(address), block->bytes);
  }
  opened_.clear();
  for (auto& [address, block] : device_) {
    munmap(AddressOf(address), block->bytes);
  }
  device_.clear();
  device_bytes_ = 0;
  modules_ = 0;
}

void FakeDriver::FillIpcCalls(DriverTable& t) {
  t.cuIpcGetMemHandle = [this](IpcMemoryHandle* handle, DevicePointer memory) {
    COHORT_FAKE_ENTER(faults_, "cuIpcGetMemHandle");
    MutexLock lock(mutex_);
    const auto found = device_.find(memory);
    if (found == device_.end()) return kInvalidValue;
    const uint64_t id = Handles::All().Add(this, found->second);
    *handle = {};
    std::memcpy(handle->bytes, &id, sizeof(id));
    return kSuccess;
  };
  t.cuIpcOpenMemHandle = [this](DevicePointer* memory, IpcMemoryHandle handle,
                                unsigned) {
    COHORT_FAKE_ENTER(faults_, "cuIpcOpenMemHandle");
    uint64_t id = 0;
    std::memcpy(&id, handle.bytes, sizeof(id));
    const auto block =
        std::static_pointer_cast<Block>(Handles::All().Find(this, id));
    if (block == nullptr) return kInvalidValue;
    std::byte* const mapped = Map(block->fd, block->bytes);
    if (mapped == nullptr) return kUnknown;
    ++block->opened;
    *memory = reinterpret_cast<uintptr_t>(mapped);
    MutexLock lock(mutex_);
    opened_[*memory] = block;
    return kSuccess;
  };
  t.cuIpcCloseMemHandle = [this](DevicePointer memory) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuIpcCloseMemHandle");
    MutexLock lock(mutex_);
    const auto found = opened_.find(memory);
    if (found == opened_.end()) return kInvalidValue;
    --found->second->opened;
    munmap(AddressOf(memory), found->second->bytes);
    opened_.erase(found);
    return kSuccess;
  };
}

void FakeDriver::FillKernelCalls(DriverTable& t) {
  t.cuModuleLoadData = [this](Module* module, const void* image) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuModuleLoadData");
    if (image == nullptr) return kInvalidValue;
    *module = reinterpret_cast<Module>(this);
    MutexLock lock(mutex_);
    ++modules_;
    return kSuccess;
  };
  t.cuModuleUnload = [this](Module) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuModuleUnload");
    MutexLock lock(mutex_);
    --modules_;
    return kSuccess;
  };
  t.cuModuleGetFunction = [this](Function* function, Module,
                                 const char* name) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuModuleGetFunction");
    MutexLock lock(mutex_);
    const auto found = kernels_.find(name);
    if (found == kernels_.end()) return kNotFound;
    *function = reinterpret_cast<Function>(&found->second);
    return kSuccess;
  };
  t.cuLaunchKernel = [this](Function function, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y,
                            unsigned block_z, unsigned, Stream stream,
                            void** parameters, void**) -> Result {
    COHORT_FAKE_ENTER(faults_, "cuLaunchKernel");
    constexpr unsigned kBlockThreadsMax = 1024;
    if (grid_x * grid_y * grid_z == 0 || block_x * block_y * block_z == 0 ||
        block_x * block_y * block_z > kBlockThreadsMax) {
      return kInvalidValue;
    }
    Enqueue(stream, (*reinterpret_cast<FakeKernel*>(function))(parameters));
    return kSuccess;
  };
}

}  // namespace cohort::trainer::cuda
