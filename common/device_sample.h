#pragma once

#include <cstdint>
#include <optional>

namespace cohort {

// What a device said of itself at one moment; nothing where it does not say.
struct DeviceSample {
  std::optional<int64_t> utilization_percent;
  std::optional<int64_t> memory_used_bytes;
  // By the driver: neither used nor free.
  std::optional<int64_t> memory_reserved_bytes = {};
  std::optional<int64_t> power_milliwatts;
  std::optional<int64_t> temperature_celsius;
  // Uncorrectable errors since the driver was loaded, and in its life.
  std::optional<int64_t> ecc_volatile;
  std::optional<int64_t> ecc_aggregate;
  std::optional<int64_t> remapped_rows;  // because of uncorrectable errors
  std::optional<bool> remap_pending;
  std::optional<bool> remap_failed;
  uint64_t last_xid = 0;  // 0: none since its worker began

  friend bool operator==(const DeviceSample&, const DeviceSample&) = default;
};

}  // namespace cohort
