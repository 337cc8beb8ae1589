// LibTorch's events over a device that exists in name only: the backend that
// LibTorch leaves to others, with events that end when the test says so.

#include "trainer/torch/device_marks.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/testing/status_matchers.h"

namespace cohort::torch_adapter {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// By which streams events were recorded, and which are over.
struct FakeDevice {
  c10::StreamId current = 3;
  std::vector<c10::StreamId> recorded;
  bool is_over = false;
  int events = 0;
};
FakeDevice fake_device;

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device exchangeDevice(c10::Device) const override { return Only(); }
  c10::Device getDevice() const override { return Only(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::UNSAFE, device, fake_device.current);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    return stream;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = &fake_device;
      ++fake_device.events;
    }
    fake_device.recorded.push_back(stream.id());
  }
  bool queryEvent(void*) const override { return fake_device.is_over; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {
    --fake_device.events;
  }

 private:
  static c10::Device Only() {
    return c10::Device(c10::DeviceType::PrivateUse1, 0);
  }
};
const FakeGuard fake_guard;
const c10::impl::DeviceGuardImplRegistrar registrar(
    c10::DeviceType::PrivateUse1, &fake_guard);

TEST(DeviceMarksTest, AreEventsOnTheCurrentStream) {
  fake_device = {};
  {
    const std::unique_ptr<DeviceMarks> marks =
        MakeDeviceMarks(torch::Device(c10::DeviceType::PrivateUse1, 0));
    EXPECT_EQ(marks->CurrentStream(), 3);
    marks->Set(1);
    fake_device.current = 5;
    EXPECT_EQ(marks->CurrentStream(), 5);
    marks->Set(0);
    marks->Set(1);
    EXPECT_THAT(fake_device.recorded, ElementsAre(3, 5, 5));
    EXPECT_EQ(fake_device.events, 2);
    EXPECT_FALSE(marks->IsOver(1));
    const MachineClock clock;
    const DeviceWait wait = {.clock = clock, .timeout = absl::ZeroDuration()};
    EXPECT_THAT(
        AwaitMark(*marks, 1, "a pass", wait),
        StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(":0: a pass")));
    fake_device.is_over = true;
    EXPECT_TRUE(marks->IsOver(1));
    COHORT_EXPECT_OK(AwaitMark(*marks, 1, "a pass", wait));
    EXPECT_TRUE(marks->IsOver(7)) << "never set";
  }
  EXPECT_EQ(fake_device.events, 0);
}

TEST(DeviceMarksTest, ThrowWhereThereAreNoEvents) {
  const std::unique_ptr<DeviceMarks> marks =
      MakeDeviceMarks(torch::Device(torch::kCPU));
  EXPECT_THROW(marks->Set(0), c10::Error);
  std::byte memory{};
  EXPECT_EQ(marks->OwnerOf(&memory), "cpu");
}

}  // namespace
}  // namespace cohort::torch_adapter
