#include "head/archive/inspect.h"

#include <filesystem>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/file.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "head/store/rocksdb_store.h"

namespace cohort::head {
namespace {

std::string StorePath(const std::string& state_dir) {
  return state_dir + "/store";
}

// A store that no head serves.
struct OfflineStore {
  std::optional<FileLock> lock;  // keeps a head from starting
  std::unique_ptr<RocksdbStore> store;
};

absl::StatusOr<OfflineStore> OpenOffline(const std::string& state_dir) {
  OfflineStore offline;
  COHORT_ASSIGN_OR_RETURN(offline.lock, FileLock::Share(state_dir));
  COHORT_ASSIGN_OR_RETURN(
      offline.store, RocksdbStore::Open({.path = StorePath(state_dir),
                                         .access = StoreAccess::kInspect}));
  return offline;
}

// Gives each row of a table as text, or what is wrong with it.
absl::Status ForEachRow(
    RocksdbStore& store, Table table, RecordForm form,
    absl::FunctionRef<absl::Status(const absl::StatusOr<std::string>&)> each) {
  return store.Scan(table, "", std::numeric_limits<size_t>::max(),
                    [&](absl::string_view key, absl::string_view value) {
                      return each(RecordText(table, key, value, form));
                    });
}

absl::Status DamagedRows(int damaged) {
  if (damaged == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(damaged, damaged == 1 ? " row is" : " rows are",
                   " damaged: a head refuses this store; restore a backup"));
}

}  // namespace

std::string TableNames() {
  std::vector<std::string> names;
  for (const Table table : kAllTables) names.emplace_back(TableName(table));
  return absl::StrJoin(names, ", ");
}

absl::StatusOr<Table> ParseTable(absl::string_view name) {
  for (const Table table : kAllTables) {
    if (name == TableName(table)) return table;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "there is no table ", IsPrintable(name) ? name : "of that name",
      ": there are ", TableNames()));
}

absl::Status Inspect(const InspectOptions& options,
                     absl::FunctionRef<absl::Status(absl::string_view)> print,
                     absl::FunctionRef<void(absl::string_view)> complain) {
  COHORT_ASSIGN_OR_RETURN(const OfflineStore offline,
                          OpenOffline(options.state_dir));
  int damaged = 0;
  for (const Table table : kAllTables) {
    if (options.table.value_or(table) != table) continue;
    COHORT_RETURN_IF_ERROR(
        ForEachRow(*offline.store, table, options.form,
                   [&](const absl::StatusOr<std::string>& text) {
                     if (text.ok()) return print(*text);
                     complain(text.status().message());
                     ++damaged;
                     return absl::OkStatus();
                   }));
  }
  return DamagedRows(damaged);
}

absl::StatusOr<CheckReport> Check(
    const std::string& state_dir,
    absl::FunctionRef<void(absl::string_view)> complain) {
  COHORT_ASSIGN_OR_RETURN(const OfflineStore offline, OpenOffline(state_dir));
  RocksdbStore& store = *offline.store;
  CheckReport report{.term = store.term(),
                     .last_change = store.last_change(),
                     .has_mark = std::filesystem::exists(
                         RocksdbMarkPath(StorePath(state_dir)))};
  COHORT_RETURN_IF_ERROR(store.CheckTables());
  int damaged = 0;
  for (const Table table : kAllTables) {
    int64_t& rows = report.rows[static_cast<size_t>(table)];
    COHORT_RETURN_IF_ERROR(
        ForEachRow(store, table, RecordForm::kJson,
                   [&](const absl::StatusOr<std::string>& text) {
                     if (text.ok()) {
                       ++rows;
                     } else {
                       complain(text.status().message());
                       ++damaged;
                     }
                     return absl::OkStatus();
                   }));
  }
  COHORT_RETURN_IF_ERROR(DamagedRows(damaged));
  const bool has_rows = report.rows != CheckReport().rows;
  if (has_rows && report.rows[static_cast<size_t>(Table::kCluster)] == 0) {
    return DamagedError(StorePath(state_dir), "its cluster row is missing");
  }
  return report;
}

std::string ToText(const CheckReport& report) {
  std::vector<std::string> counts;
  int64_t all = 0;
  for (const Table table : kAllTables) {
    const int64_t rows = report.rows[static_cast<size_t>(table)];
    all += rows;
    counts.push_back(absl::StrCat(TableName(table), " ", rows));
  }
  return absl::StrCat("whole: ", all, " rows (", absl::StrJoin(counts, ", "),
                      "), term ", report.term, ", change ", report.last_change,
                      report.has_mark
                          ? ""
                          : "; store.mark is missing, so whether the store "
                            "lost its end is not known",
                      "\n");
}

std::string ToJson(const CheckReport& report) {
  std::vector<std::string> counts;
  for (const Table table : kAllTables) {
    counts.push_back(absl::StrCat("\"", TableName(table), "\":",
                                  report.rows[static_cast<size_t>(table)]));
  }
  return absl::StrCat("{\"term\":", report.term,
                      ",\"last_change\":", report.last_change,
                      ",\"has_mark\":", report.has_mark ? "true" : "false",
                      ",\"rows\":{", absl::StrJoin(counts, ","), "}}\n");
}

}  // namespace cohort::head
