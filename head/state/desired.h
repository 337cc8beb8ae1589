#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "head/store/records.h"

// What the head wants of a node, as the domain says it; node_service turns it
// into node.proto.
namespace cohort::head {

using Goal = v1::Goal;

struct DesiredRank {
  int rank = 0;
  int local_rank = 0;
  std::vector<std::string> gpu_ids;

  friend bool operator==(const DesiredRank&, const DesiredRank&) = default;
};

// What all ranks of an attempt gave under one tag, by rank.
struct Exchange {
  AttemptId attempt;
  std::string tag;
  std::vector<std::string> blobs;

  friend bool operator==(const Exchange&, const Exchange&) = default;
};
// Shared: the table and the messages to each node of the attempt.
using SharedExchange = std::shared_ptr<const Exchange>;

// The whole picture of one attempt for one node; with kForget only the ids and
// the reason.
struct DesiredAttempt {
  AttemptId attempt;
  JobId job;
  int number = 0;
  int64_t epoch = 0;
  Goal goal = v1::GOAL_FORGET;

  std::string job_name;
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  std::string package_hash;
  bool preflight = false;  // before the command
  std::vector<DesiredRank> ranks;
  int world_size = 0;
  int node_rank = 0;
  int node_count = 0;
  bool holds_rank_zero = false;
  ResourceSet resources_per_rank;
  std::string storage_path;
  std::optional<Checkpoint> restore;
  int max_failures = 0;

  std::string master_address;  // with kRun
  int master_port = 0;
  // How much longer its ranks may run, with kRun.
  absl::Duration time_limit = absl::InfiniteDuration();
  // Before SIGKILL, with kStop; with kRun what they get at the limit.
  absl::Duration grace;
  std::string reason;  // with kStop and kForget, for the node's log
  std::vector<std::string> retired_checkpoints;

  friend bool operator==(const DesiredAttempt&,
                         const DesiredAttempt&) = default;
};

}  // namespace cohort::head
