#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "head/store/records.h"
#include "head/store/store.h"

namespace cohort::head {

// An event, or a call of the audit log, that is in the store: what history
// needs of it.
struct StoredEvent {
  uint64_t number = 0;
  absl::Time at;  // or of one soon after it
  int64_t bytes = 0;
};

// What a head loads at its start and after a failed append.  Of events and the
// audit log only which there are: they are read from the store on request.
struct Rows {
  std::optional<ClusterRecord> cluster;  // none: a new, empty store
  std::vector<NodeRecord> nodes;
  std::vector<JobRecord> jobs;          // as their arrays say, too
  std::vector<AttemptRecord> attempts;  // with their processes' own rows
  std::vector<ArrayRecord> arrays;
  std::vector<WaitReasonRecord> wait_reasons;
  std::vector<RequestRecord> requests;
  std::vector<PackageRecord> packages;
  std::vector<DriverRecord> drivers;
  std::vector<ClusterFile> cluster_file;  // at most one
  std::vector<InstanceRecord> instances;
  std::vector<CapacityRecord> capacity;
  std::vector<TokenRecord> tokens;
  std::vector<MetricsRecord> metrics;
  std::vector<StoredEvent> events;  // by number
  std::vector<StoredEvent> audit;   // the same
};

// Reads all of `store`; blocks.  DataLoss, naming what, when a row is damaged,
// or when rows lie in a store without a cluster row.
absl::StatusOr<Rows> LoadRows(Store& store);

}  // namespace cohort::head
