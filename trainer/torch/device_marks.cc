#include "trainer/torch/device_marks.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"
#include "trainer/torch/torch_status.h"

namespace cohort::torch_adapter {
namespace {

class TorchMarks final : public DeviceMarks {
 public:
  explicit TorchMarks(torch::Device device)
      : device_(device), guard_(device.type()) {}

  std::string device() const override { return device_.str(); }
  int64_t CurrentStream() const override {
    return static_cast<int64_t>(guard_.getStream(device_).id());
  }
  void Set(size_t mark) override {
    while (events_.size() <= mark) events_.emplace_back(device_.type());
    events_[mark].record(guard_.getStream(device_));
  }
  bool IsOver(size_t mark) const override {
    return mark >= events_.size() || events_[mark].query();
  }
  std::string OwnerOf(std::byte* memory) const override {
    // Of a device without an index LibTorch asks the driver.
    return at::for_blob(memory, {1})
        .options(torch::TensorOptions(device_.type()).dtype(torch::kUInt8))
        .make_tensor()
        .device()
        .str();
  }
  void Keep(const torch::Tensor& tensor) const override {
    if (tensor.device() != device_) return;
    tensor.record_stream(guard_.getStream(device_));
  }

 private:
  const torch::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  std::deque<c10::Event> events_;
};

absl::Status AtDevice(const absl::Status& status, const DeviceMarks& marks,
                      absl::string_view what) {
  return Annotate(status, absl::StrCat(marks.device(), ": ", what));
}

}  // namespace

std::unique_ptr<DeviceMarks> MakeDeviceMarks(torch::Device device) {
  return std::make_unique<TorchMarks>(device);
}

absl::Status AwaitMark(const DeviceMarks& marks, size_t mark,
                       absl::string_view what, const DeviceWait& wait) {
  const absl::Duration begin = wait.clock.Monotonic();
  absl::Duration next_look = begin + kLookInterval;
  for (;;) {
    bool is_over = false;
    absl::Status state = CatchTorch([&] {
      is_over = marks.IsOver(mark);
      return absl::OkStatus();
    });
    if (is_over) return absl::OkStatus();
    const absl::Duration now = wait.clock.Monotonic();
    if (state.ok() && wait.look && now >= next_look) {
      state = wait.look();
      next_look = now + kLookInterval;
    }
    if (state.ok() && now >= begin + wait.timeout) {
      state = absl::DeadlineExceededError(
          absl::StrCat("not over after ", absl::FormatDuration(wait.timeout)));
    }
    if (!state.ok()) return AtDevice(state, marks, what);
    std::this_thread::yield();
  }
}

absl::Status AwaitBegun(DeviceMarks& marks, size_t mark, absl::string_view what,
                        const DeviceWait& wait) {
  const absl::Status set = CatchTorch([&] {
    marks.Set(mark);
    return absl::OkStatus();
  });
  if (!set.ok()) return AtDevice(set, marks, what);
  return AwaitMark(marks, mark, what, wait);
}

}  // namespace cohort::torch_adapter
