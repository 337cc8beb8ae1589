#pragma once

#include <cstddef>
#include <cstdint>

#include "cohort/v1/node.pb.h"

namespace cohort::worker {

// What LogService sends in place of a log.  May block for as long as a disk
// does.  Thread-compatible.
class PieceReader {
 public:
  virtual ~PieceReader() = default;

  // From byte or entry `offset`, at most `bytes_max`.  Neither data nor the
  // end: there is nothing yet.  Not `known`, and `data` says why: it cannot be
  // read.
  virtual v1::LogPiece Read(int64_t offset, size_t bytes_max) = 0;
};

}  // namespace cohort::worker
