#include "client/job.h"

#include <cstddef>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"

namespace cohort {
namespace {

// The head's own bounds (head/job_spec.cc): said here before anything is sent.
constexpr int kWorkersMax = 10'000;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kPathBytesMax = 1024;
constexpr size_t kArgumentsMax = 4'096;
constexpr size_t kEnvironmentMax = 4'096;
// Linux refuses one argument or variable of 128 KiB (MAX_ARG_STRLEN).
constexpr size_t kArgumentBytesMax = 128 << 10;
constexpr size_t kCommandBytesMax = 1 << 20;
constexpr int kFailuresMax = 1'000'000;

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)), "\"");
}

bool IsPrintable(absl::string_view text) {
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

bool FitsExec(absl::string_view text) {
  return !absl::StrContains(text, '\0') && text.size() < kArgumentBytesMax;
}

bool IsVariableName(absl::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax ||
      absl::ascii_isdigit(static_cast<unsigned char>(name.front()))) {
    return false;
  }
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') {
      return false;
    }
  }
  return true;
}

absl::Status ValidateCommand(const JobSpec& spec) {
  if (spec.command.empty() || spec.command.front().empty()) {
    return absl::InvalidArgumentError(
        "the command is empty: name the program to run");
  }
  if (spec.command.size() > kArgumentsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the command has ", spec.command.size(),
                     " arguments, at most ", kArgumentsMax, " are possible"));
  }
  size_t bytes = 0;
  for (const std::string& argument : spec.command) {
    if (!FitsExec(argument)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the argument ", Quoted(argument), " has a NUL byte or more than ",
          kArgumentBytesMax - 1, " bytes: pass long input as a file"));
    }
    bytes += argument.size();
  }
  for (const auto& [name, value] : spec.environment) bytes += value.size();
  if (bytes > kCommandBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("command and environment have ", bytes, " bytes, at most ",
                     kCommandBytesMax, " are possible: pass input as a file"));
  }
  return absl::OkStatus();
}

absl::Status ValidateEnvironment(const JobSpec& spec) {
  if (spec.environment.size() > kEnvironmentMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment has ", spec.environment.size(),
                     " variables, at most ", kEnvironmentMax, " are possible"));
  }
  for (const auto& [name, value] : spec.environment) {
    if (!IsVariableName(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the environment variable ", Quoted(name),
                       " is not named with letters, digits and _, not "
                       "beginning with a digit"));
    }
    if (!FitsExec(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the value of the environment variable ", name,
          " has a NUL byte or more than ", kArgumentBytesMax - 1, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateScaling(const ScalingConfig& scaling) {
  if (scaling.num_workers < 1 || scaling.num_workers > kWorkersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_workers is ", scaling.num_workers,
                     ", it can be 1 to ", kWorkersMax));
  }
  COHORT_ASSIGN_OR_RETURN(const ResourceSet resources,
                          ResourcesPerWorker(scaling));
  const Amount gpu = resources.Get(kGpu);
  if (gpu > Amount::FromUnits(1) &&
      gpu.ten_thousandths() % Amount::kScale != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", gpu.ToString(),
                     " per worker: above 1 only whole GPUs can be given"));
  }
  return absl::OkStatus();
}

absl::Status ValidateRun(const RunConfig& run) {
  if (run.name.size() > kNameBytesMax || !IsPrintable(run.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name ", Quoted(run.name),
                     " is not one line of at most ", kNameBytesMax, " bytes"));
  }
  if (!run.storage_path.empty() && (!absl::StartsWith(run.storage_path, "/") ||
                                    run.storage_path.size() > kPathBytesMax ||
                                    !IsPrintable(run.storage_path))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the storage path ", Quoted(run.storage_path),
        " is not absolute: give the full path of a directory that all workers "
        "see, at most ",
        kPathBytesMax, " bytes, or none"));
  }
  const int failures = run.failure_config.max_failures;
  if (failures < -1 || failures > kFailuresMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_failures is ", failures,
        ", it can be -1 (no limit), 0, or more up to ", kFailuresMax));
  }
  if (run.checkpoint_config.num_to_keep.value_or(1) < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_to_keep is ", *run.checkpoint_config.num_to_keep,
        ", it can be 1 or more; leave it out to keep all checkpoints"));
  }
  return absl::OkStatus();
}

}  // namespace

const char* PlacementStrategyName(PlacementStrategy strategy) {
  switch (strategy) {
    case PlacementStrategy::kPack:
      return "PACK";
    case PlacementStrategy::kSpread:
      return "SPREAD";
    case PlacementStrategy::kStrictPack:
      return "STRICT_PACK";
    case PlacementStrategy::kStrictSpread:
      return "STRICT_SPREAD";
  }
  return "UNKNOWN";
}

absl::StatusOr<PlacementStrategy> ParsePlacementStrategy(
    absl::string_view text) {
  for (const PlacementStrategy strategy :
       {PlacementStrategy::kPack, PlacementStrategy::kSpread,
        PlacementStrategy::kStrictPack, PlacementStrategy::kStrictSpread}) {
    if (absl::EqualsIgnoreCase(text, PlacementStrategyName(strategy))) {
      return strategy;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the strategy ", Quoted(text),
                   " is not one of PACK, SPREAD, STRICT_PACK, STRICT_SPREAD"));
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

absl::Status ValidateJobSpec(const JobSpec& spec) {
  COHORT_RETURN_IF_ERROR(ValidateCommand(spec));
  COHORT_RETURN_IF_ERROR(ValidateEnvironment(spec));
  COHORT_RETURN_IF_ERROR(ValidateScaling(spec.scaling_config));
  return ValidateRun(spec.run_config);
}

const char* JobStateName(JobState state) {
  switch (state) {
    case JobState::kUnknown:
      return "UNKNOWN";
    case JobState::kPending:
      return "PENDING";
    case JobState::kStarting:
      return "STARTING";
    case JobState::kRunning:
      return "RUNNING";
    case JobState::kStopping:
      return "STOPPING";
    case JobState::kSucceeded:
      return "SUCCEEDED";
    case JobState::kFailed:
      return "FAILED";
    case JobState::kStopped:
      return "STOPPED";
  }
  return "UNKNOWN";
}

bool HasEnded(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kStopped;
}

const char* RankStateName(RankState state) {
  switch (state) {
    case RankState::kUnknown:
      return "UNKNOWN";
    case RankState::kPending:
      return "PENDING";
    case RankState::kStarting:
      return "STARTING";
    case RankState::kRunning:
      return "RUNNING";
    case RankState::kExited:
      return "EXITED";
  }
  return "UNKNOWN";
}

}  // namespace cohort
