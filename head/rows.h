#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "head/records.h"
#include "head/store.h"

namespace cohort::head {

// What a head loads at its start and after a failed append.  Events are not
// among it: they are written, numbered by the cluster row, and read from the
// store by whoever asks.
struct Rows {
  std::optional<ClusterRecord> cluster;  // none: a new, empty store
  std::vector<NodeRecord> nodes;
  std::vector<JobRecord> jobs;
  std::vector<AttemptRecord> attempts;
  std::vector<ArrayRecord> arrays;
  std::vector<WaitReasonRecord> wait_reasons;
  std::vector<RequestRecord> requests;
  std::vector<PackageRecord> packages;
};

// Reads all of `store`; blocks.  DataLoss, naming what, when a row is damaged,
// or when rows lie in a store without a cluster row.
absl::StatusOr<Rows> LoadRows(Store& store);

}  // namespace cohort::head
