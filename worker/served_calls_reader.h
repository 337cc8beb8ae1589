#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "cohort/v1/node.pb.h"
#include "worker/piece_reader.h"

namespace cohort::worker {

// Reads what an actor's process has noted down of the calls that it served, as
// bytes of v1::ServedCalls: as it was when the first piece was read.
//
// Blocks for as long as shared memory does.  Thread-compatible.
class ServedCallsReader final : public PieceReader {
 public:
  // `directory` is the runtime directory of the attempt of `order`.
  ServedCallsReader(std::string directory, v1::SendLog order)
      : directory_(std::move(directory)), order_(std::move(order)) {}

  v1::LogPiece Read(int64_t offset, size_t bytes_max) override;

 private:
  absl::StatusOr<std::string> ReadAll() const;

  const std::string directory_;
  const v1::SendLog order_;
  bool is_read_ = false;
  std::string bytes_;
};

}  // namespace cohort::worker
