#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/device_sample.h"
#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/store/records.h"

// What a node says that it has, as the domain hears it; node_service makes it
// from node.proto.  Peers' words: every number and text is to be checked.
namespace cohort::head {

using GpuAbortLevel = v1::GpuAbortLevel;

struct ObservedRank {
  int rank = 0;
  RankState state = v1::RANK_STATE_PENDING;
  int64_t pid = 0;
  std::optional<ExitStatus> exit;
  int exit_order = 0;  // on this node, 1 ended first; 0: not yet
  bool ended_by_order = false;
  GpuAbortLevel gpu_abort_level =
      v1::GPU_ABORT_LEVEL_UNSPECIFIED;  // the highest that it told of
  std::string gpu_why;
};

struct MetricsReport {
  int rank = 0;
  uint64_t count = 0;
  std::string json;
};

struct PendingExchange {
  std::string tag;
  int rank = 0;
  std::string blob;
};

struct ObservedAttempt {
  AttemptId attempt;
  JobId job;
  int64_t epoch = 0;
  v1::Phase phase = v1::PHASE_UNSPECIFIED;
  v1::EndCause end = v1::END_CAUSE_UNSPECIFIED;
  std::string detail;
  int master_port = 0;
  std::vector<ObservedRank> ranks;
  std::vector<MetricsReport> metrics;
  std::vector<Checkpoint> checkpoints;
  std::vector<PendingExchange> exchanges;
  std::vector<std::string> removed_checkpoints;
  std::string stderr_tail;
  absl::Duration ran;  // since its ranks started; with the end
  std::optional<v1::PreflightReport> preflight;
  std::string generation;  // that it began under; empty: of an older worker
  // What it holds of its node, in full sets: resources and devices only.
  std::optional<AttemptPart> held;
};

struct Observed {
  bool full = false;
  std::vector<ObservedAttempt> attempts;
};

// How a node says that one of its devices is.
struct ObservedDevice {
  std::string id;
  DeviceState state = v1::DEVICE_STATE_HEALTHY;
  std::string reason;
  DeviceSample sample;

  friend bool operator==(const ObservedDevice&,
                         const ObservedDevice&) = default;
};

struct Registration {
  NodeId node;
  std::string name;
  std::string host;
  int64_t pid = 0;
  ResourceSet resources;
  std::vector<Device> devices;
  std::map<std::string, std::string> labels;
  std::vector<Taint> taints;
  std::string build;  // of its worker daemon
  Observed observed;  // everything that it has
  bool leaving = false;
  std::string unfit;  // why no attempt could begin there; empty: it could
  std::vector<ObservedDevice> device_states;  // those not named are healthy
};

// Attempts that one node may have, and of those it may have though nobody wants
// them there.
inline constexpr size_t kObservedAttemptsMax = 16'384;
inline constexpr size_t kOrphansMax = 4'096;

// InvalidArgument, naming what, when a node cannot be what it says.
absl::Status ValidateRegistration(const Registration& registration);
// The same of what it has.
absl::Status ValidateObserved(const Observed& observed);

}  // namespace cohort::head
