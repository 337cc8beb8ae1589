#include "trainer/torch/device_marks.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <thread>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
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

 private:
  const torch::Device device_;
  const c10::impl::VirtualGuardImpl guard_;
  std::deque<c10::Event> events_;
};

}  // namespace

std::unique_ptr<DeviceMarks> MakeDeviceMarks(torch::Device device) {
  return std::make_unique<TorchMarks>(device);
}

absl::Status AwaitMark(const DeviceMarks& marks, size_t mark,
                       absl::string_view what, const Clock& clock,
                       absl::Duration patience) {
  const absl::Duration until = clock.Monotonic() + patience;
  for (;;) {
    bool is_over = false;
    COHORT_RETURN_IF_ERROR(CatchTorch([&] {
      is_over = marks.IsOver(mark);
      return absl::OkStatus();
    }));
    if (is_over) return absl::OkStatus();
    if (clock.Monotonic() >= until) {
      return absl::DeadlineExceededError(
          absl::StrCat(marks.device(), ": ", what, ": not over after ",
                       absl::FormatDuration(patience)));
    }
    std::this_thread::yield();
  }
}

}  // namespace cohort::torch_adapter
