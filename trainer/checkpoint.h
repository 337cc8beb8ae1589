#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "trainer/checkpoint_manifest.h"
#include "trainer/safetensors.h"

// A checkpoint is a directory, <checkpoint root>/step-<k>:
//
//   model.safetensors                     a part's tensors, in one file or
//   optimizer-00001-of-00002.safetensors  several, which other ranks wrote
//   manifest.json                         what they are; written last
//
//   CP-1: a directory called step-<k> is complete and on the disk: files and
//         directories are synced before the one rename that gives it its name.
//   CP-2: it exists for the job when the head has committed its record, not
//         before (Session::CommitCheckpoint).
//   CP-3: what is read equals what was written, or DataLoss names the file.
//   CP-4: which ranks wrote which files is of no consequence to who reads it:
//         each tensor is whole, in one of its part's files.
namespace cohort::trainer {

// The tensors of one part, and who writes them.
struct CheckpointFile {
  enum class By {
    kAll,   // All ranks have them: each writes a share.
    kLead,  // Rank 0 writes those that it has.
    kEach,  // Each rank has its own, of names that no other has.
  };

  std::string name;  // "model" becomes model.safetensors
  std::vector<TensorView> tensors;
  TensorMetadata metadata;
  By by = By::kAll;
};

// A checkpoint that was read and verified.
struct Checkpoint {
  CheckpointManifest manifest;
  std::map<std::string, SafetensorsFile> files;  // by the part's name, "model"

  // InvalidArgument when there is none of that name.
  absl::StatusOr<const SafetensorsFile*> Find(const std::string& name) const;
};

// Reads and verifies the directory that CheckpointWriter wrote.  NotFound when
// it is not there; DataLoss names the file that is damaged or missing.
absl::StatusOr<Checkpoint> ReadCheckpoint(absl::string_view directory);

}  // namespace cohort::trainer
