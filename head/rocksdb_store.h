#pragma once

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "head/rocksdb_mark.h"
#include "head/store.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class Env;
class Status;
}  // namespace rocksdb

namespace cohort::head {

struct RocksdbStoreOptions {
  // A directory of its own; made when its parent exists and it does not.
  std::string path;
  StoreAccess access = StoreAccess::kReadWrite;
  // The file system beneath; null: the machine's.  Outlives the store.
  rocksdb::Env* env = nullptr;
  // False makes acknowledged rows mortal: only for the test which shows that
  // tests would notice.
  bool sync = true;
};

// The cluster's state on this machine's disk.
//
//   RS-1: a batch whose Append returned OK is there whole after any crash of
//         the process or the machine; one that did not is there whole or not at
//         all.
//   RS-2: damage is never read as absence: Open or LoadAll says DATA_LOSS.
//         (A log that was cut short between two records after a crash cannot
//         be told from one that was never longer; after a clean end it can.)
//   RS-3: opened to read, it shows durable rows only and needs no space; opened
//         to inspect, it changes nothing on the disk.
//
// One column family a table, synced writes, checksums on everything that is
// read.  Used by one thread at a time (the store's executor).  A second process
// that opens the directory is refused.
class RocksdbStore final : public Store {
 public:
  // Opens the store; makes it where there is none, unless it is only read.
  // Blocks.
  //
  // DataLoss: files are damaged or missing.  FailedPrecondition: another
  // process holds it, or a newer cohort wrote it.  Unavailable: the disk
  // refused (reason "disk_full" when it is full).  NotFound: there is nothing
  // to read.  Messages name the path and what to do.
  static absl::StatusOr<std::unique_ptr<RocksdbStore>> Open(
      RocksdbStoreOptions options);

  ~RocksdbStore() override;

  // Store.  Unavailable has reason "disk_full" when that is why.
  absl::Status Append(uint64_t term, const Batch& batch) override;
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> LoadAll(
      Table table) override;
  // Hard links for table files, a copy of the log (16 MiB at most), and the
  // mark.
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> LoadRange(
      Table table, const std::string& first, size_t limit) override;
  absl::Status Checkpoint(const std::string& directory) override;

 private:
  explicit RocksdbStore(RocksdbStoreOptions options);

  absl::Status OpenDatabase();
  // The half of OpenDatabase that depends on the access.
  rocksdb::Status OpenFamilies(const std::vector<std::string>& present);
  // Column families in the database, by its own word; refuses unknown ones.
  absl::StatusOr<std::vector<std::string>> ListFamilies(bool fresh) const;
  absl::Status ReadStamp(bool families_missing);
  // Reads the mark; DataLoss when the files are less than it says.
  absl::Status CheckMark(bool fresh, const RocksdbMark::Logs& logs,
                         RocksdbMark& mark) const;
  absl::Status PrepareToWrite(const RocksdbMark::Logs& logs,
                              const RocksdbMark& mark) const;
  // Unavailable when the disk has no room for `bytes` and what follows.
  absl::Status CheckRoom(uint64_t bytes) const;
  void Mark(RocksdbMark::Logs logs) const;
  // Null for a table that an older store, opened to be read, does not have.
  rocksdb::ColumnFamilyHandle* Family(Table table) const;

  // Set in the constructor.
  const RocksdbStoreOptions options_;
  rocksdb::Env* const env_;

  // Set by Open.  The handles die before the database.
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;  // default first
  std::array<rocksdb::ColumnFamilyHandle*, std::size(kAllTables)> by_table_{};
  uint64_t term_ = 0;
  bool opened_ = false;  // nothing was found wrong

  absl::Status failure_;  // of an append
};

}  // namespace cohort::head
