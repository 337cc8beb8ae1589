#include "worker/nvml_devices.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;
using ::testing::Property;
using ::testing::SizeIs;

// All that it says, in one text.
std::string TextOf(const DeviceAnswer& answer) {
  return absl::StrCat(answer.id, "|", answer.lost, "|", answer.error, "|",
                      answer.sample.ShortDebugString());
}

constexpr char kTwoGpus[] = R"(
0 uuid aa
0 name NVIDIA H100 80GB HBM3
0 pci 00000000:3B:00.0
0 numa 1
0 memory 1000
0 peer 00000000:5E:00.0
0 peer 00000000:5E:00.0
1 uuid bb
1 name NVIDIA H100 80GB HBM3
1 pci 00000000:5E:00.0
1 memory 2000
1 peer 00000000:3B:00.0
)";

// The library of worker/testing/fake_nvml.cc, opened as NVML is.
class NvmlDevicesTest : public ::testing::Test {
 protected:
  NvmlDevicesTest() { setenv("COHORT_FAKE_NVML", script_.c_str(), 1); }

  void Script(const std::string& text) { std::ofstream(script_) << text; }
  std::vector<Device> List() {
    const auto devices = devices_.List();
    EXPECT_THAT(devices, IsOk());
    return devices.value_or(std::vector<Device>());
  }

  TempDir dir_;
  const std::string script_ = dir_.path() + "/script";
  NvmlDevices devices_{COHORT_FAKE_NVML_LIBRARY};
};

TEST_F(NvmlDevicesTest, SaysWhatDevicesAre) {
  Script(kTwoGpus);
  const std::vector<Device> devices = List();
  ASSERT_THAT(devices, SizeIs(2));
  EXPECT_EQ(devices[0].ShortDebugString(),
            "id: \"GPU-aa\" kind: \"gpu\" model: \"NVIDIA H100 80GB HBM3\" "
            "memory_bytes: 1000 pci_bus_id: \"00000000:3b:00.0\" numa_node: 1 "
            "nvlink_peers: \"GPU-bb\"");
  EXPECT_THAT(devices[1].nvlink_peers(), ElementsAre("GPU-aa"));
  EXPECT_FALSE(devices[1].has_numa_node());
}

// Of a Grace Hopper's GPU the driver knows two: its own memory's, which has no
// CPUs, and the one of the CPUs beside it.
TEST_F(NvmlDevicesTest, ItsNodeIsTheOneOfTheCpusNearIt) {
  Script("0 uuid aa\n0 own_numa 4\n0 numa 0\n1 uuid bb\n1 numa 70\n");
  const std::vector<Device> devices = List();
  EXPECT_TRUE(devices[0].has_numa_node());
  EXPECT_EQ(devices[0].numa_node(), 0);
  EXPECT_EQ(devices[1].numa_node(), 70);
}

TEST_F(NvmlDevicesTest, AGpuThatIsDividedIsItsInstances) {
  Script(std::string(kTwoGpus) + "1 mig 2\n1 temperature 41\n1 used 7\n");
  const std::vector<Device> devices = List();
  ASSERT_THAT(devices, SizeIs(3));
  EXPECT_EQ(devices[1].id(), "MIG-bb-0");
  EXPECT_EQ(devices[2].id(), "MIG-bb-1");
  EXPECT_EQ(devices[1].parent(), "GPU-bb");
  EXPECT_THAT(devices[1].model(), HasSubstr("MIG 1g.5gb"));
  const auto samples = devices_.Sample();
  EXPECT_EQ(samples[2].sample.temperature_celsius(), 41);
  Script(std::string(kTwoGpus) + "1 mig 2\nxid 1 48\n");
  bool supported = false;
  const auto xid = devices_.WaitXid(absl::ZeroDuration(), &supported);
  ASSERT_TRUE(xid.has_value());
  EXPECT_THAT(xid->ids, ElementsAre("MIG-bb-0", "MIG-bb-1"));
}

TEST_F(NvmlDevicesTest, WhatALibraryDoesNotSupportIsUnknown) {
  Script("0 uuid aa\n0 name a\n0 memory 1000\n0 no_mig 1\n");
  ASSERT_THAT(List(), SizeIs(1));
  const auto samples = devices_.Sample();
  ASSERT_THAT(samples, SizeIs(1));
  EXPECT_EQ(TextOf(samples[0]), "GPU-aa|||memory_used_bytes: 0");
}

TEST_F(NvmlDevicesTest, SamplesAreWhatTheDriverSaysNow) {
  Script(kTwoGpus);
  List();
  Script(std::string(kTwoGpus) +
         "0 used 300\n0 utilization 99\n0 power 512000\n0 temperature 64\n"
         "0 ecc_volatile 2\n0 ecc_aggregate 5\n0 remapped 1\n"
         "0 remap_pending 1\n");
  const auto samples = devices_.Sample();
  ASSERT_THAT(samples, SizeIs(2));
  EXPECT_EQ(TextOf(samples[0]),
            "GPU-aa|||utilization_percent: 99 memory_used_bytes: 300 "
            "power_milliwatts: 512000 temperature_celsius: 64 ecc_volatile: 2 "
            "ecc_aggregate: 5 remapped_rows: 1 remap_pending: true "
            "remap_failed: false");
}

// The head refuses a node that says what cannot be shown.
TEST_F(NvmlDevicesTest, WhatCannotBeShownIsNotSaid) {
  Script(
      "0 uuid aa\n0 name \x1b[31mred\n0 pci \x01\n0 memory 1000\n"
      "1 uuid bb\n1 name \xff\n1 pci 0000:GG:00.0\n1 peer \x01\n"
      "2 uuid \x01\n"
      "3 uuid aa\n"
      "1 memory -1\n1 used -1\n");
  const std::vector<Device> devices = List();
  ASSERT_THAT(devices, SizeIs(4));
  EXPECT_EQ(devices[0].ShortDebugString(),
            "id: \"GPU-aa\" kind: \"gpu\" memory_bytes: 1000");
  EXPECT_EQ(devices[1].ShortDebugString(), "id: \"GPU-bb\" kind: \"gpu\"");
  EXPECT_TRUE(IsAbsent(devices[2]));
  EXPECT_THAT(devices[2].reason(), HasSubstr("does not say which it is"));
  EXPECT_TRUE(IsAbsent(devices[3]));
  EXPECT_THAT(devices[3].reason(), HasSubstr("GPU-aa"));
  const auto samples = devices_.Sample();
  ASSERT_THAT(samples, SizeIs(2));
  EXPECT_FALSE(samples[1].sample.has_memory_used_bytes());
}

// Those write other things where version 3 has its address.
TEST_F(NvmlDevicesTest, AnAddressOfBeforeVersionThreeIsTheShortOne) {
  Script("0 uuid aa\n");
  auto api = nvml::LoadApi(COHORT_FAKE_NVML_LIBRARY);
  ASSERT_THAT(api, IsOk());
  api->pci_info = nullptr;
  api->pci_info_old = [](nvml::Handle, nvml::PciInfo* info) {
    std::snprintf(info->bus_id_legacy, sizeof(info->bus_id_legacy),
                  "0000:3B:00.0");
    info->bus_id[0] = '7';
    return nvml::kSuccess;
  };
  NvmlDevices old(*api);
  const auto devices = old.List();
  ASSERT_THAT(devices, IsOk());
  EXPECT_THAT(*devices,
              ElementsAre(Property(&Device::pci_bus_id, "0000:3b:00.0")));
}

// Behind an NVSwitch each link's far end is the switch.
TEST_F(NvmlDevicesTest, PeersBehindASwitchAreThoseThatNvlinkReaches) {
  Script(
      "0 uuid aa\n0 p2p 1\n0 peer 00000000:C0:00.0\n0 p2p 2\n"
      "1 uuid bb\n1 p2p 0\n1 p2p 2\n"
      "2 uuid cc\n2 p2p 0\n2 p2p 1\n"
      "3 uuid dd\n");
  const std::vector<Device> devices = List();
  ASSERT_THAT(devices, SizeIs(4));
  EXPECT_THAT(devices[0].nvlink_peers(), ElementsAre("GPU-bb", "GPU-cc"));
  EXPECT_THAT(devices[2].nvlink_peers(), ElementsAre("GPU-aa", "GPU-bb"));
  EXPECT_THAT(devices[3].nvlink_peers(), IsEmpty());
}

// Where the driver tells them apart.
TEST_F(NvmlDevicesTest, WhatTheDriverKeepsForItselfIsNotUsed) {
  Script(std::string(kTwoGpus) + "0 used 300\n0 reserved 50\n1 used 300\n");
  List();
  const auto samples = devices_.Sample();
  EXPECT_EQ(samples[0].sample.memory_used_bytes(), 300);
  EXPECT_EQ(samples[0].sample.memory_reserved_bytes(), 50);
  EXPECT_EQ(samples[1].sample.memory_used_bytes(), 300);
  EXPECT_FALSE(samples[1].sample.has_memory_reserved_bytes());
  EXPECT_EQ(samples[0].error, "");
}

// What a container or a user may not ask is not told: no fault.
TEST_F(NvmlDevicesTest, WhatMayNotBeAskedIsUnknown) {
  Script(kTwoGpus);
  List();
  for (const int code :
       {nvml::kNotSupported, nvml::kNoPermission, nvml::kFunctionNotFound}) {
    Script(absl::StrCat(kTwoGpus, "0 used 7\n0 error ", code, "\n"));
    EXPECT_EQ(TextOf(devices_.Sample()[0]), "GPU-aa|||") << code;
  }
}

// DV-1
TEST_F(NvmlDevicesTest, OneThatIsLostSaysSoAndTheOthersGoOn) {
  Script(kTwoGpus);
  List();
  Script(std::string(kTwoGpus) + "0 lost 1\n1 temperature 30\n");
  auto samples = devices_.Sample();
  EXPECT_EQ(samples[0].lost, "GPU is lost");
  EXPECT_EQ(samples[1].sample.temperature_celsius(), 30);
  Script(std::string(kTwoGpus) + "0 error 999\n");
  samples = devices_.Sample();
  EXPECT_EQ(samples[0].error, "memory: Unknown Error");
  EXPECT_EQ(samples[0].lost, "");
  Script(std::string(kTwoGpus) + "0 error 16\n");
  EXPECT_EQ(devices_.Sample()[0].lost, "GPU requires a reset");
}

// DV-1
TEST_F(NvmlDevicesTest, OneWithoutAHandleHasItsPlaceOnly) {
  Script(std::string(kTwoGpus) + "0 no_handle 1\n");
  const std::vector<Device> devices = List();
  EXPECT_THAT(devices, ElementsAre(Property(&Device::reason, "GPU is lost"),
                                   Property(&Device::id, "GPU-bb")));
  EXPECT_TRUE(IsAbsent(devices[0]));
  EXPECT_THAT(devices[1].nvlink_peers(), IsEmpty());
  const auto samples = devices_.Sample();
  EXPECT_THAT(samples, ElementsAre(Field(&DeviceAnswer::id, "GPU-bb")));
}

TEST_F(NvmlDevicesTest, NamesTheProcessesWithMemory) {
  Script(kTwoGpus);
  List();
  std::string many = kTwoGpus;
  for (int pid = 1; pid <= 200; ++pid) {
    many += "1 pid " + std::to_string(pid) + "\n";
  }
  Script(many + "0 pid 17:4096\n");
  EXPECT_THAT(devices_.Processes("GPU-aa"),
              Optional(ElementsAre(DeviceProcess{.pid = 17, .bytes = 4096})));
  const auto processes = devices_.Processes("GPU-bb");
  ASSERT_THAT(processes, Optional(SizeIs(200)));
  EXPECT_EQ((*processes)[0].bytes, std::nullopt);
  EXPECT_EQ(devices_.Processes("GPU-none"), std::nullopt);
}

// DV-8
TEST_F(NvmlDevicesTest, ProcessesThatCannotBeAskedForAreNotNone) {
  Script(kTwoGpus);
  List();
  for (const int code :
       {nvml::kNotSupported, nvml::kFunctionNotFound, nvml::kNoPermission}) {
    Script(absl::StrCat(kTwoGpus, "0 pid 17\n0 error ", code, "\n"));
    EXPECT_THAT(devices_.Processes("GPU-aa"), Optional(IsEmpty())) << code;
  }
  for (const int code : {999, int{nvml::kGpuIsLost}}) {
    Script(absl::StrCat(kTwoGpus, "0 pid 17\n0 error ", code, "\n"));
    EXPECT_EQ(devices_.Processes("GPU-aa"), std::nullopt) << code;
  }
  std::string many = kTwoGpus;
  for (int pid = 1; pid <= 5'000; ++pid) absl::StrAppend(&many, "0 pid 1\n");
  Script(many);
  EXPECT_EQ(devices_.Processes("GPU-aa"), std::nullopt);
}

TEST_F(NvmlDevicesTest, TellsEachXidOnce) {
  Script(std::string(kTwoGpus));
  List();
  // The library's own count goes on over the tests of one process.
  bool supported = false;
  while (devices_.WaitXid(absl::ZeroDuration(), &supported).has_value()) {
  }
  EXPECT_TRUE(supported);
  std::string text = kTwoGpus;
  for (int i = 0; i < 8; ++i) text += "xid 1 79\n";
  Script(text);
  const auto xid = devices_.WaitXid(absl::Seconds(1), &supported);
  EXPECT_THAT(xid, Optional(Xid{.ids = {"GPU-bb"}, .code = 79}));
}

TEST_F(NvmlDevicesTest, ADriverThatIsNotLoadedIsAnErrorThatSaysWhatToDo) {
  Script("init 9\n");
  EXPECT_THAT(devices_.List().status(),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("Driver Not Loaded"),
                             HasSubstr("--num-gpus 0"))));
}

TEST(NvmlLibraryTest, AMachineWithoutADriverHasNoGpus) {
  NvmlDevices source("libno-such-nvml.so.1");
  const auto devices = source.List();
  ASSERT_THAT(devices, IsOk());
  EXPECT_THAT(*devices, IsEmpty());
  bool supported = true;
  EXPECT_EQ(source.WaitXid(absl::Seconds(1), &supported), std::nullopt);
  EXPECT_FALSE(supported);
  EXPECT_THAT(source.Sample(), IsEmpty());
  NvmlDevices elsewhere("/no/such/libnvidia-ml.so.1");
  EXPECT_THAT(elsewhere.List().status(),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("/no/such/libnvidia-ml.so.1")));
}

TEST(NvmlLibraryTest, ALibraryThatIsNotNvmlIsAnErrorThatNamesTheSymbol) {
  NvmlDevices source("libm.so.6");
  EXPECT_THAT(source.List().status(), StatusIs(absl::StatusCode::kUnavailable,
                                               HasSubstr("nvmlInit_v2")));
}

// Another hand's: Debian's pcp-testsuite has a library with old names, without
// uuids and events.  Installed, or as tools/setup.sh takes it, with the libpcp
// that it links.
TEST(NvmlLibraryTest, DebiansFakeLibraryIsRead) {
  std::string library = "/var/lib/pcp/testsuite/src/libnvidia-ml.so";
  if (access(library.c_str(), R_OK) != 0) {
    const std::string directory = COHORT_PCP_TESTSUITE;
    library = directory + "/libnvidia-ml.so";
    if (access(library.c_str(), R_OK) != 0) {
      GTEST_SKIP() << "no " << library << ": see tools/setup.sh";
    }
    if (dlopen((directory + "/libpcp.so.3").c_str(), RTLD_NOW) == nullptr) {
      GTEST_SKIP() << dlerror();  // it lacks one that it links itself
    }
  }
  NvmlDevices source(library);
  const auto devices = source.List();
  ASSERT_THAT(devices, IsOk());
  ASSERT_THAT(*devices, SizeIs(2));
  EXPECT_EQ((*devices)[0].id(), "0");
  EXPECT_EQ((*devices)[0].model(), "GeForce 100M Series");
  EXPECT_GT((*devices)[0].memory_bytes(), 0);
  // Its structure has no room for more.
  EXPECT_EQ((*devices)[0].pci_bus_id(), "");
  const auto samples = source.Sample();
  ASSERT_THAT(samples, SizeIs(2));
  EXPECT_EQ(samples[0].error, "");
  EXPECT_TRUE(samples[0].sample.has_temperature_celsius());
  EXPECT_TRUE(samples[0].sample.has_utilization_percent());
  EXPECT_FALSE(samples[0].sample.has_ecc_volatile());
  EXPECT_THAT(source.Processes("0"), Optional(Not(IsEmpty())));
  bool supported = true;
  source.WaitXid(absl::ZeroDuration(), &supported);
  EXPECT_FALSE(supported);
}

}  // namespace
}  // namespace cohort::worker
