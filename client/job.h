#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/hash.h"
#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"

// What users say about jobs and what they are told.  Names, meanings and
// defaults are Ray's where Ray has them.  Plain values.
namespace cohort {

// How the workers of a job are spread over nodes.
enum class PlacementStrategy {
  kPack,          // on few nodes, if that is possible
  kSpread,        // on many nodes, if that is possible
  kStrictPack,    // on one node
  kStrictSpread,  // each on a node of its own
};

// "PACK", "STRICT_SPREAD".
const char* PlacementStrategyName(PlacementStrategy strategy);
// As those names, in either case.  InvalidArgument, naming them, otherwise.
absl::StatusOr<PlacementStrategy> ParsePlacementStrategy(
    absl::string_view text);

struct ScalingConfig {
  // Ranks, placed together or not at all.
  int num_workers = 1;
  bool use_gpu = false;
  // Nothing: one GPU with use_gpu, else one CPU.  With use_gpu and no GPU in
  // it: what it says and one GPU.
  std::optional<ResourceSet> resources_per_worker;
  PlacementStrategy placement_strategy = PlacementStrategy::kPack;
};

// What each worker gets.  InvalidArgument for GPUs without use_gpu, and as
// ResourceSet::Validate.
absl::StatusOr<ResourceSet> ResourcesPerWorker(const ScalingConfig& scaling);

struct FailureConfig {
  // How often the job starts again after a failure; -1: without limit.  The
  // loss of a node or keeper is not counted here.
  int max_failures = 0;
};

struct CheckpointConfig {
  // The newest ones that are kept; nothing: all.
  std::optional<int> num_to_keep;
};

struct RunConfig {
  // For people; need not be unique.  Empty: the head makes one up or shows
  // none.
  std::string name;
  // An absolute directory that all workers see.  Empty: `results` in each
  // worker's state directory.
  std::string storage_path;
  FailureConfig failure_config;
  CheckpointConfig checkpoint_config;
};

// A job as it is submitted.
struct JobSpec {
  // argv of each rank: a program on its PATH, or one with a slash in its name,
  // as ./run for one in the package, which is the rank's directory.
  std::vector<std::string> command;
  // Added to what the worker sets; none of that can be set here.
  std::map<std::string, std::string> environment;
  ScalingConfig scaling_config;
  RunConfig run_config;
  // A package that the head has (Cluster::UploadPackage).
  std::optional<Digest> package;
};

// InvalidArgument, naming the field and what is possible, for a job that no
// head can run as written: no command, workers out of range, and the like.
absl::Status ValidateJobSpec(const JobSpec& spec);

// Drawn in docs/design/0001-first-light.md.
enum class JobState {
  kUnknown,  // from a newer head
  kPending,
  kStarting,
  kRunning,
  kStopping,
  kSucceeded,
  kFailed,
  kStopped,
};

// "PENDING"; "UNKNOWN".
const char* JobStateName(JobState state);
// Whether it never changes again.
bool HasEnded(JobState state);

enum class RankState { kUnknown, kPending, kStarting, kRunning, kExited };

const char* RankStateName(RankState state);

// How a process ended.
struct ExitStatus {
  // Meaningful when signal is 0.
  int code = 0;
  int signal = 0;
  bool oom_killed = false;
  std::string detail;

  // As a shell says it: the code, or 128 and the signal.
  int ShellStatus() const { return signal != 0 ? 128 + signal : code; }
};

// One process of a job.
struct Rank {
  int rank = 0;
  int local_rank = 0;
  NodeId node;
  std::string node_name;
  std::optional<int64_t> pid;
  RankState state = RankState::kUnknown;
  std::optional<ExitStatus> exit;
  // Ids of devices of its node (Node::devices), as in CUDA_VISIBLE_DEVICES.
  std::vector<std::string> gpu_ids;
};

// A checkpoint that the head has committed.
struct Checkpoint {
  std::string path;  // the step's directory
  int64_t step = 0;
  int64_t epoch = 0;
};

struct Job {
  JobId id;
  std::string name;
  JobState state = JobState::kUnknown;
  // Why it waits, or why it ended.
  std::string reason;
  int attempt = 0;         // 0: none yet
  int failures = 0;        // charged to max_failures
  int infra_restarts = 0;  // not charged
  // Of the rank that failed first, and which that was; 0 once it succeeded.
  std::optional<ExitStatus> exit;
  std::optional<int> failed_rank;
  std::optional<absl::Time> submitted_at;
  std::optional<absl::Time> started_at;
  std::optional<absl::Time> ended_at;
  // The JSON object that was reported last; empty: none.
  std::string metrics_json;
  int64_t metrics_count = 0;
  std::optional<Checkpoint> checkpoint;

  // Empty in lists.
  std::vector<Rank> ranks;  // of the last attempt
  std::vector<std::string> command;
  int num_workers = 0;
  ResourceSet resources_per_worker;
  PlacementStrategy placement_strategy = PlacementStrategy::kPack;
  std::string storage_path;
  int max_failures = 0;
};

}  // namespace cohort
