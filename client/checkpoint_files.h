#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"

#include "client/cluster.h"
#include "common/job_id.h"

// The checkpoints that a job's training saved (docs/training.md), read from the
// nodes that have them as other files of the job.
namespace cohort {

struct CheckpointTensor {
  std::string name;
  std::string dtype;  // as safetensors spells it: "F32"
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

struct JobCheckpoint {
  struct File {
    std::string name;
    std::string part;  // "model"
    std::string sha256;
    uint64_t bytes = 0;
  };

  std::string path;  // "attempt-1.1/step-500", unique in the job
  std::string node_id;
  std::string node_name;
  absl::Time written_at;
  // Why its manifest cannot be used; then what is below is empty.
  absl::Status status;
  nlohmann::ordered_json manifest;
  int64_t step = 0;
  int64_t epochs = 0;  // passes over the data that were over
  std::map<std::string, double> metrics;
  std::vector<File> files;
  // The one that a restart goes on from; the best by the job's score.
  bool is_latest = false;
  bool is_best = false;

  uint64_t bytes() const;  // of all files
};

// By time, the oldest first.  Errors of Cluster::Get, Files and ReadFile.
absl::StatusOr<std::vector<JobCheckpoint>> ListCheckpoints(
    const Cluster& cluster, const JobId& job);

// Which of its files are not as its manifest says, and how; none: all are.
// Unavailable: its node is away.
absl::StatusOr<std::vector<std::string>> VerifyCheckpoint(
    const Cluster& cluster, const JobId& job, const JobCheckpoint& checkpoint);

// The tensors of a part, by name.  NotFound names the parts that it has.
absl::StatusOr<std::vector<CheckpointTensor>> TensorsOf(
    const Cluster& cluster, const JobId& job, const JobCheckpoint& checkpoint,
    const std::string& part);

// Writes all tensors of a part into one safetensors file at `path`, which is
// there whole or not at all.  NotFound names the parts that it has; DataLoss
// the file that is damaged.
absl::Status ExportCheckpoint(const Cluster& cluster, const JobId& job,
                              const JobCheckpoint& checkpoint,
                              const std::string& part, const std::string& path);

}  // namespace cohort
