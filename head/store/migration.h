#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "head/store/store.h"

namespace cohort::head {

// How a store of one schema becomes one of the next.
//
// A release that changes storage.proto raises kSchemaVersion and adds a step;
// steps are never changed afterwards.  New fields need no rewriting where zero
// is what older rows mean.
struct MigrationStep {
  uint32_t from = 0;
  // The message of a row of `table` as the next schema has it; nothing when it
  // stays as it is.  Called once for each row, the cluster's last.
  absl::StatusOr<std::optional<std::string>> (*rewrite)(
      Table table, absl::string_view message) = nullptr;
};

// Of this program, in order; the last one makes kSchemaVersion.
std::span<const MigrationStep> MigrationSteps();

// Brings `store` to this program's schema, in synced batches of about
// `batch_bytes`; OK at once when it is there, or empty.  Blocks.
//
//   MG-1: each row is rewritten exactly once a step, also when it is killed
//         between any two batches and begun again: a batch says how far it came
//         in the cluster row.
//   MG-2: from the first batch on an older program refuses the store.
//
// Errors as Store's; DataLoss for a row that is damaged; FailedPrecondition for
// a schema that is newer than these steps make, or older than they begin with.
absl::Status MigrateStore(
    Store& store, std::span<const MigrationStep> steps = MigrationSteps(),
    size_t batch_bytes = size_t{1} << 20);

// `store`, which may only be read; where it must be migrated first, a copy of
// all of it in memory.
absl::StatusOr<std::unique_ptr<Store>> Migrated(std::unique_ptr<Store> store);
// One table of a store in memory, as it is.
absl::StatusOr<std::unique_ptr<Store>> CopyOfTable(Store& store, Table table);

}  // namespace cohort::head
