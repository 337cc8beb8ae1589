#include "head/archive/inspect.h"

#include <iterator>
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

// A table may be larger than memory.
constexpr size_t kRowsAtOnce = 1'000;

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
  COHORT_ASSIGN_OR_RETURN(const std::optional<FileLock> lock,
                          FileLock::Share(options.state_dir));
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RocksdbStore> store,
      RocksdbStore::Open({.path = options.state_dir + "/store",
                          .access = StoreAccess::kInspect}));
  int damaged = 0;
  for (const Table table : kAllTables) {
    if (options.table.value_or(table) != table) continue;
    std::string first;
    while (true) {
      COHORT_ASSIGN_OR_RETURN(const auto rows,
                              store->LoadRange(table, first, kRowsAtOnce));
      for (const auto& [key, value] : rows) {
        const absl::StatusOr<std::string> text =
            RecordText(table, key, value, options.form);
        if (text.ok()) {
          COHORT_RETURN_IF_ERROR(print(*text));
        } else {
          complain(text.status().message());
          ++damaged;
        }
      }
      if (rows.size() < kRowsAtOnce) break;
      first = rows.back().first + '\0';  // the next key there can be
    }
  }
  if (damaged == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(damaged, damaged == 1 ? " row is" : " rows are",
                   " damaged: a head refuses this store; restore a backup"));
}

}  // namespace cohort::head
