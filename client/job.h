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

#include "common/hash.h"
#include "common/job_id.h"
#include "common/resources.h"
#include "common/strong_id.h"
#include "common/taint.h"

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

// That all workers lie within one `level`: "host" is the node, any other one a
// node label whose value is the same for all of them.
struct Topology {
  std::string level;      // empty: anywhere
  bool required = false;  // false: when that is possible
};

struct ScalingConfig {
  // Ranks, placed together or not at all.
  int num_workers = 1;
  bool use_gpu = false;
  // Nothing: one GPU with use_gpu, else one CPU.  With use_gpu and no GPU in
  // it: what it says and one GPU.
  std::optional<ResourceSet> resources_per_worker;
  PlacementStrategy placement_strategy = PlacementStrategy::kPack;
  // Expressions over node labels (common/label_selector.h); all must hold.
  std::vector<std::string> selectors;
  // Taints of nodes that the job bears.
  std::vector<Toleration> tolerations;
  // A GPU model; empty: any.
  std::string accelerator_type;
  Topology topology;
};

// What each worker gets.  InvalidArgument for GPUs without use_gpu, and as
// ResourceSet::Validate.
absl::StatusOr<ResourceSet> ResourcesPerWorker(const ScalingConfig& scaling);

// What becomes of the other ranks when one fails.
enum class RestartPolicy {
  kAll,   // all start again together, as a new attempt
  kOne,   // it alone starts again, elsewhere if need be; the others run on
  kNone,  // the others run on; the job has FAILED when they have ended
};

// "all".
const char* RestartPolicyName(RestartPolicy policy);
// As those names.  InvalidArgument, naming them, otherwise.
absl::StatusOr<RestartPolicy> ParseRestartPolicy(absl::string_view text);

struct FailureConfig {
  RestartPolicy restart = RestartPolicy::kAll;
  // How often the job starts again after a failure; under kOne how often each
  // rank does.  -1: without limit; nothing: -1 under kOne, else 0.  The loss of
  // a node or keeper is not counted here.
  std::optional<int> max_failures;
  // Before the attempt after a charged failure; doubles with each, up to five
  // minutes.
  absl::Duration retry_delay = absl::Seconds(1);
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
  // Of running, summed over attempts; then the job FAILED (timeout).
  absl::Duration time_limit = absl::InfiniteDuration();
  // Between SIGTERM and SIGKILL when the job is stopped.
  absl::Duration grace = absl::Seconds(10);
  // Before the command runs, its ranks meet and measure every pair and all
  // together; an attempt whose ranks do not come through ends as `infra`.
  bool preflight = false;
};

enum class DependencyKind {
  kOk,   // once that job has SUCCEEDED; this one is FAILED when it cannot
  kAny,  // once that job has ended
};

// A job that is to end before another one starts.
struct Dependency {
  JobId job;  // a job, or an array: all its elements
  DependencyKind kind = DependencyKind::kOk;
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

  // For people and Cluster::List; at most 64.
  std::map<std::string, std::string> labels;
  // Empty: "default".  Names need not be unique in it.
  std::string name_space;
  // For people; one line of at most 1 KiB.
  std::string comment;
  // -1000 to 1000.  Higher ones start first; nobody is preempted.
  int priority = 0;
  // Waits until Cluster::Release.
  bool hold = false;
  // Does not start before this time of the head's clock, nor sooner than so
  // long after the head took it; at most 365 days ahead.
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

// Why an attempt failed, as budgets see it.
enum class FailureClass { kUser, kInfra, kPreempted, kOom, kHang, kTimeout };

// "user", "infra".
const char* FailureClassName(FailureClass failure_class);

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
  // Of its process, growing with each start; 0: none was placed.
  uint64_t incarnation = 0;
  int failures = 0;  // charged to it alone, under RestartPolicy::kOne
  // Ids of devices of its node (Node::devices), as in CUDA_VISIBLE_DEVICES.
  std::vector<std::string> gpu_ids;
};

// A checkpoint that the head has committed.
struct Checkpoint {
  std::string path;  // the step's directory
  int64_t step = 0;
  int64_t epoch = 0;
};

enum class PreflightVerdict {
  kUnknown,  // from a newer head
  kPassed,
  kSlow,    // it runs, but for a pair far below its peers
  kFailed,  // it does not run
};

// "passed"; "unknown".
const char* PreflightVerdictName(PreflightVerdict verdict);

// What came of the preflight of a job's attempt.
struct Preflight {
  int attempt = 0;
  PreflightVerdict verdict = PreflightVerdict::kUnknown;
  std::string summary;  // on one line
  // The report, one JSON object (docs/operations.md lists what is in it);
  // empty where it did not get that far.
  std::string json;
  std::optional<absl::Time> at;
};

// The elements of an array, counted.
struct ArrayStatus {
  int64_t size = 0;
  std::optional<int> at_once;
  std::map<JobState, int64_t> counts;  // of states that there are
};

// A job, or an array as a whole: its state is that of its elements together,
// its end that of the first one, by index, that failed.
struct Job {
  JobId id;
  std::string name;
  JobState state = JobState::kUnknown;
  // Why it waits, or why it ended.
  std::string reason;
  // It waits although it would not fit if all nodes were idle.  Not in lists.
  bool never_fits = false;
  int attempt = 0;         // 0: none yet
  int failures = 0;        // charged to max_failures
  int infra_restarts = 0;  // not charged
  // Of its membership: grows when a rank is replaced or the job is resized; 0:
  // none yet.
  int64_t epoch = 0;
  int num_workers = 0;  // that it is to have
  // Of the rank that failed first, and which that was; 0 once it succeeded.
  std::optional<ExitStatus> exit;
  std::optional<int> failed_rank;
  std::optional<absl::Time> submitted_at;
  std::optional<absl::Time> started_at;
  std::optional<absl::Time> ended_at;
  // Of its ranks, over all attempts: what the time limit counts.
  std::optional<absl::Duration> ran;
  // The JSON object that was reported last; empty: none.
  std::string metrics_json;
  int64_t metrics_count = 0;
  std::optional<Checkpoint> checkpoint;
  std::map<std::string, std::string> labels;
  std::string name_space;
  int priority = 0;
  bool held = false;
  // Of the last failure, and how it came about, the first cause first.
  std::optional<FailureClass> failure_class;
  std::vector<std::string> causes;
  std::map<FailureClass, int> failures_by_class;  // charged or not
  std::optional<ArrayStatus> array;               // set for an array

  // Empty in lists.
  std::vector<Rank> ranks;  // of the last attempt
  std::string comment;
  std::vector<std::string> command;
  ResourceSet resources_per_worker;
  PlacementStrategy placement_strategy = PlacementStrategy::kPack;
  std::string storage_path;
  RestartPolicy restart = RestartPolicy::kAll;
  int max_failures = 0;     // as FailureConfig's
  std::string stderr_tail;  // of the failed rank, at most 64 KiB
  absl::Duration time_limit = absl::InfiniteDuration();
  absl::Duration grace;
  absl::Duration retry_delay;
  std::vector<std::string> selectors;
  std::vector<Toleration> tolerations;
  std::string accelerator_type;
  Topology topology;
  std::vector<Dependency> after;
  std::optional<absl::Time> begin;  // not before
  std::string array_spec;           // "0-99%8"; also of each element
  bool preflight_wanted = false;
  std::optional<Preflight> preflight;  // the last one
};

// Which jobs a list shows; everything that is said must hold.
struct ListOptions {
  std::vector<JobState> states;  // empty: any
  std::map<std::string, std::string> labels;
  std::string name_space;      // empty: any
  std::optional<JobId> array;  // its elements
  // The newest ones.
  size_t limit = 10'000;
};

struct JobList {
  std::vector<Job> jobs;  // newest first
  bool is_cut = false;    // more jobs match
};

}  // namespace cohort
