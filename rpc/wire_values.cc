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
