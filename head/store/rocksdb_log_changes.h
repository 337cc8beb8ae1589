#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "head/store/rocksdb_log_record.h"

namespace cohort::head {

// The numbers of the changes that logs hold, which RocksDB takes as they come:
// of a log whose bytes stand twice it makes one row of one number twice, and
// ends the process; one that is another's copy gives old rows back.
//
// RocksDB numbers the changes of a store; a batch has the number of its first
// one and how many they are.  Nothing else is written to a log, so the numbers
// in it have no holes, and those of a later log are greater: a crash may lose
// the end of a log after the next one was begun, never change their order.
//
// Given records in the order of their logs.  A value.
class LogChanges {
 public:
  // What follows is of the next log.
  void BeginLog();
  // Nothing, or what is wrong there; then it is done.
  std::optional<std::string> Add(const LogRecord& record);

  // The first change of this log; 0: it holds none.
  uint64_t first() const { return first_; }

 private:
  std::optional<std::string> AddBatch();

  uint64_t next_ = 0;  // of the next change, or a lower one
  uint64_t first_ = 0;
  bool in_batch_ = false;  // its other parts follow
  std::string head_;       // what was seen of a batch, up to its header
  bool is_known_ = true;   // what a newer RocksDB wrote it judges itself
};

}  // namespace cohort::head
