#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "rocksdb/env.h"
#include "rocksdb/status.h"

#include "head/store/rocksdb_mark.h"

// The files of a store, looked at before RocksDB does, which would make a new
// database where CURRENT is missing, so that a store that lost this one small
// file came back empty, and which takes a log that is gone for one that never
// was, and which asserts that what it reads are its own files, each once
// (RS-2).
namespace cohort::head {

struct StoreFiles {
  bool fresh = false;                 // there is no database yet
  std::string manifest;               // the name that CURRENT holds
  std::map<uint64_t, uint64_t> logs;  // sizes by number
  // The numbers of the first change in each log that holds one, by the log's.
  std::map<uint64_t, uint64_t> first_changes;
  // Up to the last good record, of the manifest; never more than its size.
  uint64_t manifest_bytes = 0;
  // Files that end in zeros, as a power cut leaves them and RocksDB would not
  // take them: what is good of them by path.
  std::map<std::string, uint64_t> good_bytes;
};

// Reads all of the logs and of the manifest; changes nothing.  DataLoss, naming
// the file, when one is missing or damaged, or is not the one that `mark` knows
// by its name.
absl::StatusOr<StoreFiles> InspectStoreFiles(rocksdb::Env* env,
                                             const std::string& path,
                                             const RocksdbMark& mark);

// `base` with the files that end in zeros as if they had been cut.  Outlives
// what is opened through it.
std::unique_ptr<rocksdb::Env> MakeCutView(rocksdb::Env* base,
                                          const StoreFiles& files);

// Cuts them.
rocksdb::Status CutTails(rocksdb::Env* env, const StoreFiles& files);

// Makes durable what the system holds of the logs and the manifest, which takes
// no space.
rocksdb::Status SyncStoreFiles(rocksdb::Env* env, const std::string& path,
                               const StoreFiles& files);

// The name that CURRENT holds.
rocksdb::Status ReadCurrent(rocksdb::Env* env, const std::string& path,
                            std::string& manifest);

// The checksum of the first bytes of a file.
rocksdb::Status ReadBeginning(rocksdb::Env* env, const std::string& file,
                              uint64_t bytes, uint32_t& crc);

// The path of a log by its number.
std::string LogPath(const std::string& path, uint64_t number);

// The logs of a store and their sizes, by number.
rocksdb::Status ListLogs(rocksdb::Env* env, const std::string& path,
                         std::map<uint64_t, uint64_t>& logs);

// The number in the name of a log or a manifest; 0: it is neither.
uint64_t LogNumber(absl::string_view name);
uint64_t ManifestNumber(absl::string_view name);

// An empty file of that name, durable but for the name.
rocksdb::Status MakeLog(rocksdb::Env* env, const std::string& file);

}  // namespace cohort::head
