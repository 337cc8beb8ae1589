#include "worker/numa_topology.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/temp_dir.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

TEST(NumaTopologyTest, ReadsTheKernelsLists) {
  EXPECT_THAT(ParseCpuList("0-3,8\n"), Optional(ElementsAre(0, 1, 2, 3, 8)));
  EXPECT_THAT(ParseCpuList("5"), Optional(ElementsAre(5)));
  EXPECT_THAT(ParseCpuList("\n"), Optional(IsEmpty()));
  for (const char* bad : {"x", "3-1", "1-2-3", "-1", "0-9999999", "1,,2"}) {
    EXPECT_EQ(ParseCpuList(bad), std::nullopt) << bad;
  }
}

TEST(NumaTopologyTest, ADeviceIsNearTheCpusOfItsNode) {
  const TempDir dir;
  for (const auto& [node, cpus] :
       {std::pair(0, "0-1"), std::pair(1, "2-3"), std::pair(2, "")}) {
    const std::string path = dir.path() + "/node" + std::to_string(node);
    std::filesystem::create_directory(path);
    std::ofstream(path + "/cpulist") << cpus << "\n";
  }
  std::vector<Device> devices(4);
  devices[0].set_id("a");
  devices[0].set_numa_node(1);
  devices[1].set_id("without-cpus");
  devices[1].set_numa_node(2);
  devices[2].set_id("elsewhere");
  devices[2].set_numa_node(7);
  devices[3].set_id("unknown");
  EXPECT_THAT(CpusNear(devices, dir.path()),
              ElementsAre(Pair("a", ElementsAre(2, 3))));
}

}  // namespace
}  // namespace cohort::worker
