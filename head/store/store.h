#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::head {

// One column family each.
enum class Table : uint8_t {
  kCluster,
  kNodes,
  kJobs,
  kAttempts,
  kRequests,
  kPackages,
  kEvents,
  kArrays,
  kWaitReasons,
  kSpecs,
  kProcesses,
  kDrivers,
  kClusterFile,
  kInstances,
  kCapacity,
  kTokens,
  kMetrics,
  kAudit,
};
// On disk and for people, by Table: add, never rename.
inline constexpr const char* kTableNames[] = {
    "cluster",   "nodes",   "jobs",         "attempts",     "requests",
    "packages",  "events",  "arrays",       "wait_reasons", "specs",
    "processes", "drivers", "cluster_file", "instances",    "capacity",
    "tokens",    "metrics", "audit"};
inline constexpr auto kAllTables = [] {
  std::array<Table, std::size(kTableNames)> all{};
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Table>(i);
  return all;
}();

constexpr const char* TableName(Table table) {
  return kTableNames[static_cast<size_t>(table)];
}

// Why a store is Unavailable until somebody frees space.
inline constexpr char kDiskFullReason[] = "disk_full";

// The fence of Store::Append: FailedPrecondition, naming both, unless the term
// of the one who writes is the stored one (0: none is stored yet).
absl::Status CheckTerm(uint64_t term, uint64_t stored);

// One changed row; no value deletes it.
struct Write {
  Table table;
  std::string key;
  std::optional<std::string> value;
};
using Batch = std::vector<Write>;

// Of all keys and values.
size_t BytesOf(const Write& write);
size_t BytesOf(const Batch& batch);

// Rows as they are stored: keys and values.
using StoredRows = std::vector<std::pair<std::string, std::string>>;
// Both are valid within the call.
using RowVisitor = absl::FunctionRef<absl::Status(absl::string_view key,
                                                  absl::string_view value)>;

enum class StoreAccess : uint8_t {
  kReadWrite,
  // To show what is durable while the disk refuses writes.  Append must not be
  // called.
  kRead,
  // As kRead, for a person: changes nothing on the disk, not even to make
  // durable what is there.
  kInspect,
};

// Where the cluster's state survives.
//
// Used by one thread at a time (the store's executor).  A store that failed an
// append must not be used again: its owner opens a new one (CM-3), because
// whether the failed batch landed is unknown.
class Store {
 public:
  virtual ~Store() = default;

  // Makes all writes durable, or (on a crash) none: one synced batch.  Blocks.
  //
  // `term` is the fence: FailedPrecondition when the stored term is another,
  // so that of two heads on one store only the newer can write.  A batch that
  // raises the term itself passes `term` = the one it read.
  // Unavailable: the disk refused (full, I/O); whether the batch landed is
  // unknown.
  virtual absl::Status Append(uint64_t term, const Batch& batch) = 0;

  // Gives `each` the rows of a table whose keys are `first` or after it, in key
  // order, at most `limit` of them, one at a time: a table may be larger than
  // memory.  DataLoss, naming the path, when something does not have its
  // checksum; an error of `each` ends it.
  virtual absl::Status Scan(Table table, const std::string& first, size_t limit,
                            RowVisitor each) = 0;

  // All of them in memory.
  absl::StatusOr<StoredRows> LoadRange(Table table, const std::string& first,
                                       size_t limit);
  absl::StatusOr<StoredRows> LoadAll(Table table);

  // Makes `directory`, which must not exist, a store of all that was appended
  // so far, and what belongs beside it; little is copied where the file system
  // is the store's own.  The store goes on as before, also after an error, and
  // then what is at `directory` is to be removed.  Blocks.
  //
  // Unavailable: the disk refused; Unimplemented: it is not a store of files.
  virtual absl::Status Checkpoint(const std::string& directory) = 0;
};

}  // namespace cohort::head
