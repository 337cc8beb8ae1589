#include "trainer/comm/gpu_stream.h"

#include <algorithm>
#include <cstdint>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::trainer {
namespace {

// What a sleep takes longer than it was asked for: Linux's timer slack, 50 us
// (prctl(2), PR_SET_TIMERSLACK), and a switch.
constexpr absl::Duration kWakeUp = absl::Microseconds(60);
constexpr absl::Duration kLateMax = absl::Milliseconds(1);

}  // namespace

PollBackoff::PollBackoff() : began_(MonotonicNow()) {}

absl::Duration PollBackoff::SleepAfter(absl::Duration elapsed) {
  return std::max(std::min(elapsed / 8, kLateMax) - kWakeUp,
                  absl::ZeroDuration());
}

void PollBackoff::Step(OwnerThread& owner) {
  ++looks_;
  const absl::Duration sleep = SleepAfter(MonotonicNow() - began_);
  if (sleep == absl::ZeroDuration()) {
    std::this_thread::yield();
  } else {
    owner.Pause(sleep);
  }
}

GpuStream::GpuStream(const Comm::Identity& identity, int ordinal)
    : identity_(identity),
      ordinal_(ordinal),
      device_name_(cuda::VisibleName(ordinal)) {}

std::string GpuStream::Place() const {
  MutexLock lock(place_mutex_);
  return absl::StrCat("rank ", identity_.rank, " on ", device_name_);
}

absl::Status GpuStream::Check(cuda::Result result,
                              absl::string_view call) const {
  if (result == cuda::kSuccess) return absl::OkStatus();
  return Annotate(cuda::DriverStatus(*driver_, result, call), Place());
}

absl::Status GpuStream::Open(OwnerThread& owner,
                             const cuda::Lookup<cuda::DriverTable>& driver) {
  const auto before = [&owner](const char* call) { owner.SetCall(call); };
  COHORT_ASSIGN_OR_RETURN(driver_, driver.Find(before));
  COHORT_ASSIGN_OR_RETURN(device_,
                          cuda::Device::Open(driver_, ordinal_, before));
  {
    MutexLock lock(place_mutex_);
    device_name_ = device_->name();
  }
  owner.SetCall("cuStreamCreate");
  // Ordered with the legacy default stream: what was launched there before a
  // call is done before the collective begins.
  COHORT_RETURN_IF_ERROR(
      Check(driver_->cuStreamCreate(&stream_, cuda::kStreamDefault),
            "cuStreamCreate"));
  owner.SetCall("cuEventCreate");
  return Check(driver_->cuEventCreate(&event_, cuda::kEventDisableTiming),
               "cuEventCreate");
}

absl::StatusOr<cuda::DevicePointer> GpuStream::Allocate(OwnerThread& owner,
                                                        size_t bytes) {
  const auto memory = device_->Allocate(
      bytes, [&owner](const char* call) { owner.SetCall(call); });
  if (memory.ok()) return memory;
  return Annotate(memory.status(), absl::StrCat("rank ", identity_.rank));
}

absl::StatusOr<std::byte*> GpuStream::ReservePinned(OwnerThread& owner,
                                                    size_t bytes) {
  if (bytes <= pinned_bytes_) return pinned_;
  const size_t wanted = std::max(bytes, 2 * pinned_bytes_);
  FreePinned(owner);
  owner.SetCall("cuMemHostAlloc");
  COHORT_ASSIGN_OR_RETURN(pinned_, device_->AllocatePinned(wanted));
  pinned_bytes_ = wanted;
  return pinned_;
}

void GpuStream::FreePinned(OwnerThread& owner) {
  owner.SetCall("cuMemFreeHost");
  if (pinned_ != nullptr) device_->FreePinned(pinned_);
  pinned_ = nullptr;
  pinned_bytes_ = 0;
}

absl::Status GpuStream::Copy(OwnerThread& owner, void* to, const void* from,
                             size_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  owner.SetCall("cuMemcpyAsync");
  return Check(driver_->cuMemcpyAsync(cuda::PointerTo(to),
                                      cuda::PointerTo(from), bytes, stream_),
               "cuMemcpyAsync");
}

absl::Status GpuStream::Zero(OwnerThread& owner, std::span<std::byte> memory) {
  if (memory.empty()) return absl::OkStatus();
  owner.SetCall("cuMemsetD8Async");
  COHORT_RETURN_IF_ERROR(
      Check(driver_->cuMemsetD8Async(cuda::PointerTo(memory.data()), 0,
                                     memory.size(), stream_),
            "cuMemsetD8Async"));
  return Await(owner);
}

absl::Status GpuStream::Poll(
    OwnerThread& owner,
    absl::FunctionRef<absl::Status(const PollBackoff&)> look) {
  owner.SetCall("cuEventRecord");
  COHORT_RETURN_IF_ERROR(
      Check(driver_->cuEventRecord(event_, stream_), "cuEventRecord"));
  for (PollBackoff backoff;; backoff.Step(owner)) {
    owner.SetCall("cuEventQuery");
    const cuda::Result result = driver_->cuEventQuery(event_);
    if (result != cuda::kNotReady) return Check(result, "cuEventQuery");
    COHORT_RETURN_IF_ERROR(look(backoff));
  }
}

absl::Status GpuStream::Await(OwnerThread& owner,
                              absl::FunctionRef<absl::Status()> look) {
  return Poll(owner, [&](const PollBackoff& backoff) {
    if (owner.is_ending()) return owner.ended();
    return backoff.IsDue() ? look() : absl::OkStatus();
  });
}

absl::Status GpuStream::Await(OwnerThread& owner) {
  return Await(owner, [] { return absl::OkStatus(); });
}

absl::Status GpuStream::Drain(OwnerThread& owner) {
  if (event_ == nullptr) return absl::OkStatus();
  return Poll(owner, [](const PollBackoff&) { return absl::OkStatus(); });
}

void GpuStream::Close(OwnerThread& owner) {
  if (device_ == nullptr) return;
  FreePinned(owner);
  owner.SetCall("cuEventDestroy");
  if (event_ != nullptr) driver_->cuEventDestroy(event_);
  owner.SetCall("cuStreamDestroy");
  if (stream_ != nullptr) driver_->cuStreamDestroy(stream_);
  owner.SetCall("cuDevicePrimaryCtxRelease");
  device_.reset();
}

}  // namespace cohort::trainer
