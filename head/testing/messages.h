#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "common/resources.h"
#include "head/store/records.h"
#include "rpc/wire_values.h"

// Messages with some fields set, for tests.
namespace cohort::head {

struct ExitFields {
  int code = 0;
  int signal = 0;
  bool oom_killed = false;
  std::string detail = {};
};
inline ExitStatus ExitOf(const ExitFields& fields) {
  ExitStatus exit;
  exit.set_code(fields.code);
  exit.set_signal(fields.signal);
  exit.set_oom_killed(fields.oom_killed);
  exit.set_detail(fields.detail);
  return exit;
}

inline Checkpoint CheckpointOf(const std::string& path, int64_t step,
                               int64_t epoch) {
  Checkpoint checkpoint;
  checkpoint.set_path(path);
  checkpoint.set_step(step);
  checkpoint.set_epoch(epoch);
  return checkpoint;
}

inline v1::PreflightReport PreflightOf(PreflightVerdict verdict,
                                       const std::string& summary,
                                       const std::string& json) {
  v1::PreflightReport report;
  report.set_verdict(verdict);
  report.set_summary(summary);
  report.set_json(json);
  return report;
}

struct DeviceFields {
  std::string id;
  std::string kind = "gpu";
  std::string model = {};
  int64_t memory_bytes = 0;
  bool simulated = false;
  DeviceState state = v1::DEVICE_STATE_HEALTHY;
};
inline void AddDevice(v1::Node& node, const DeviceFields& fields) {
  Device& device = *node.add_devices();
  device.set_id(fields.id);
  device.set_kind(fields.kind);
  device.set_model(fields.model);
  device.set_memory_bytes(fields.memory_bytes);
  device.set_simulated(fields.simulated);
  device.set_state(fields.state);
}

inline void AddTaint(v1::Node& node, const std::string& key,
                     const std::string& value = "") {
  v1::Taint& taint = *node.add_taints();
  taint.set_key(key);
  taint.set_value(value);
}

inline void SetResources(v1::Node& node, const ResourceSet& resources) {
  *node.mutable_resources() = rpc::ToWire(resources);
}
// Not checked, as a node may say anything.
inline void SetResource(v1::Node& node, const std::string& name,
                        Amount amount) {
  auto& amounts = *node.mutable_resources()->mutable_amounts();
  auto place =
      std::find_if(amounts.begin(), amounts.end(),
                   [&name](const auto& each) { return each.name() == name; });
  auto& set = place == amounts.end() ? *amounts.Add() : *place;
  set.set_name(name);
  set.set_ten_thousandths(amount.ten_thousandths());
}

inline void SetLabels(v1::Node& node,
                      const std::map<std::string, std::string>& labels) {
  node.mutable_labels()->clear();
  node.mutable_labels()->insert(labels.begin(), labels.end());
}

}  // namespace cohort::head
