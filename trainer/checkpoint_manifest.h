#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "trainer/loss_scaler.h"

// manifest.json of a checkpoint (trainer/checkpoint.h).  On disk: fields are
// added, never renamed; `cohort checkpoints` reads them too
// (client/checkpoint_files.h).
namespace cohort::trainer {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kTensorSuffix[] = ".safetensors";

// What a restart must know besides the tensors.
struct CheckpointManifest {
  std::string job_id{};  // the run's
  int attempt = 0;
  int64_t epoch = 0;  // of the membership
  int world = 0;
  // How tensors lie over ranks; "replicated": each rank holds all.
  std::string layout = "replicated";
  int64_t step = 0;
  int64_t data_epoch = 0;  // pass over the data, from 0
  int64_t cursor = 0;      // DistributedSampler::cursor()
  uint64_t seed = 0;
  // Of a run that scales its loss.
  std::optional<LossScalerState> scaler{};
  // What else the program wants back, as text: learning rate, model shape.
  std::map<std::string, std::string> program{};
  // What made it, as far as it is known: hashes of the job's package and of
  // what its driver asked for, and each optimizer's kind by its part's name.
  std::string package{};
  std::string spec{};
  std::map<std::string, std::string> optimizers{};
  // The run's last metrics.
  std::map<std::string, double> metrics{};
};

// What the manifest says of a file.
struct FileFacts {
  uint64_t size = 0;
  std::string sha256;
  std::string part;  // whose tensors it has: "model"

  bool operator==(const FileFacts&) const = default;
};
using FileTable = std::map<std::string, FileFacts>;  // by the file's name

// a-z, 0-9, _ and -, at most 64 of them.
bool IsPartName(absl::string_view name);

std::string EncodeManifest(const CheckpointManifest& manifest,
                           const FileTable& files);

struct ParsedManifest {
  CheckpointManifest manifest;
  FileTable files;
};

// `path` is for errors.  DataLoss names what is not as it should be;
// FailedPrecondition for a format that this program does not know.
absl::StatusOr<ParsedManifest> ParseManifest(const std::string& path,
                                             std::span<const std::byte> bytes);

// Whether a run of this seed and these facts (CheckpointManifest::program) goes
// on exactly where that one stopped: InvalidArgument, naming the first that
// differs.
absl::Status CheckSameRun(const CheckpointManifest& manifest, uint64_t seed,
                          const std::map<std::string, std::string>& program);

}  // namespace cohort::trainer
