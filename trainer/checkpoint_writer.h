#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "trainer/checkpoint.h"
#include "trainer/checkpoint_shares.h"
#include "trainer/comm/comm.h"

namespace cohort::trainer {

// Writes the checkpoints of a gang, all ranks together and behind their backs.
//
//   Begin     copies this rank's share of the state, all that the training
//             thread waits for; a thread writes it to <root>/.step-<k>.tmp
//   Advance   once all ranks' shares are on the disk: rank 0's thread writes
//             the manifest, renames the directory to <root>/step-<k> and
//             commits its record
//   Advance   once that is over: the checkpoint is there
//
// One at a time: Finish it before the next Begin.  A process that dies at any
// moment leaves a .step-<k>.tmp that nobody reads, or a whole checkpoint.
//
// Every rank makes the same calls.  The copy is kept for the next one: a rank
// needs as much more memory as its share has.  Thread-compatible.
class CheckpointWriter {
 public:
  // Makes the head know a checkpoint: called on rank 0's thread.
  using Commit = std::function<absl::Status(const std::string& path)>;

  // `comm` outlives it.  `root` and its parents are made when absent; all ranks
  // see the same there (CheckSharedStorage).
  CheckpointWriter(Comm& comm, std::string root,
                   size_t split_bytes_min = kSplitBytesMin);
  // Waits for what this rank writes; what is not finished is given up.
  ~CheckpointWriter();

  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // InvalidArgument, and nothing was begun: a bad name of a part, a negative
  // step.  REQUIRES: !is_writing().
  absl::Status Begin(const CheckpointManifest& manifest,
                     const std::vector<CheckpointFile>& files, Commit commit);

  // One was begun and is not there yet.
  bool is_writing() const { return stage_ != Stage::kIdle; }
  // This rank has nothing to do until Advance.  Neither blocks nor calls.
  bool IsReady() const { return is_writing() && is_ready_; }

  // Goes on to the next stage, when this rank and all others have come to the
  // end of this one; `timeout` is for the others.  The directory, once the
  // checkpoint is there.  Errors, alike on all ranks and with the rank's
  // number, after which nothing is left and nothing is being written:
  // AlreadyExists when that step was written before; InvalidArgument for
  // tensors that cannot be written, or that the ranks have not alike;
  // ResourceExhausted when a disk is full; else the file system's answer, with
  // the path, the commit's, or the communicator's.
  absl::StatusOr<std::optional<std::string>> Advance(absl::Duration timeout);
  // To the end.  REQUIRES: is_writing().
  absl::StatusOr<std::string> Finish(absl::Duration timeout);

 private:
  enum class Stage { kIdle, kShares, kPublish };
  // How a rank came through a stage.
  struct Verdict {
    absl::Status status;
    uint64_t fingerprint = 0;
    FileTable files;
  };

  static std::string Encode(const Verdict& verdict);
  static absl::StatusOr<Verdict> Decode(const std::string& text);

  // Points `shares` at a copy of their bytes.
  absl::Status TakeSnapshot(std::vector<CheckpointShare>& shares);
  absl::Status Reserve(size_t bytes);
  void Start(std::function<absl::StatusOr<FileTable>()> work);
  absl::StatusOr<FileTable> WriteShares(
      const std::vector<CheckpointShare>& shares) const;
  absl::Status Publish(const FileTable& files) const;
  absl::StatusOr<FileTable> GatherVerdicts(absl::Duration timeout);
  void GiveUp();
  std::string Draft() const;
  std::string FinalPath() const;

  Comm& comm_;
  const std::string root_;
  const size_t split_bytes_min_;

  Stage stage_ = Stage::kIdle;
  CheckpointManifest manifest_;
  Commit commit_;
  std::unique_ptr<std::byte[]> snapshot_;
  size_t snapshot_bytes_ = 0;

  std::thread thread_;
  Verdict mine_;  // the thread's, until is_ready_
  std::atomic<bool> is_ready_ = false;
};

}  // namespace cohort::trainer
