#include "head/metrics/device_metrics.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::head {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

std::map<std::string, MetricFamily> ByName(const std::vector<DeviceRow>& rows) {
  std::map<std::string, MetricFamily> families;
  for (MetricFamily& family : DeviceMetrics(rows)) {
    families[family.name] = family;
  }
  return families;
}

TEST(DeviceMetricsTest, RowsAreNamedAsDcgmExporterNamesThem) {
  DeviceRow row{.index = 3,
                .id = "GPU-aa",
                .bus_id = "00000000:3b:00.0",
                .model = "NVIDIA H100",
                .node = "n1",
                .job = "0af1",
                .memory_bytes = int64_t{80} << 30,
                .state = v1::DEVICE_STATE_FENCED};
  row.sample.set_utilization_percent(97);
  row.sample.set_memory_used_bytes(int64_t{60} << 30);
  row.sample.set_memory_reserved_bytes(int64_t{1} << 30);
  row.sample.set_power_milliwatts(512'500);
  row.sample.set_temperature_celsius(64);
  row.sample.set_ecc_volatile(2);
  row.sample.set_ecc_aggregate(5);
  row.sample.set_remapped_rows(1);
  row.sample.set_remap_pending(true);
  row.sample.set_remap_failed(false);
  row.sample.set_last_xid(94);
  const auto families = ByName({row});
  const std::map<std::string, double> expected = {
      {"DCGM_FI_DEV_GPU_UTIL", 97},
      {"DCGM_FI_DEV_FB_USED", 60 * 1024},
      {"DCGM_FI_DEV_FB_RESERVED", 1024},
      {"DCGM_FI_DEV_FB_FREE", 19 * 1024},
      {"DCGM_FI_DEV_POWER_USAGE", 512.5},
      {"DCGM_FI_DEV_GPU_TEMP", 64},
      {"DCGM_FI_DEV_XID_ERRORS", 94},
      {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 2},
      {"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", 5},
      {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 1},
      {"DCGM_FI_DEV_ROW_REMAP_PENDING", 1},
      {"DCGM_FI_DEV_ROW_REMAP_FAILURE", 0}};
  for (const auto& [name, value] : expected) {
    ASSERT_TRUE(families.contains(name)) << name;
    ASSERT_THAT(families.at(name).samples, SizeIs(1)) << name;
    EXPECT_EQ(families.at(name).samples[0].value, value) << name;
    EXPECT_THAT(
        families.at(name).samples[0].labels,
        ElementsAre(Pair("gpu", "3"), Pair("UUID", "GPU-aa"),
                    Pair("pci_bus_id", "00000000:3B:00.0"),
                    Pair("device", "nvidia3"), Pair("modelName", "NVIDIA H100"),
                    Pair("Hostname", "n1"), Pair("job_id", "0af1")));
  }
  EXPECT_THAT(families.at("cohort_gpu_state").samples[0].labels.back(),
              Pair("state", "fenced"));
}

TEST(DeviceMetricsTest, WhatIsNotKnownHasNoRow) {
  const auto families = ByName({{.id = "SIM-1"}});
  EXPECT_THAT(families.at("DCGM_FI_DEV_GPU_UTIL").samples, IsEmpty());
  EXPECT_THAT(families.at("DCGM_FI_DEV_FB_FREE").samples, IsEmpty());
  EXPECT_THAT(families.at("cohort_gpu_state").samples, SizeIs(1));
  EXPECT_THAT(families.at("cohort_gpu_state").samples[0].labels, SizeIs(6));
}

}  // namespace
}  // namespace cohort::head
