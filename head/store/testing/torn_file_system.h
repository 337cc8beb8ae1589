#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

#include "common/mutex.h"
#include "common/random.h"

namespace cohort::head {

// A file system over a real directory which forgets, when the machine
// "crashes", what was not synced.
//
// Appended bytes are durable after their file was synced; names (creation,
// rename, removal) after their directory was.  A crash keeps of the rest what
// chance says: a file loses any part of its unsynced end, or sectors of it
// become zeros; of the changes to names, which file systems write down in
// order, the first so many are kept; of overwritten bytes, the last so many are
// as they were.  `kill -9` never shows any of it, because
// the page cache outlives the process.
//
// For tests of RocksdbStore; follows the files under one root.  Thread-safe.
class TornFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  // `root` exists and is empty.  Hard links to each version of each file are
  // kept in `root`.inodes.
  explicit TornFileSystem(std::string root);
  ~TornFileSystem() override;

  static const char* kClassName() { return "TornFileSystem"; }
  const char* Name() const override { return kClassName(); }

  // The power fails before the change after `changes` more: from then on
  // everything that would change the disk fails, doing nothing.
  void FailAfter(int changes);
  // The power fails now.
  void PowerOff() { FailAfter(0); }
  bool is_off() const;

  // From now on nothing that needs space can be written, though the system
  // says that `free` bytes are; and again it can.
  void FillUp(uint64_t free = 0);
  void MakeRoom();

  // What is on the disk when the machine is back.  REQUIRES: no file is open.
  void Reboot(Random& random);

  // How often a reboot forgot something, so that a test can check that it did.
  int bytes_forgotten() const;
  int names_forgotten() const;

  rocksdb::IOStatus NewWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* file,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReopenWritableFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* file,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus ReuseWritableFile(
      const std::string& path, const std::string& old_path,
      const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSWritableFile>* file,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewRandomRWFile(
      const std::string& path, const rocksdb::FileOptions& options,
      std::unique_ptr<rocksdb::FSRandomRWFile>* file,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus NewDirectory(
      const std::string& path, const rocksdb::IOOptions& options,
      std::unique_ptr<rocksdb::FSDirectory>* directory,
      rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus DeleteFile(const std::string& path,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus GetFreeSpace(const std::string& path,
                                 const rocksdb::IOOptions& options,
                                 uint64_t* free,
                                 rocksdb::IODebugContext* debug) override;
  rocksdb::IOStatus RenameFile(const std::string& from, const std::string& to,
                               const rocksdb::IOOptions& options,
                               rocksdb::IODebugContext* debug) override;

 private:
  class File;
  class OverwrittenFile;
  class Directory;

  // One file whatever its names.
  struct Inode {
    std::string link;  // its hard link
    uint64_t size = 0;
    uint64_t synced = 0;  // of these bytes, the first so many
    // What was overwritten since the last sync: where, and what was there.
    std::vector<std::pair<uint64_t, std::string>> overwritten;
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;
  // One change to names; no inode takes the name away.
  using NameChange = Names;

  // Counts a change; an error once the power is off.
  rocksdb::IOStatus Change() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Follows(const std::string& path) const;
  rocksdb::IOStatus SyncDirectory(const std::string& path);
  void ChangeNames(NameChange change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tear(Random& random, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Undo(Random& random, Inode& inode) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string root_;
  const std::string inodes_;

  mutable Mutex mutex_;
  // Shared: a name before and after a sync, and the open file.
  Names live_ ABSL_GUARDED_BY(mutex_);
  Names durable_ ABSL_GUARDED_BY(mutex_);
  std::vector<NameChange> unsynced_ ABSL_GUARDED_BY(mutex_);  // in order
  uint64_t next_inode_ ABSL_GUARDED_BY(mutex_) = 0;
  int changes_left_ ABSL_GUARDED_BY(mutex_) = -1;  // -1: no end
  bool off_ ABSL_GUARDED_BY(mutex_) = false;
  // Of a full disk, what it says is free.
  std::optional<uint64_t> full_ ABSL_GUARDED_BY(mutex_);
  int bytes_forgotten_ ABSL_GUARDED_BY(mutex_) = 0;
  int names_forgotten_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::head
