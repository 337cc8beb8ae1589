#include "worker/node_inventory.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "worker/nvml_devices.h"
#include "worker/simulated_devices.h"

namespace cohort::worker {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::Property;
using testing::SizeIs;

const MachineSize kMachine = {.cpus = Amount::FromUnits(8),
                              .memory_bytes = int64_t{64} << 30};

TEST(NodeInventoryTest, OffersWhatTheMachineHas) {
  SimulatedDevices source("n1", 2);
  const auto inventory = TakeInventory({}, kMachine, source);
  ASSERT_THAT(inventory, IsOk());
  EXPECT_EQ(inventory->resources.ToString(), "CPU 8, GPU 2, memory 64GiB");
  ASSERT_THAT(inventory->devices, SizeIs(2));
  EXPECT_TRUE(inventory->devices[0].simulated());
  EXPECT_NE(inventory->devices[0].id(), inventory->devices[1].id());
}

TEST(NodeInventoryTest, OffersWhatAPersonSaysInstead) {
  SimulatedDevices source("n1", 4);
  InventoryOptions options;
  options.cpus = *Amount::Parse("1.5");
  options.memory_bytes = int64_t{1} << 30;
  options.gpus = 1;
  options.share_index = 2;
  options.share_count = 3;
  options.custom = *ParseResources("license=3");
  const auto inventory = TakeInventory(options, kMachine, source);
  ASSERT_THAT(inventory, IsOk());
  EXPECT_EQ(inventory->resources.ToString(),
            "CPU 1.5, GPU 1, license 3, memory 1GiB");
  EXPECT_THAT(inventory->devices[0].id(), HasSubstr("n1-2"));
}

TEST(NodeInventoryTest, SeveralWorkersDivideTheMachine) {
  SimulatedDevices source("n1", 5);
  InventoryOptions options;
  options.share_count = 2;
  options.share_index = 1;
  const auto inventory = TakeInventory(options, kMachine, source);
  ASSERT_THAT(inventory, IsOk());
  EXPECT_EQ(inventory->resources.ToString(), "CPU 4, GPU 2, memory 32GiB");
  EXPECT_THAT(inventory->devices[0].id(), HasSubstr("n1-2"));
}

TEST(NodeInventoryTest, RefusesMoreGpusThanThereAre) {
  SimulatedDevices source("n1", 1);
  InventoryOptions options;
  options.gpus = 2;
  EXPECT_THAT(
      TakeInventory(options, kMachine, source).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 1 GPUs")));
}

// Eight GPUs, of which one gives no handle.
class OneIsAbsent final : public DeviceSource {
 public:
  absl::StatusOr<std::vector<Device>> List() override {
    std::vector<Device> devices(8);
    for (int place = 0; place < 8; ++place) {
      if (place != 2) devices[place].set_id(absl::StrCat("gpu-", place));
    }
    devices[2].set_reason("GPU is lost");
    return devices;
  }
  std::vector<DeviceAnswer> Sample() override { return {}; }
  std::optional<std::vector<DeviceProcess>> Processes(
      const std::string&) override {
    return std::nullopt;
  }
  std::optional<Xid> WaitXid(absl::Duration, bool*) override { return {}; }
};

// DV-1
TEST(NodeInventoryTest, OneThatIsAbsentCostsNoOtherAndShiftsNone) {
  OneIsAbsent source;
  InventoryOptions options;
  options.gpus = 8;
  auto inventory = TakeInventory(options, kMachine, source);
  ASSERT_THAT(inventory, IsOk());
  EXPECT_THAT(inventory->devices, SizeIs(7));
  EXPECT_EQ(inventory->resources.Get(kGpu), Amount::FromUnits(7));
  options = {};
  options.share_count = 2;
  inventory = TakeInventory(options, kMachine, source);
  ASSERT_THAT(inventory, IsOk());
  EXPECT_THAT(inventory->devices, ElementsAre(Property(&Device::id, "gpu-0"),
                                              Property(&Device::id, "gpu-1"),
                                              Property(&Device::id, "gpu-3")));
  EXPECT_THAT(inventory->on_machine, Optional(Contains("gpu-7")));
  EXPECT_THAT(inventory->on_machine, Optional(SizeIs(7)));
  options.share_index = 1;
  inventory = TakeInventory(options, kMachine, source);
  ASSERT_THAT(inventory, IsOk());
  EXPECT_THAT(inventory->devices, SizeIs(4));
  EXPECT_EQ(inventory->devices[0].id(), "gpu-4");
}

TEST(NodeInventoryTest, RefusesAKnownNameAsACustomResource) {
  SimulatedDevices source("n1", 0);
  InventoryOptions options;
  options.custom = *ParseResources("CPU=3");
  EXPECT_THAT(
      TakeInventory(options, kMachine, source).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--num-cpus")));
}

TEST(NodeInventoryTest, MeasuresThisMachine) {
  const auto machine = MeasureMachine();
  ASSERT_THAT(machine, IsOk());
  EXPECT_GT(machine->cpus, Amount());
  EXPECT_GT(machine->memory_bytes, int64_t{1} << 20);
}

TEST(NodeInventoryTest, WithoutGpusTheDriverIsNotAsked) {
  NvmlDevices broken("libm.so.6");
  InventoryOptions options;
  EXPECT_THAT(
      TakeInventory(options, kMachine, broken).status(),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("--num-gpus 0")));
  options.gpus = 0;
  const auto inventory = TakeInventory(options, kMachine, broken);
  ASSERT_THAT(inventory, IsOk());
  EXPECT_THAT(inventory->devices, IsEmpty());
  EXPECT_EQ(inventory->on_machine, std::nullopt);
}

}  // namespace
}  // namespace cohort::worker
