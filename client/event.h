#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

#include "common/job_id.h"
#include "common/strong_id.h"

namespace cohort {

// Something that happened in the cluster, as the head recorded it.  A value.
struct Event {
  uint64_t number = 0;  // in order, without holes
  std::optional<absl::Time> at;
  std::string kind;  // "job_submitted", "node_dead"
  // What it happened to; nothing: none.
  std::optional<JobId> job;
  std::optional<AttemptId> attempt;
  std::optional<NodeId> node;
  std::string node_name;  // while the head remembers the node
  // By whom, and with which request.
  std::string principal;
  std::string name_space;
  std::string request_id;
  uint64_t cause = 0;  // number of the event that led to it; 0: none
  std::string text;

  // Events before this one that were asked for and are not kept any more.
  uint64_t skipped = 0;
  // The store was restored from a backup since the event before it was read:
  // from this number on its history is another one.
  bool history_replaced = false;
};

}  // namespace cohort
