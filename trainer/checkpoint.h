#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "trainer/loss_scaler.h"
#include "trainer/safetensors.h"

// A checkpoint is a directory, <checkpoint root>/step-<k>:
//
//   model.safetensors, optimizer.safetensors, ...   tensors, one file a purpose
//   manifest.json                                   what they are; written last
//
//   CP-1: a directory called step-<k> is complete and on the disk: files and
//         directories are synced before the one rename that gives it its name.
//   CP-2: it exists for the job when the head has committed its record, not
//         before (Session::CommitCheckpoint).
//   CP-3: what is read equals what was written, or DataLoss names the file.
namespace cohort::trainer {

// What a restart must know besides the tensors.
struct CheckpointManifest {
  std::string job_id{};
  int attempt = 0;
  int64_t epoch = 0;  // of the membership
  int world = 0;
  // How tensors lie over ranks; "replicated": each rank holds all, one file.
  std::string layout = "replicated";
  int64_t step = 0;
  int64_t data_epoch = 0;  // pass over the data, from 0
  int64_t cursor = 0;      // DistributedSampler::cursor()
  uint64_t seed = 0;
  // Of a run that scales its loss.
  std::optional<LossScalerState> scaler{};
  // What else the program wants back, as text: learning rate, model shape.
  std::map<std::string, std::string> program{};
};

// The tensors of one file.
struct CheckpointFile {
  std::string name;  // "model" becomes model.safetensors
  std::vector<TensorView> tensors;
  TensorMetadata metadata;
};

// A checkpoint that was read and verified.
struct Checkpoint {
  CheckpointManifest manifest;
  std::map<std::string, SafetensorsFile> files;  // by name, "model"

  // InvalidArgument when there is none of that name.
  absl::StatusOr<const SafetensorsFile*> Find(const std::string& name) const;
};

// Whether a run of this seed and these facts (CheckpointManifest::program) goes
// on exactly where that one stopped: InvalidArgument, naming the first that
// differs.
absl::Status CheckSameRun(const CheckpointManifest& manifest, uint64_t seed,
                          const std::map<std::string, std::string>& program);

// Writes `files` and `manifest` into <root>/step-<manifest.step> and returns
// that directory.  `root` and its parents are made when absent.  On failure
// nothing called step-<k> is there and what was begun is removed. AlreadyExists
// when that step was written before; InvalidArgument for bad names or tensors;
// ResourceExhausted when the disk is full; else the file system's answer. Every
// message names the path.
absl::StatusOr<std::string> WriteCheckpoint(
    absl::string_view root, const CheckpointManifest& manifest,
    const std::vector<CheckpointFile>& files);

// Reads and verifies the directory that WriteCheckpoint returned.  NotFound
// when it is not there; DataLoss names the file that is damaged or missing.
absl::StatusOr<Checkpoint> ReadCheckpoint(absl::string_view directory);

}  // namespace cohort::trainer
