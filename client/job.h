#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "cohort/v1/cluster.pb.h"
#include "common/hash.h"
#include "common/job_id.h"
#include "common/resources.h"
#include "common/taint.h"

// Jobs as users submit them and as the head answers. Names, meanings and
// defaults are Ray's where Ray has them.
namespace cohort {

// How the workers of a job are spread over nodes.
enum class PlacementStrategy {
  kPack = v1::PLACEMENT_STRATEGY_PACK,      // on few nodes, if possible
  kSpread = v1::PLACEMENT_STRATEGY_SPREAD,  // on many nodes, if possible
  kStrictPack = v1::PLACEMENT_STRATEGY_STRICT_PACK,      // on one node
  kStrictSpread = v1::PLACEMENT_STRATEGY_STRICT_SPREAD,  // each on its own
};

// "PACK", "STRICT_SPREAD", in either case.  InvalidArgument, naming them,
// otherwise.
absl::StatusOr<PlacementStrategy> ParsePlacementStrategy(
    absl::string_view text);

// Keeps all workers within one `level`: "host" is one node, any other level a
// node label that has the same value for all of them.
struct Topology {
  std::string level;      // empty: anywhere
  bool required = false;  // false: if possible
};

struct ScalingConfig {
  // Ranks, placed together or not at all.
  int num_workers = 1;
  bool use_gpu = false;
  // nullopt: one GPU with use_gpu, else one CPU. use_gpu adds one GPU where it
  // has none.
  std::optional<ResourceSet> resources_per_worker;
  PlacementStrategy placement_strategy = PlacementStrategy::kPack;
  // Expressions over node labels (common/label_selector.h); all must hold.
  std::vector<std::string> label_selector;
  // Taints that the job tolerates.
  std::vector<Toleration> tolerations;
  // A GPU model; empty: any.
  std::string accelerator_type;
  Topology topology;
  // Workers on each node, as torchrun's --nproc-per-node: uses num_workers /
  // workers_per_node nodes, and num_workers must be a multiple of it. 0: the
  // strategy decides.
  int workers_per_node = 0;
};

// What each worker gets.  InvalidArgument for GPUs without use_gpu, and as
// ResourceSet::Validate.
absl::StatusOr<ResourceSet> ResourcesPerWorker(const ScalingConfig& scaling);

// What happens to the other ranks when one fails.
enum class RestartPolicy {
  // All start again together, as a new attempt.
  kAll = v1::RESTART_POLICY_ALL,
  // Only that rank starts again, elsewhere if necessary; the others run on.
  kOne = v1::RESTART_POLICY_ONE,
  // The others run on; the job has FAILED when they have ended.
  kNone = v1::RESTART_POLICY_NONE,
};

// "all", "one", "none".  InvalidArgument, naming them, otherwise.
absl::StatusOr<RestartPolicy> ParseRestartPolicy(absl::string_view text);

struct FailureConfig {
  RestartPolicy restart = RestartPolicy::kAll;
  // How often the job starts again after a failure; with kOne, how often each
  // rank does. -1: no limit; nullopt: -1 with kOne, else 0. Losses of nodes and
  // keepers do not count.
  std::optional<int> max_failures;
  // Delay before the attempt after a charged failure; doubles with each, up to
  // five minutes.
  absl::Duration retry_delay = absl::Seconds(1);
};

struct CheckpointConfig {
  // How many are kept besides the last: the newest, or the best by
  // `score_attribute`. nullopt: all.
  std::optional<int> num_to_keep;
  // Of Fit: the metric that ranks checkpoints; empty: newer is better.
  std::string score_attribute{};
  // "max" or "min": which values of it are better.
  std::string score_order = "max";
};

struct RunConfig {
  // For people; need not be unique. Empty: the head may choose one.
  std::string name;
  // An absolute directory that all workers see.  Empty: `results` in each
  // worker's state directory.
  std::string storage_path;
  FailureConfig failure_config;
  CheckpointConfig checkpoint_config;
  // Limit of running time, summed over attempts; then the job is FAILED
  // (timeout).
  absl::Duration time_limit = absl::InfiniteDuration();
  // Between SIGTERM and SIGKILL when the job is stopped.
  absl::Duration grace = absl::Seconds(10);
  // Measures the connections between ranks, in pairs and all together, before
  // the command runs; an attempt whose ranks fail that ends as `infra`.
  bool preflight = false;
  // An attempt starts with what the previous one left in its working directory
  // on that node.
  bool keep_work = false;
  // Each rank sees only its own GPUs. Otherwise, if each local rank has one
  // whole GPU, all see those of their node, indexed by LOCAL_RANK as under
  // torchrun.
  bool isolate_gpus = false;
};

enum class DependencyKind {
  // Once that job has SUCCEEDED; this one is FAILED when it cannot.
  kOk = v1::DEPENDENCY_KIND_OK,
  kAny = v1::DEPENDENCY_KIND_ANY,  // once that job has ended
};

// A job that must end before another one starts.
struct Dependency {
  JobId job;  // a job, or an array: all its elements
  DependencyKind kind = DependencyKind::kOk;
};

// A job as it is submitted.
struct JobSpec {
  // argv of each rank: a program on its PATH, or one with a slash in its name,
  // as ./run for one in the package, which is the rank's directory.
  std::vector<std::string> command;
  // Variables for the ranks, beside those that the worker sets itself.
  std::map<std::string, std::string> environment;
  // More variables, not expanded; the cluster never shows their values.
  std::map<std::string, std::string> secrets;
  ScalingConfig scaling_config;
  RunConfig run_config;
  // A package that the head has (Cluster::UploadPackage).
  std::optional<Digest> package;
  // An existing directory of every worker, absolute, in which the ranks run;
  // without a package.  Empty: a directory of each attempt's own.
  std::string working_directory;

  // For people and Cluster::List; at most 64.
  std::map<std::string, std::string> labels;
  // Empty: "default".  Names need not be unique in it.
  std::string name_space;
  // For people; one line of at most 1 KiB.
  std::string comment;
  // -1000 to 1000.  Higher ones start first; there is no preemption.
  int priority = 0;
  // Waits until Cluster::Release.
  bool hold = false;
  // Earliest start by the head's clock, and least delay after the head accepted
  // it; at most 365 days ahead.
  absl::Time begin = absl::InfinitePast();
  absl::Duration begin_in = absl::ZeroDuration();
  std::vector<Dependency> after;
  // As "0-99%8" (common/array_spec.h): not one job but an array of them, named
  // ID.INDEX, whose ranks find COHORT_ARRAY_INDEX in their environment.
  std::string array;
};

// InvalidArgument, naming the field and what is possible, for a job that no
// head can run as written: no command, workers out of range, and the like.
absl::Status ValidateJobSpec(const JobSpec& spec);

// ---- what the head answers ----

using Job = v1::Job;
using JobState = v1::JobState;
using JobKind = v1::JobKind;
using Rank = v1::Rank;
using ExitStatus = v1::ExitStatus;

// Whether it never changes again.
bool HasEnded(JobState state);

// As in a shell: the code, or 128 plus the signal.
int ShellStatus(const ExitStatus& exit);

// Which jobs a list shows; all of these must hold.
struct ListOptions {
  std::vector<JobState> states;  // empty: any
  std::map<std::string, std::string> labels;
  std::string name_space;      // empty: any
  std::optional<JobId> array;  // its elements
  std::string name;            // empty: any
  std::string id_prefix;       // the hex digits that an id begins with
  // An array is listed in place of its elements, and chosen by its own state.
  bool fold_arrays = false;
  std::vector<JobKind> kinds;  // empty: any
  // The newest ones.
  size_t limit = 10'000;
};

struct JobList {
  std::vector<Job> jobs;  // newest first
  bool is_cut = false;    // more jobs match
};

}  // namespace cohort
