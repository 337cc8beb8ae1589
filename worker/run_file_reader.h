#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "cohort/v1/node.pb.h"
#include "common/unique_fd.h"
#include "worker/piece_reader.h"
#include "worker/work_directory.h"

namespace cohort::worker {

// Reads a file of a job's run directory, or the list of its files, for a head
// that asks for it piece by piece: as it was when the first piece was read, but
// for what is written to the file meanwhile.
//
// Blocks.  Thread-compatible.
class RunFileReader final : public PieceReader {
 public:
  // `work` outlives it.
  RunFileReader(const WorkDirectories& work, v1::SendLog order)
      : work_(work), order_(std::move(order)) {}

  v1::LogPiece Read(int64_t offset, size_t bytes_max) override;

 private:
  absl::Status Open();
  absl::Status ReadBytes(int64_t offset, size_t bytes_max, v1::LogPiece& piece);
  void ReadList(int64_t offset, size_t bytes_max, v1::LogPiece& piece);

  const WorkDirectories& work_;
  const v1::SendLog order_;
  bool opened_ = false;
  UniqueFd file_;
  std::vector<v1::RunFile> list_;
};

}  // namespace cohort::worker
