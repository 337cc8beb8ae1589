#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rocksdb/env.h"
#include "rocksdb/status.h"

#include "common/mutex.h"

namespace cohort::head {

// What is remembered of a store beside it, in `<path>.mark`, because a store
// that lost its end, or all, says of itself that it is whole.
//
// Written after what it tells of is durable, so it is never ahead of the store.
// After a power cut it may be behind.
struct RocksdbMark {
  // The file that names all others.  Each open makes a new one.
  struct Manifest {
    std::string name;
    // Of its beginning that is durable.  RocksDB drops what follows a damaged
    // length in it without a word.
    uint64_t bytes = 0;
    uint32_t crc = 0;
    friend bool operator==(const Manifest&, const Manifest&) = default;
  };

  uint64_t term = 0;  // the store has reached it
  // Of the last change that is durable; RocksDB counts rows.
  uint64_t sequence = 0;
  Manifest manifest;

  bool empty() const { return *this == RocksdbMark(); }
  friend bool operator==(const RocksdbMark&, const RocksdbMark&) = default;
};

// Its path, for people.
std::string RocksdbMarkPath(const std::string& store);

// The mark of the store at `store`; an empty one when there is none.
// Corruption when it cannot be read as one.
rocksdb::Status ReadRocksdbMark(rocksdb::Env* env, const std::string& store,
                                RocksdbMark& mark);

// Replaces the mark as a whole; durable when it is OK.
rocksdb::Status WriteRocksdbMark(rocksdb::Env* env, const std::string& store,
                                 const RocksdbMark& mark);

// Keeps the mark of an open store up to date, in place and without a sync: what
// matters is that it outlives the process, and the store is synced already.
// One of its two lines is overwritten at a time, so that a power cut amid one
// leaves the other.
//
// Failures are worth a warning only: then one kind of damage is seen later.
// Thread-safe.
class RocksdbMarkKeeper {
 public:
  // Writes a new mark as a whole first.
  static rocksdb::Status Start(rocksdb::Env* env, const std::string& store,
                               const RocksdbMark& mark,
                               std::unique_ptr<RocksdbMarkKeeper>& keeper);

  void Reached(uint64_t term, uint64_t sequence);
  // Nothing when it is another manifest than the mark's: CURRENT may not yet
  // name it.
  void ManifestReached(const RocksdbMark::Manifest& manifest);
  // Makes what was said durable.
  void Sync();

 private:
  RocksdbMarkKeeper(std::unique_ptr<rocksdb::RandomRWFile> file,
                    RocksdbMark mark);

  void Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Warn(const rocksdb::Status& status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  const std::unique_ptr<rocksdb::RandomRWFile> file_ ABSL_PT_GUARDED_BY(mutex_);
  RocksdbMark mark_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_line_ ABSL_GUARDED_BY(mutex_);
  bool warned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::head
