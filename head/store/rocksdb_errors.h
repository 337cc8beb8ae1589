#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "rocksdb/status.h"

#include "head/store/store.h"

// What RocksDB and the disk say, in this project's words.
namespace cohort::head {

// Where an error came from decides what it means.
enum class Doing {
  kMaking,   // there is nothing yet that could be damaged
  kOpening,  // a store that was there
  kUsing,
};

// DataLoss with reason "store_damaged": names the path and what to do.
absl::Status DamagedError(const std::string& path, absl::string_view what);

// DataLoss: damage; FailedPrecondition: of a newer RocksDB; Unavailable: the
// disk refuses (reason "disk_full" when it is full).  All name the path.
absl::Status ToStatus(const rocksdb::Status& status, const std::string& path,
                      Doing doing);

}  // namespace cohort::head
