#include "head/state/cluster_file.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/testing/status_matchers.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

using ::testing::HasSubstr;

constexpr char kWhole[] = R"(
provider: process
max_nodes: 12
upscaling_speed: 2.5
idle_timeout: 90s
launch_timeout: 3m
node_types:
  gpu:
    resources: {CPU: 8, GPU: 4, memory: 64GiB, license: 1}
    accelerator_type: NVIDIA H100
    max: 4
    cost: 9.5
    spot: true
    idle_timeout: 5s
    taints: [reserved, team=a]
    provider_config:
      image: "20"
      zones: [a, b]
      size: 3
  cpu:
    resources: {CPU: 4}
    labels: {zone: a}
    min: 1
)";

TEST(ClusterFileTest, ReadsAll) {
  const auto file = ParseClusterFile(kWhole);
  COHORT_ASSERT_OK(file);
  EXPECT_EQ(file->provider(), "process");
  EXPECT_EQ(file->max_nodes(), 12u);
  EXPECT_EQ(file->upscaling_speed(), 2.5);
  EXPECT_EQ(absl::Microseconds(file->launch_timeout_us()), absl::Minutes(3));
  EXPECT_EQ(file->text(), kWhole);
  ASSERT_EQ(file->node_types_size(), 2);
  const v1::NodeType& cpu = file->node_types(0);
  EXPECT_EQ(cpu.name(), "cpu");
  EXPECT_EQ(cpu.min(), 1u);
  EXPECT_EQ(cpu.cost(), 1);
  EXPECT_EQ(absl::Microseconds(cpu.idle_timeout_us()), absl::Seconds(90));
  EXPECT_EQ(cpu.labels().at("zone"), "a");
  const v1::NodeType& gpu = file->node_types(1);
  EXPECT_EQ(*rpc::FromWire(gpu.resources()),
            *ParseResources("CPU=8,GPU=4,memory=64GiB,license=1"));
  EXPECT_EQ(absl::Microseconds(gpu.idle_timeout_us()), absl::Seconds(5));
  EXPECT_TRUE(gpu.spot());
  EXPECT_EQ(gpu.taints_size(), 2);
  EXPECT_EQ(gpu.provider_config(),
            R"({"image":"20","size":3,"zones":["a","b"]})");
}

struct Bad {
  const char* text;
  const char* says;
};

class BadClusterFileTest : public ::testing::TestWithParam<Bad> {};

TEST_P(BadClusterFileTest, IsRefusedWithItsLine) {
  const auto file = ParseClusterFile(GetParam().text);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadClusterFileTest,
    ::testing::Values(
        Bad{"", "not a list"}, Bad{"a: [", "line "},
        Bad{"provider: p\nnode_types: {}\nmax_node: 3", "line 3: "},
        Bad{"provider: p\nmax_nodes: 1\nmax_nodes: 2\nnode_types: {}",
            "more than once"},
        Bad{"node_types: {}", "names no provider"},
        Bad{"provider: p", "no node_types"},
        Bad{"provider: p\nmax_nodes: -1\nnode_types: {}", "line 2: max_nodes"},
        Bad{"provider: p\nidle_timeout: soon\nnode_types: {}", "line 2: idle"},
        Bad{"provider: p\nnode_types: {a: {}}", "has no resources"},
        Bad{"provider: p\nnode_types:\n  a: {resources: {CPU: x}}", "line 3: "},
        Bad{"provider: p\nnode_types:\n  a: {resources: {GPU: 0.5}}",
            "whole GPUs"},
        Bad{"provider: p\nnode_types:\n  a: {resources: {CPU: 1}, min: 3, max: "
            "2}",
            "above max"},
        Bad{"provider: p\nnode_types:\n  a b: {resources: {CPU: 1}}",
            "line 3: the name"},
        Bad{"provider: p\nnode_types:\n  a: {resources: {CPU: 1}, labels: "
            "{instance: x}}",
            "is the autoscaler's"},
        Bad{"provider: p\nnode_types:\n  a: {resources: {CPU: 1}, colour: red}",
            "has no key colour"},
        Bad{"provider: ./p\nnode_types: {}", "line 1: provider ./p is neither"},
        Bad{"provider: p\nmax_nodes: 2\nnode_types:\n  a: {resources: {CPU: "
            "1}, min: 1}\n  b: {resources: {CPU: 1}, min: 2}",
            "is 3 together, above max_nodes 2"},
        Bad{"provider: \"\xff\"\nnode_types: {}", "not UTF-8"}));

TEST(ClusterFileTest, AliasesMultiplyNothing) {
  std::string text =
      "provider: p\nnode_types:\n  a:\n    resources: {CPU: 1}\n"
      "    provider_config:\n      v0: &v0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    absl::StrAppend(&text, "      v", i, ": &v", i, " [*v", i - 1, ", *v",
                    i - 1, ", *v", i - 1, "]\n");
  }
  EXPECT_THAT(std::string(ParseClusterFile(text).status().message()),
              HasSubstr("provider_config has more than"));
}

}  // namespace
}  // namespace cohort::head
