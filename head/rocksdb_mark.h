#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "rocksdb/env.h"
#include "rocksdb/status.h"

namespace cohort::head {

// What is remembered of a store beside it, in `<path>.mark`, because a store
// that lost its end, or all, says of itself that it is whole.
//
// Written after what it tells of is durable, so it is never ahead of the store.
struct RocksdbMark {
  using Logs = std::map<std::string, uint64_t>;  // sizes by name

  uint64_t term = 0;  // the store has reached it
  // As they were when the store was closed; none while it is open or when its
  // process was killed.
  Logs logs;
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

}  // namespace cohort::head
