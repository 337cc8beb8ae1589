#include "rpc/wire_values.h"

#include "absl/strings/str_cat.h"

#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::rpc {

v1::ResourceSet ToWire(const ResourceSet& resources) {
  v1::ResourceSet wire;
  for (const auto& [name, amount] : resources) {
    v1::ResourceSet::Amount* out = wire.add_amounts();
    out->set_name(name);
    out->set_ten_thousandths(amount.ten_thousandths());
  }
  return wire;
}

absl::StatusOr<ResourceSet> FromWire(const v1::ResourceSet& wire) {
  ResourceSet resources;
  for (const v1::ResourceSet::Amount& amount : wire.amounts()) {
    if (!resources.Get(amount.name()).IsZero()) {
      return absl::InvalidArgumentError(
          absl::StrCat("resource ", Quoted(amount.name()), " comes twice"));
    }
    resources.Set(amount.name(),
                  Amount::FromTenThousandths(amount.ten_thousandths()));
  }
  COHORT_RETURN_IF_ERROR(resources.Validate());
  return resources;
}

v1::DeviceSample ToWire(const DeviceSample& sample) {
  v1::DeviceSample wire;
  if (sample.utilization_percent.has_value()) {
    wire.set_utilization_percent(*sample.utilization_percent);
  }
  if (sample.memory_used_bytes.has_value()) {
    wire.set_memory_used_bytes(*sample.memory_used_bytes);
  }
  if (sample.memory_reserved_bytes.has_value()) {
    wire.set_memory_reserved_bytes(*sample.memory_reserved_bytes);
  }
  if (sample.power_milliwatts.has_value()) {
    wire.set_power_milliwatts(*sample.power_milliwatts);
  }
  if (sample.temperature_celsius.has_value()) {
    wire.set_temperature_celsius(*sample.temperature_celsius);
  }
  if (sample.ecc_volatile.has_value()) {
    wire.set_ecc_volatile(*sample.ecc_volatile);
  }
  if (sample.ecc_aggregate.has_value()) {
    wire.set_ecc_aggregate(*sample.ecc_aggregate);
  }
  if (sample.remapped_rows.has_value()) {
    wire.set_remapped_rows(*sample.remapped_rows);
  }
  if (sample.remap_pending.has_value()) {
    wire.set_remap_pending(*sample.remap_pending);
  }
  if (sample.remap_failed.has_value()) {
    wire.set_remap_failed(*sample.remap_failed);
  }
  wire.set_last_xid(sample.last_xid);
  return wire;
}

DeviceSample FromWire(const v1::DeviceSample& wire) {
  DeviceSample sample;
  if (wire.has_utilization_percent()) {
    sample.utilization_percent = wire.utilization_percent();
  }
  if (wire.has_memory_used_bytes()) {
    sample.memory_used_bytes = wire.memory_used_bytes();
  }
  if (wire.has_memory_reserved_bytes()) {
    sample.memory_reserved_bytes = wire.memory_reserved_bytes();
  }
  if (wire.has_power_milliwatts()) {
    sample.power_milliwatts = wire.power_milliwatts();
  }
  if (wire.has_temperature_celsius()) {
    sample.temperature_celsius = wire.temperature_celsius();
  }
  if (wire.has_ecc_volatile()) {
    sample.ecc_volatile = wire.ecc_volatile();
  }
  if (wire.has_ecc_aggregate()) {
    sample.ecc_aggregate = wire.ecc_aggregate();
  }
  if (wire.has_remapped_rows()) {
    sample.remapped_rows = wire.remapped_rows();
  }
  if (wire.has_remap_pending()) {
    sample.remap_pending = wire.remap_pending();
  }
  if (wire.has_remap_failed()) {
    sample.remap_failed = wire.remap_failed();
  }
  sample.last_xid = wire.last_xid();
  return sample;
}

v1::Taint ToWire(const Taint& taint) {
  v1::Taint wire;
  wire.set_key(taint.key);
  wire.set_value(taint.value);
  return wire;
}

Taint FromWire(const v1::Taint& wire) {
  return {.key = wire.key(), .value = wire.value()};
}

v1::Toleration ToWire(const Toleration& toleration) {
  v1::Toleration wire;
  wire.set_key(toleration.key);
  wire.set_value(toleration.value.value_or(""));
  wire.set_any_value(!toleration.value.has_value());
  return wire;
}

Toleration FromWire(const v1::Toleration& wire) {
  Toleration toleration;
  toleration.key = wire.key();
  if (!wire.any_value()) toleration.value = wire.value();
  return toleration;
}

google::protobuf::Duration ToWire(absl::Duration duration) {
  google::protobuf::Duration wire;
  wire.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &duration));
  wire.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(duration)));
  return wire;
}

absl::Duration FromWire(const google::protobuf::Duration& wire) {
  // Whole microseconds, which is what rows keep: what is decided by it is the
  // same after a restart.
  return absl::Microseconds(absl::ToInt64Microseconds(
      absl::Seconds(wire.seconds()) + absl::Nanoseconds(wire.nanos())));
}

google::protobuf::Timestamp ToWire(absl::Time time) {
  google::protobuf::Timestamp wire;
  absl::Duration rest = time - absl::UnixEpoch();
  wire.set_seconds(absl::IDivDuration(rest, absl::Seconds(1), &rest));
  wire.set_nanos(static_cast<int32_t>(absl::ToInt64Microseconds(rest)) * 1000);
  return wire;
}

absl::Time FromWire(const google::protobuf::Timestamp& wire) {
  return absl::UnixEpoch() + absl::Seconds(wire.seconds()) +
         absl::Nanoseconds(wire.nanos());
}

}  // namespace cohort::rpc
