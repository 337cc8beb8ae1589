#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rocksdb/env.h"
#include "rocksdb/status.h"

// The files of a store, looked at before RocksDB does, which would make a new
// database where CURRENT is missing, so that a store that lost this one small
// file came back empty, and which takes a log that is gone for one that never
// was (RS-2).
namespace cohort::head {

struct StoreFiles {
  bool fresh = false;                    // there is no database yet
  std::string manifest;                  // the name that CURRENT holds
  std::map<std::string, uint64_t> logs;  // sizes by name
  // Up to the last good record, of the manifest; never more than its size.
  uint64_t manifest_bytes = 0;
  // Files that end in zeros, as a power cut leaves them and RocksDB would not
  // take them: what is good of them by name.
  std::map<std::string, uint64_t> good_bytes;
};

// Changes nothing.  DataLoss when something is missing or the end of a log or
// of the manifest is damaged.
absl::StatusOr<StoreFiles> InspectStoreFiles(rocksdb::Env* env,
                                             const std::string& path);

// `base` with the files that end in zeros as if they had been cut.  Outlives
// what is opened through it.
std::unique_ptr<rocksdb::Env> MakeCutView(rocksdb::Env* base,
                                          const std::string& path,
                                          const StoreFiles& files);

// Cuts them.
rocksdb::Status CutTails(rocksdb::Env* env, const std::string& path,
                         const StoreFiles& files);

// Makes durable what the system holds of the logs and the manifest, which takes
// no space.
rocksdb::Status SyncStoreFiles(rocksdb::Env* env, const std::string& path,
                               const StoreFiles& files);

// The name that CURRENT holds.
rocksdb::Status ReadCurrent(rocksdb::Env* env, const std::string& path,
                            std::string& manifest);

// The logs of a store and their sizes.
rocksdb::Status ListLogs(rocksdb::Env* env, const std::string& path,
                         std::map<std::string, uint64_t>& logs);

// An empty file of that name, durable but for the name.
rocksdb::Status MakeLog(rocksdb::Env* env, const std::string& file);

}  // namespace cohort::head
