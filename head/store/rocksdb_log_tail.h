#pragma once

#include <cstddef>

#include "absl/strings/string_view.h"

// What a crash may do to the end of a RocksDB log, told from damage.
//
// RocksDB reads a record whose length reaches past the end of the file as torn
// and drops it without a word, with all that follows in the same block: one
// flipped bit in a length would silently lose acknowledged batches.  It also
// takes a tail of zeros, which file systems leave where a size reached the disk
// and the bytes did not, for damage, and would refuse to open after a power
// cut.
namespace cohort::head {

struct LogTail {
  enum class Kind {
    kWhole,    // up to the end
    kTorn,     // from `good_bytes` on, as a crash leaves it; RocksDB copes
    kZeroed,   // the same, but RocksDB would call it damage: cut it off there
    kDamaged,  // from `good_bytes` on, as no crash leaves it
  };
  Kind kind = Kind::kWhole;
  size_t good_bytes = 0;  // of the block, before the first bad record
};

// Judges `block`, the last block of a log file (or a manifest, which is one)
// that is not all zeros, from its start; `zeros_follow`: all-zero blocks do.
// Stateless; thread-safe.
LogTail InspectLogTail(absl::string_view block, bool zeros_follow);

}  // namespace cohort::head
