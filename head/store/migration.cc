#include "head/store/migration.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cohort/v1/storage.pb.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/store/memory_store.h"
#include "head/store/records.h"
#include "head/store/records_codec.h"

namespace cohort::head {
namespace {

namespace pb = ::cohort::storage::v1;

// One step of one store.
class Migration {
 public:
  Migration(Store& store, const MigrationStep& step, pb::ClusterRow cluster,
            size_t batch_bytes)
      : store_(store),
        step_(step),
        cluster_(std::move(cluster)),
        batch_bytes_(batch_bytes) {}

  absl::Status Run() {
    // Where an earlier try stopped; 0 and no key at first.
    const uint32_t first = cluster_.migrating_table();
    const std::string after = cluster_.migrating_key();
    COHORT_LOG(kWarning, "store_migrates", {"from", step_.from},
               {"to", step_.from + 1}, {"goes_on", first != 0});
    cluster_.set_schema_version(step_.from + 1);
    for (const Table table : kAllTables) {
      const uint32_t number = static_cast<uint32_t>(table) + 1;
      if (table == Table::kCluster || number < first) continue;
      COHORT_RETURN_IF_ERROR(
          RewriteTable(table, number == first ? after : std::string()));
    }
    cluster_.clear_migrating_table();
    cluster_.clear_migrating_key();
    const std::string message = cluster_.SerializeAsString();
    COHORT_ASSIGN_OR_RETURN(std::optional<std::string> changed,
                            step_.rewrite(Table::kCluster, message));
    batch_.push_back({Table::kCluster, RowKey(),
                      SealRow(RowKey(), changed.value_or(message))});
    return store_.Append(cluster_.term(), std::exchange(batch_, {}));
  }

 private:
  absl::Status RewriteTable(Table table, const std::string& after) {
    COHORT_ASSIGN_OR_RETURN(const auto rows, store_.LoadAll(table));
    for (const auto& [key, value] : rows) {
      if (!after.empty() && key <= after) continue;
      COHORT_ASSIGN_OR_RETURN(const absl::string_view message,
                              UnsealRow(table, key, value));
      COHORT_ASSIGN_OR_RETURN(std::optional<std::string> changed,
                              step_.rewrite(table, message));
      if (!changed.has_value()) continue;
      batch_.push_back({table, key, SealRow(key, *changed)});
      bytes_ += batch_.back().key.size() + batch_.back().value->size();
      if (bytes_ < batch_bytes_) continue;
      cluster_.set_migrating_table(static_cast<uint32_t>(table) + 1);
      cluster_.set_migrating_key(key);
      COHORT_RETURN_IF_ERROR(Flush());
    }
    return absl::OkStatus();
  }

  absl::Status Flush() {
    batch_.push_back({Table::kCluster, RowKey(),
                      SealRow(RowKey(), cluster_.SerializeAsString())});
    bytes_ = 0;
    return store_.Append(cluster_.term(), std::exchange(batch_, {}));
  }

  Store& store_;
  const MigrationStep& step_;
  pb::ClusterRow cluster_;
  const size_t batch_bytes_;
  Batch batch_;
  size_t bytes_ = 0;
};

// The cluster row; nothing in an empty store.
absl::StatusOr<std::optional<pb::ClusterRow>> ReadCluster(Store& store) {
  COHORT_ASSIGN_OR_RETURN(const auto rows, store.LoadAll(Table::kCluster));
  // Rows without it are LoadRows' to refuse.
  if (rows.empty()) return std::optional<pb::ClusterRow>();
  COHORT_ASSIGN_OR_RETURN(
      const absl::string_view message,
      UnsealRow(Table::kCluster, rows.front().first, rows.front().second));
  pb::ClusterRow row;
  if (!row.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
    return absl::DataLossError("the cluster row cannot be read");
  }
  return std::optional<pb::ClusterRow>(std::move(row));
}

}  // namespace

// Schema 1 is the first.
std::span<const MigrationStep> MigrationSteps() { return {}; }

absl::Status MigrateStore(Store& store, std::span<const MigrationStep> steps,
                          size_t batch_bytes) {
  const uint32_t first = steps.empty() ? kSchemaVersion : steps.front().from;
  const uint32_t target = first + static_cast<uint32_t>(steps.size());
  while (true) {
    COHORT_ASSIGN_OR_RETURN(std::optional<pb::ClusterRow> cluster,
                            ReadCluster(store));
    if (!cluster.has_value()) return absl::OkStatus();
    const uint32_t version = cluster->schema_version();
    const bool begun = cluster->migrating_table() != 0;
    if (version == target && !begun) return absl::OkStatus();
    const uint32_t from = begun ? version - 1 : version;
    if (version > target || from < first) {
      return SetReason(absl::FailedPreconditionError(absl::StrCat(
                           "the control store's schema is ", version,
                           ", this program migrates from ", first, " to ",
                           target, ": run a release between the two first")),
                       "schema_out_of_reach");
    }
    COHORT_RETURN_IF_ERROR(
        Migration(store, steps[from - first], *std::move(cluster), batch_bytes)
            .Run());
  }
}

namespace {

// What a MemoryStore stands on lives with it.
class OwningStore final : public Store {
 public:
  absl::Status Append(uint64_t term, const Batch& batch) override {
    return store_.Append(term, batch);
  }
  absl::Status Scan(Table table, const std::string& first, size_t limit,
                    RowVisitor each) override {
    return store_.Scan(table, first, limit, each);
  }
  absl::Status Checkpoint(const std::string& directory) override {
    return store_.Checkpoint(directory);
  }

 private:
  MemoryDisk disk_;
  MemoryStore store_{disk_};
};

absl::StatusOr<std::unique_ptr<Store>> CopyOf(Store& store,
                                              std::span<const Table> tables) {
  auto copy = std::make_unique<OwningStore>();
  Batch everything;
  for (const Table table : tables) {
    COHORT_ASSIGN_OR_RETURN(auto rows, store.LoadAll(table));
    for (auto& [key, value] : rows) {
      everything.push_back({table, std::move(key), std::move(value)});
    }
  }
  COHORT_RETURN_IF_ERROR(copy->Append(0, everything));
  return copy;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Migrated(std::unique_ptr<Store> store) {
  COHORT_ASSIGN_OR_RETURN(const std::optional<pb::ClusterRow> cluster,
                          ReadCluster(*store));
  if (!cluster.has_value() || (cluster->schema_version() == kSchemaVersion &&
                               cluster->migrating_table() == 0)) {
    return store;
  }
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Store> copy,
                          CopyOf(*store, kAllTables));
  COHORT_RETURN_IF_ERROR(MigrateStore(*copy));
  return copy;
}

absl::StatusOr<std::unique_ptr<Store>> CopyOfTable(Store& store, Table table) {
  return CopyOf(store, std::span(&table, 1));
}

}  // namespace cohort::head
