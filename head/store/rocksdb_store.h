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
#include "rocksdb/options.h"

#include "head/store/rocksdb_errors.h"
#include "head/store/rocksdb_mark.h"
#include "head/store/store.h"

namespace rocksdb {
class ColumnFamilyHandle;
class DB;
class Env;
class FileLock;
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
  // False where rows are not those of records_codec.h: for tests of the store
  // alone, since each of those has a checksum of its own.
  bool check_rows = true;
};

// The cluster's state on this machine's disk.
//
//   RS-1: a batch whose Append returned OK is there whole after any crash of
//         the process or the machine; one that did not is there whole or not at
//         all.
//   RS-2: damage is never read as absence: Open or Scan says DATA_LOSS.  A
//         log that was cut short, and a manifest that is not as it was, are
//         found by the mark (rocksdb_mark.h), also after a crash of the
//         process; after a power cut the mark may be some changes behind, and
//         damage to the end of the log behind it is taken for the torn batch.
//   RS-3: opened to read, it shows durable rows only and needs no space; opened
//         to inspect, it changes nothing on the disk.
//   RS-4: a store is judged before it is opened to write: all of its tables and
//         its log are read, each block and row against its checksum.  One that
//         is refused is left as it was, to the byte.
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
  absl::Status Scan(Table table, const std::string& first, size_t limit,
                    RowVisitor each) override;
  // Hard links for table files, a copy of the log (16 MiB at most), and the
  // mark.
  absl::Status Checkpoint(const std::string& directory) override;

  // Reads all blocks of all table files against their checksums.  Errors as
  // Scan.
  absl::Status CheckTables();
  uint64_t term() const { return term_; }
  // The number of the last change; RocksDB counts rows.
  uint64_t last_change() const;

 private:
  explicit RocksdbStore(RocksdbStoreOptions options);

  class Listener;
  class Replay;

  absl::Status OpenDatabase();
  // Looks at the files before RocksDB does, which would make a new database
  // where CURRENT is missing.  True: there is no database yet.
  absl::StatusOr<bool> CheckFiles(const RocksdbMark& mark) const;
  // Opens what is there without changing it, and compares it with the mark.
  absl::Status OpenToRead(const RocksdbMark& mark);
  // Opens it; what a power cut tears is not there then.
  absl::Status Replayed(const std::vector<std::string>& present);
  // Reads all of it.  REQUIRES: it is open.
  absl::Status CheckEverything();
  // REQUIRES: it is fresh (kMaking), or was judged and is closed again.
  absl::Status OpenToWrite(Doing doing);
  // Keeps other processes out as RocksDB does, which keeps its own lock only
  // where it writes.  Null when there is no lock file.
  absl::Status LockAgainstOthers(rocksdb::FileLock*& lock) const;
  // What the opening of the database says, in our words.
  absl::Status OpenError(const rocksdb::Status& status, Doing doing) const;
  struct How {
    bool writes = false;
    bool makes = false;    // there is none
    bool lenient = false;  // whatever is wrong with tables
    // Each bad record of a log is an error, also a torn one.
    rocksdb::WALRecoveryMode recovery =
        rocksdb::WALRecoveryMode::kAbsoluteConsistency;
    Replay* replay = nullptr;
  };
  rocksdb::Status OpenFamilies(const std::vector<std::string>& present,
                               const How& how);
  // What is wrong with a table, which RocksDB says of the manifest, of a store
  // that does not open; empty: nothing.  REQUIRES: it is closed.
  std::string BadTable(const std::vector<std::string>& present);
  void Close();
  // Column families in the database, by its own word; refuses unknown ones.
  absl::StatusOr<std::vector<std::string>> ListFamilies() const;
  absl::Status ReadStamp(bool families_missing);
  // Unavailable when the disk has no room for `bytes` and what follows.
  absl::Status CheckRoom(uint64_t bytes) const;
  // Null for a table that an older store, opened to be read, does not have.
  rocksdb::ColumnFamilyHandle* Family(Table table) const;

  // Set in the constructor.
  const RocksdbStoreOptions options_;
  rocksdb::Env* const env_;
  // Shared: with RocksDB.
  const std::shared_ptr<Listener> listener_;

  // Set by Open.  The handles die before the database.
  rocksdb::WALRecoveryMode recovery_ =
      rocksdb::WALRecoveryMode::kAbsoluteConsistency;
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> families_;  // default first
  std::array<rocksdb::ColumnFamilyHandle*, std::size(kAllTables)> by_table_{};
  std::unique_ptr<RocksdbMarkKeeper> keeper_;  // null where it is only read
  uint64_t term_ = 0;

  absl::Status failure_;  // of an append
};

}  // namespace cohort::head
