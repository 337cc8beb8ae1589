#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/testing/manual_executor.h"
#include "common/testing/temp_dir.h"
#include "head/archive/backup_manifest.h"
#include "head/archive/disk_backups.h"
#include "head/store/records.h"
#include "head/store/rocksdb_store.h"

namespace cohort::head {

// A head's state directory with a small store, and backups of it.
// Thread-compatible; lives in one test.
class ArchiveFixture {
 public:
  // One job runs (attempt 'a' on node 'n'), one waits for a package, one has
  // ended; term 3.
  ArchiveFixture();

  std::string state_dir() const { return dir_.File("head"); }
  std::string path(const std::string& name) const { return dir_.File(name); }
  ManualExecutor& executor() { return executor_; }
  // Of the package that the waiting job needs; 64 digits.
  const std::string& package_hex() const { return package_hex_; }

  // The store, open; closed by CloseStore.
  RocksdbStore& store();
  void CloseStore() { store_.reset(); }

  absl::StatusOr<BackupManifest> Backup(const std::string& directory,
                                        const std::string& request_id = "r1",
                                        int64_t bytes_kept_free = 0);

 private:
  TempDir dir_;
  ManualExecutor executor_;
  std::string package_hex_;
  std::unique_ptr<RocksdbStore> store_;
};

template <typename Id>
Id FilledId(char fill) {
  return *Id::FromBytes(std::string(Id::kBytes, fill));
}

// Relative names of all files below `directory`, with their bytes.
std::map<std::string, std::string> ReadTree(const std::string& directory);

}  // namespace cohort::head
