#include "client/job.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/job_limits.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "rpc/enum_text.h"

namespace cohort {

absl::StatusOr<PlacementStrategy> ParsePlacementStrategy(
    absl::string_view text) {
  const auto known = {
      v1::PLACEMENT_STRATEGY_PACK, v1::PLACEMENT_STRATEGY_SPREAD,
      v1::PLACEMENT_STRATEGY_STRICT_PACK, v1::PLACEMENT_STRATEGY_STRICT_SPREAD};
  for (const v1::PlacementStrategy each : known) {
    if (absl::EqualsIgnoreCase(text, EnumText(each))) {
      return static_cast<PlacementStrategy>(each);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the strategy ", Quoted(text),
                   " is not one of PACK, SPREAD, STRICT_PACK, STRICT_SPREAD"));
}

absl::StatusOr<RestartPolicy> ParseRestartPolicy(absl::string_view text) {
  for (const auto each : {v1::RESTART_POLICY_ALL, v1::RESTART_POLICY_ONE,
                          v1::RESTART_POLICY_NONE}) {
    if (text == LowerEnumText(each)) return static_cast<RestartPolicy>(each);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the restart policy ", Quoted(text), " is not one of all, one, none"));
}

absl::StatusOr<ResourceSet> ResourcesPerWorker(const ScalingConfig& scaling) {
  ResourceSet resources;
  if (scaling.resources_per_worker.has_value()) {
    resources = *scaling.resources_per_worker;
  } else if (!scaling.use_gpu) {
    resources.Set(kCpu, Amount::FromUnits(1));
  }
  if (scaling.use_gpu && resources.Get(kGpu).IsZero()) {
    resources.Set(kGpu, Amount::FromUnits(1));
  }
  if (!scaling.use_gpu && !resources.Get(kGpu).IsZero()) {
    return absl::InvalidArgumentError(
        "resources_per_worker has GPUs and use_gpu is false: set use_gpu");
  }
  COHORT_RETURN_IF_ERROR(resources.Validate());
  return resources;
}

namespace {

// What says when and where the job may start.
absl::Status CheckOrder(const JobSpec& spec) {
  COHORT_RETURN_IF_ERROR(CheckLabels(spec.labels));
  if (!spec.name_space.empty()) {
    COHORT_RETURN_IF_ERROR(CheckNamespace(spec.name_space));
  }
  COHORT_RETURN_IF_ERROR(CheckPriority(spec.priority));
  COHORT_RETURN_IF_ERROR(CheckArray(spec.array));
  COHORT_RETURN_IF_ERROR(CheckStartsIn(spec.begin_in));
  std::vector<JobId> after;
  for (const Dependency& each : spec.after) after.push_back(each.job);
  COHORT_RETURN_IF_ERROR(CheckAfter(after));
  const ScalingConfig& scaling = spec.scaling_config;
  COHORT_RETURN_IF_ERROR(CheckSelectors(scaling.label_selector));
  COHORT_RETURN_IF_ERROR(CheckTolerations(scaling.tolerations));
  COHORT_RETURN_IF_ERROR(CheckAcceleratorType(scaling.accelerator_type));
  return CheckTopologyLevel(scaling.topology.level);
}

}  // namespace

absl::Status ValidateJobSpec(const JobSpec& spec) {
  COHORT_RETURN_IF_ERROR(
      CheckCommand(spec.command, spec.environment, spec.secrets));
  COHORT_RETURN_IF_ERROR(CheckNumWorkers(spec.scaling_config.num_workers));
  COHORT_ASSIGN_OR_RETURN(const ResourceSet resources,
                          ResourcesPerWorker(spec.scaling_config));
  COHORT_RETURN_IF_ERROR(CheckResourcesPerWorker(resources));
  COHORT_RETURN_IF_ERROR(
      CheckWorkingDirectory(spec.working_directory, spec.package.has_value()));
  const RunConfig& run = spec.run_config;
  COHORT_RETURN_IF_ERROR(CheckJobName(run.name));
  COHORT_RETURN_IF_ERROR(CheckStoragePath(run.storage_path));
  COHORT_RETURN_IF_ERROR(
      CheckMaxFailures(run.failure_config.max_failures.value_or(0)));
  COHORT_RETURN_IF_ERROR(CheckRetryDelay(run.failure_config.retry_delay));
  COHORT_RETURN_IF_ERROR(CheckTimeLimit(run.time_limit));
  COHORT_RETURN_IF_ERROR(CheckGrace(run.grace));
  COHORT_RETURN_IF_ERROR(CheckOrder(spec));
  const std::string& order = run.checkpoint_config.score_order;
  if (order != "max" && order != "min") {
    return absl::InvalidArgumentError(
        absl::StrCat("score_order is \"", order, "\" (\"max\" or \"min\")"));
  }
  const std::optional<int> num_to_keep = run.checkpoint_config.num_to_keep;
  if (num_to_keep.value_or(1) >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "num_to_keep is ", *num_to_keep,
      ", it can be 1 or more; leave it out to keep all checkpoints"));
}

bool HasEnded(JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_STOPPED;
}

int ShellStatus(const ExitStatus& exit) {
  return exit.signal() != 0 ? 128 + exit.signal() : exit.code();
}

}  // namespace cohort
