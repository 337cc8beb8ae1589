// Devices on the machine's own GPUs: what NVML says through our classes beside
// nvidia-smi, and memory that a process will not give back.

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/testing/manual_executor.h"
#include "common/testing/status_matchers.h"
#include "trainer/comm/testing/gpu_machine.h"
#include "trainer/comm/testing/process_gang.h"
#include "trainer/cuda/device.h"
#include "worker/device_monitor.h"
#include "worker/nvml_devices.h"

namespace cohort::worker {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using trainer::GpuMachine;
using trainer::ProcessGang;
using trainer::ThisGpuMachine;

constexpr int64_t kMiB = int64_t{1} << 20;

class GpuDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const GpuMachine& machine = ThisGpuMachine();
    if (!machine.no_gpu.empty()) GTEST_SKIP() << machine.no_gpu;
    auto devices = source_->List();
    ASSERT_THAT(devices, IsOk());
    ASSERT_FALSE(devices->empty()) << "CUDA has GPUs, and NVML none";
    devices_ = *std::move(devices);
  }

  const std::shared_ptr<NvmlDevices> source_ = std::make_shared<NvmlDevices>();
  std::vector<Device> devices_;
};

TEST_F(GpuDeviceTest, AreThoseOfCuda) {
  std::vector<std::string> ids;
  for (const Device& device : devices_) {
    if (!device.parent().empty()) GTEST_SKIP() << "divided by MIG";
    ids.push_back(device.id());
  }
  // CUDA_VISIBLE_DEVICES may hide some of NVML's.
  for (const std::string& gpu : ThisGpuMachine().gpus) {
    EXPECT_THAT(ids, Contains(gpu));
  }
}

// A row of nvidia-smi's answer, by column; without what it does not know.
using SmiRow = std::map<std::string, std::string>;

// By uuid; nothing where there is no nvidia-smi.
std::optional<std::map<std::string, SmiRow>> AskNvidiaSmi(
    const std::vector<std::string>& columns) {
  const std::string command =
      absl::StrCat("nvidia-smi --query-gpu=uuid,", absl::StrJoin(columns, ","),
                   " --format=csv,noheader,nounits 2>/dev/null");
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::map<std::string, SmiRow> rows;
  char line[1024];
  while (fgets(line, sizeof(line), pipe) != nullptr) {
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    if (fields.size() != columns.size() + 1) continue;
    SmiRow& row = rows[std::string(absl::StripAsciiWhitespace(fields[0]))];
    for (size_t i = 0; i < columns.size(); ++i) {
      const absl::string_view value = absl::StripAsciiWhitespace(fields[i + 1]);
      if (!absl::StrContains(value, "N/A"))
        row[columns[i]] = std::string(value);
    }
  }
  constexpr int kNotFound = 127;  // the shell's answer
  const int status = pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotFound) {
    return std::nullopt;
  }
  return rows;
}

// `ours` in the units of `column`; what either does not know is not compared.
void ExpectNear(const SmiRow& row, const std::string& column,
                std::optional<double> ours, double tolerance) {
  double theirs = 0;
  if (!row.contains(column) || !absl::SimpleAtod(row.at(column), &theirs)) {
    return;
  }
  ASSERT_TRUE(ours.has_value()) << column << ": nvidia-smi says " << theirs;
  EXPECT_NEAR(*ours, theirs, tolerance) << column;
}

std::optional<double> Scaled(bool is_known, int64_t value, double by) {
  if (!is_known) return std::nullopt;
  return static_cast<double>(value) / by;
}

TEST_F(GpuDeviceTest, AreAsNvidiaSmiSays) {
  const auto rows = AskNvidiaSmi({"name", "memory.total", "memory.used",
                                  "pci.bus_id", "temperature.gpu", "power.draw",
                                  "ecc.errors.uncorrected.volatile.total"});
  if (!rows) GTEST_SKIP() << "no nvidia-smi";
  const std::vector<DeviceAnswer> answers = source_->Sample();
  ASSERT_EQ(answers.size(), devices_.size());
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    if (!device.parent().empty()) continue;  // a MIG instance has no row
    SCOPED_TRACE(device.id());
    ASSERT_TRUE(rows->contains(device.id()));
    const SmiRow& row = rows->at(device.id());
    EXPECT_EQ(device.model(), row.at("name"));
    EXPECT_EQ(absl::AsciiStrToLower(device.pci_bus_id()),
              absl::AsciiStrToLower(row.at("pci.bus_id")));
    EXPECT_EQ(answers[i].id, device.id());
    EXPECT_EQ(answers[i].error, "");
    const v1::DeviceSample& sample = answers[i].sample;
    ExpectNear(row, "memory.total",
               static_cast<double>(device.memory_bytes() / kMiB), 64);
    // Between two looks.
    ExpectNear(row, "memory.used",
               Scaled(sample.has_memory_used_bytes(),
                      sample.memory_used_bytes(), kMiB),
               64);
    ExpectNear(row, "temperature.gpu",
               Scaled(sample.has_temperature_celsius(),
                      sample.temperature_celsius(), 1),
               10);
    ExpectNear(
        row, "power.draw",
        Scaled(sample.has_power_milliwatts(), sample.power_milliwatts(), 1000),
        200);
    ExpectNear(row, "ecc.errors.uncorrected.volatile.total",
               Scaled(sample.has_ecc_volatile(), sample.ecc_volatile(), 1), 0);
  }
}

// Takes memory of the first GPU and keeps it until it is killed.
absl::Status HoldMemory(ProcessGang::Place& place) {
  COHORT_ASSIGN_OR_RETURN(const auto driver, trainer::cuda::LoadDriver());
  COHORT_ASSIGN_OR_RETURN(const auto device,
                          trainer::cuda::Device::Open(driver, 0));
  COHORT_RETURN_IF_ERROR(device->Allocate(512 * kMiB).status());
  place.tell("holds");
  while (true) pause();
}

// DV-8, with a process that does not end and one that is killed.
class GpuFenceTest : public GpuDeviceTest {
 protected:
  using Question = absl::AnyInvocable<Task() &&>;

  void SetUp() override {
    std::cout << "[ MEASURES ] when a GPU's memory is free after SIGKILL of "
                 "its holder"
              << std::endl;
    GpuDeviceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    gpu_ = ThisGpuMachine().gpus.at(0);
    for (const Device& device : devices_) {
      if (device.parent() == gpu_) GTEST_SKIP() << gpu_ << " is divided by MIG";
    }
    monitor_.emplace(
        devices_, source_, executor_,
        [this](Question question) { executor_.Post(std::move(question)()); },
        [](Question) {}, executor_,
        DeviceMonitor::Events{
            .on_change = [] {},
            .on_fault = [](const std::string&, const std::string&, bool) {}});
    monitor_->Start([] {});
    executor_.RunUntilIdle();
  }

  const v1::DeviceStatus& Status() const {
    for (const v1::DeviceStatus& status : monitor_->statuses()) {
      if (status.id() == gpu_) return status;
    }
    ADD_FAILURE() << "no " << gpu_;
    return monitor_->statuses().front();
  }
  std::set<int64_t> Pids() {
    std::set<int64_t> pids;
    const auto processes = source_->Processes(gpu_);
    if (!processes) ADD_FAILURE() << "NVML does not say who is on " << gpu_;
    for (const DeviceProcess& process :
         processes.value_or(std::vector<DeviceProcess>())) {
      pids.insert(process.pid);
    }
    return pids;
  }
  static bool IsInPidNamespace() {
    char name[64] = {};
    const ssize_t size = readlink("/proc/self/ns/pid", name, sizeof(name) - 1);
    return size <= 0 || std::string(name) != "pid:[4026531836]";  // the first
  }

  std::string gpu_;
  ManualExecutor executor_;
  std::optional<DeviceMonitor> monitor_;
};

TEST_F(GpuFenceTest, ADeviceIsFencedUntilItsMemoryIsFree) {
  const std::set<int64_t> before = Pids();
  monitor_->Hold("attempt", {gpu_});
  executor_.RunUntilIdle();
  auto holder = ProcessGang::Start(1, HoldMemory);
  ASSERT_THAT(holder, IsOk());
  ASSERT_THAT((*holder)->Hear(0), IsOkAndHolds("holds"));
  std::set<int64_t> holders;
  for (const int64_t pid : Pids()) {
    if (!before.contains(pid)) holders.insert(pid);
  }
  if (holders.empty() && IsInPidNamespace()) {
    GTEST_SKIP() << "NVML tells a container of no processes: what holds memory "
                    "is not seen here";
  }
  // Which number it has is the driver's to say: the machine's, in a container.
  ASSERT_EQ(holders.size(), 1u);

  (*holder)->Stop(0);
  bool is_told = false;
  monitor_->Release("attempt", [&] { is_told = true; });
  executor_.RunUntilIdle();
  EXPECT_FALSE(is_told);
  executor_.AdvanceBy(kReleaseDeadline + absl::Seconds(1));
  EXPECT_TRUE(is_told);
  EXPECT_EQ(Status().state(), v1::DEVICE_STATE_FENCED);
  EXPECT_THAT(Status().reason(), HasSubstr(absl::StrCat(*holders.begin())));

  const MachineClock clock;
  const absl::Duration killed = clock.Monotonic();
  (*holder)->Kill(0);
  while (Status().state() == v1::DEVICE_STATE_FENCED &&
         clock.Monotonic() - killed < absl::Minutes(1)) {
    executor_.AdvanceBy(absl::Seconds(1));
  }
  std::cout << "[ MEASURED ] after SIGKILL its memory is free within "
            << absl::ToDoubleMilliseconds(clock.Monotonic() - killed) << " ms"
            << std::endl;
  EXPECT_NE(Status().state(), v1::DEVICE_STATE_FENCED) << Status().reason();
}

}  // namespace
}  // namespace cohort::worker
