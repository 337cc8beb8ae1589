#include "client/cli/job_flags.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/table.h"
#include "common/key_values.h"
#include "common/size_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

absl::Status Bad(absl::string_view flag, const absl::Status& why) {
  return UsageError(absl::StrCat(flag, ": ", why.message()));
}

// Puts what `flag` says of the resource `name` into `resources`, unless
// --resources has said it.
absl::Status PutAmount(absl::string_view flag, const char* name,
                       const absl::StatusOr<Amount>& amount,
                       const std::map<std::string, std::string>& named,
                       ResourceSet& resources) {
  if (!amount.ok()) return Bad(flag, amount.status());
  if (named.contains(name)) {
    return UsageError(absl::StrCat(flag, " and --resources ", name,
                                   "=... say the same; give one of them"));
  }
  resources.Set(name, *amount);
  return absl::OkStatus();
}

absl::StatusOr<Amount> ParseMemory(const std::string& text) {
  COHORT_ASSIGN_OR_RETURN(const int64_t bytes, ParseSize(text));
  // Beyond what an Amount holds it would stay at the bound without a word.
  const Amount amount = Amount::FromUnits(bytes);
  if (amount.WholeUnits() != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is more memory than any node has"));
  }
  return amount;
}

absl::Status PutGpus(const JobFlags& flags,
                     const std::map<std::string, std::string>& named,
                     ResourceSet& resources) {
  if (!flags.gpus.empty()) {
    COHORT_RETURN_IF_ERROR(
        PutAmount("--gpus", kGpu, Amount::Parse(flags.gpus), named, resources));
  } else if (flags.use_gpu && !named.contains(kGpu)) {
    resources.Set(kGpu, Amount::FromUnits(1));
  }
  if (flags.use_gpu && resources.Get(kGpu).IsZero()) {
    return UsageError(
        "--use-gpu and no GPU per worker contradict each other: leave out "
        "--use-gpu, or give --gpus 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<ResourceSet> ToResources(const JobFlags& flags) {
  absl::StatusOr<ResourceSet> parsed = ParseResources(flags.resources);
  if (!parsed.ok()) return Bad("--resources", parsed.status());
  ResourceSet resources = *std::move(parsed);
  // Zero leaves no trace in a ResourceSet, but it was said.
  COHORT_ASSIGN_OR_RETURN(const auto named, ParseKeyValues(flags.resources));
  if (!flags.cpus.empty()) {
    COHORT_RETURN_IF_ERROR(
        PutAmount("--cpus", kCpu, Amount::Parse(flags.cpus), named, resources));
  } else if (!named.contains(kCpu)) {
    resources.Set(kCpu, Amount::FromUnits(1));
  }
  if (!flags.memory.empty()) {
    COHORT_RETURN_IF_ERROR(PutAmount(
        "--memory", kMemory, ParseMemory(flags.memory), named, resources));
  }
  COHORT_RETURN_IF_ERROR(PutGpus(flags, named, resources));
  return resources;
}

absl::StatusOr<ScalingConfig> ToScaling(const JobFlags& flags) {
  ScalingConfig scaling;
  if (!flags.num_workers.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        scaling.num_workers,
        ParseInt("--num-workers", flags.num_workers, 1, 10'000));
  }
  COHORT_ASSIGN_OR_RETURN(scaling.resources_per_worker, ToResources(flags));
  scaling.use_gpu = !scaling.resources_per_worker->Get(kGpu).IsZero();
  if (!flags.strategy.empty()) {
    const absl::StatusOr<PlacementStrategy> strategy =
        ParsePlacementStrategy(flags.strategy);
    if (!strategy.ok()) return Bad("--strategy", strategy.status());
    scaling.placement_strategy = *strategy;
  }
  return scaling;
}

absl::StatusOr<RunConfig> ToRun(const JobFlags& flags) {
  RunConfig run;
  run.name = flags.name;
  if (!flags.storage_path.empty()) {
    // The workers have another working directory than this shell.
    std::error_code error;
    run.storage_path =
        std::filesystem::absolute(flags.storage_path, error).lexically_normal();
    if (error) {
      return UsageError(absl::StrCat("--storage-path ", flags.storage_path,
                                     ": ", error.message()));
    }
  }
  if (!flags.max_failures.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        run.failure_config.max_failures,
        ParseInt("--max-failures", flags.max_failures, -1, 1'000'000));
  }
  if (!flags.num_to_keep.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        run.checkpoint_config.num_to_keep,
        ParseInt("--num-to-keep", flags.num_to_keep, 1, 1'000'000));
  }
  return run;
}

absl::Status PutEnvironment(const std::vector<std::string>& variables,
                            std::map<std::string, std::string>& environment) {
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    if (equals == std::string::npos || equals == 0) {
      return UsageError(
          absl::StrCat("--env ", OneLine(variable), ": write NAME=VALUE"));
    }
    environment[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<JobSpec> ToJobSpec(const JobFlags& flags,
                                  std::vector<std::string> command) {
  JobSpec spec;
  spec.command = std::move(command);
  COHORT_RETURN_IF_ERROR(PutEnvironment(flags.environment, spec.environment));
  COHORT_ASSIGN_OR_RETURN(spec.scaling_config, ToScaling(flags));
  COHORT_ASSIGN_OR_RETURN(spec.run_config, ToRun(flags));
  COHORT_RETURN_IF_ERROR(ValidateJobSpec(spec));
  return spec;
}

}  // namespace cohort::cli
