#include "client/cli/job_flags.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_name.h"
#include "common/duration_text.h"
#include "common/file.h"
#include "common/gang_limits.h"
#include "common/job_limits.h"
#include "common/key_values.h"
#include "common/label_selector.h"
#include "common/printable_text.h"
#include "common/since_text.h"
#include "common/size_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

// Puts what `flag` says of the resource `name` into `resources`, unless
// --resources has said it.
absl::Status PutAmount(absl::string_view flag, const char* name,
                       const absl::StatusOr<Amount>& amount,
                       const std::map<std::string, std::string>& named,
                       ResourceSet& resources) {
  if (!amount.ok()) return FlagError(flag, amount.status());
  if (named.contains(name)) {
    return UsageError(
        absl::StrCat(flag, " and --resources ", name,
                     "=... exclude each other: give one of them"));
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
  if (!parsed.ok()) return FlagError("--resources", parsed.status());
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

// torchrun's way to say how many.
absl::Status PutNodes(const JobFlags& flags, ScalingConfig& scaling) {
  if (flags.nnodes.empty() && flags.nproc_per_node.empty()) {
    return absl::OkStatus();
  }
  if (!flags.num_workers.empty()) {
    return UsageError(
        "--num-workers and --nnodes or --nproc-per-node exclude each other: "
        "give one "
        "of them");
  }
  int nodes = 1;
  int each = 1;
  if (!flags.nnodes.empty()) {
    COHORT_ASSIGN_OR_RETURN(nodes,
                            ParseInt("--nnodes", flags.nnodes, 1, 10'000));
  }
  if (!flags.nproc_per_node.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        each, ParseInt("--nproc-per-node", flags.nproc_per_node, 1,
                       kRanksPerNodeMax));
  }
  scaling.num_workers = nodes * each;
  scaling.workers_per_node = each;
  return absl::OkStatus();
}

absl::StatusOr<ScalingConfig> ToScaling(const JobFlags& flags) {
  ScalingConfig scaling;
  COHORT_RETURN_IF_ERROR(PutNodes(flags, scaling));
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
    if (!strategy.ok()) return FlagError("--strategy", strategy.status());
    scaling.placement_strategy = *strategy;
  }
  return scaling;
}

// The workers have another working directory than this shell.
absl::Status PutPath(absl::string_view flag, const std::string& text,
                     std::string& path) {
  if (text.empty()) return absl::OkStatus();
  std::error_code error;
  path = CleanPath(std::filesystem::absolute(text, error).lexically_normal());
  if (!error) return absl::OkStatus();
  return UsageError(absl::StrCat(flag, " ", text, ": ", error.message()));
}

absl::StatusOr<RunConfig> ToRun(const JobFlags& flags) {
  RunConfig run = flags.spec.run_config;
  if (NamesRecentJob(run.name)) {
    return UsageError(absl::StrCat("--name ", run.name,
                                   ": commands take that for the newest job "
                                   "(give another name)"));
  }
  COHORT_RETURN_IF_ERROR(
      PutPath("--storage-path", flags.storage_path, run.storage_path));
  if (!flags.max_failures.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        run.failure_config.max_failures,
        ParseInt("--max-failures", flags.max_failures, -1, 1'000'000));
  }
  if (!flags.restart.empty()) {
    const absl::StatusOr<RestartPolicy> restart =
        ParseRestartPolicy(flags.restart);
    if (!restart.ok()) return FlagError("--restart", restart.status());
    run.failure_config.restart = *restart;
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
          absl::StrCat("--env ", Shown(variable), ": write NAME=VALUE"));
    }
    const std::string name = variable.substr(0, equals);
    if (!environment.emplace(name, variable.substr(equals + 1)).second) {
      return UsageError(absl::StrCat("--env ", Shown(variable), ": ",
                                     Shown(name),
                                     " has a value already: give it once"));
    }
  }
  return absl::OkStatus();
}

absl::Status PutSecret(absl::string_view flag, const std::string& name,
                       std::string value, JobSpec& spec) {
  if (spec.environment.contains(name) ||
      !spec.secrets.emplace(name, std::move(value)).second) {
    return UsageError(absl::StrCat(flag, " ", Shown(name),
                                   " has a value already: give it once"));
  }
  return absl::OkStatus();
}

// From this command's own environment and from files: what stands on a command
// line is in the list of processes and in the shell's history.
absl::Status PutSecrets(const JobFlags& flags, JobSpec& spec) {
  for (const std::string& name : flags.secret_env) {
    if (absl::StrContains(name, '=')) {
      return UsageError(
          "--secret-env takes a name alone: the list of processes shows a "
          "value that is given here (export it, and write --secret-env NAME)");
    }
    const char* const value = getenv(name.c_str());
    if (value == nullptr) {
      return UsageError(absl::StrCat("--secret-env ", Shown(name),
                                     ": it is not set here (export it)"));
    }
    COHORT_RETURN_IF_ERROR(PutSecret("--secret-env", name, value, spec));
  }
  for (const std::string& text : flags.secret_file) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      return UsageError(
          absl::StrCat("--secret-file ", Shown(text), ": write NAME=FILE"));
    }
    absl::StatusOr<std::string> value = ReadFile(text.substr(equals + 1));
    if (!value.ok()) return FlagError("--secret-file", value.status());
    // As editors and `echo` end a file.
    if (absl::EndsWith(*value, "\n")) value->pop_back();
    COHORT_RETURN_IF_ERROR(PutSecret("--secret-file", text.substr(0, equals),
                                     *std::move(value), spec));
  }
  return absl::OkStatus();
}

// What `flag` says, when it says anything, if `check` accepts it.
absl::Status PutDuration(absl::string_view flag, const std::string& text,
                         absl::Status (*check)(absl::Duration),
                         absl::Duration& duration) {
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<absl::Duration> parsed = ParseDuration(text);
  if (!parsed.ok()) return FlagError(flag, parsed.status());
  if (const absl::Status fits = check(*parsed); !fits.ok()) {
    return FlagError(flag, fits);
  }
  duration = *parsed;
  return absl::OkStatus();
}

// +90s, or a time with its zone.
absl::Status PutBegin(const std::string& text, JobSpec& spec) {
  if (text.empty()) return absl::OkStatus();
  if (text == "+") return UsageError("--begin +: write how long, as +90s");
  if (text.front() == '+') {
    return PutDuration("--begin", text.substr(1), &CheckStartsIn,
                       spec.begin_in);
  }
  const absl::StatusOr<absl::Time> time = ParseMoment(text);
  if (!time.ok()) return FlagError("--begin", time.status());
  spec.begin = *time;
  return absl::OkStatus();
}

absl::Status PutOrder(const JobFlags& flags, JobSpec& spec) {
  RunConfig& run = spec.run_config;
  COHORT_RETURN_IF_ERROR(PutDuration("--time-limit", flags.time_limit,
                                     &CheckTimeLimit, run.time_limit));
  COHORT_RETURN_IF_ERROR(
      PutDuration("--grace", flags.grace, &CheckGrace, run.grace));
  COHORT_RETURN_IF_ERROR(PutDuration("--retry-delay", flags.retry_delay,
                                     &CheckRetryDelay,
                                     run.failure_config.retry_delay));
  COHORT_RETURN_IF_ERROR(PutBegin(flags.begin, spec));
  for (const std::string& text : flags.after) {
    COHORT_RETURN_IF_ERROR(ParseAfter(text).status());
  }
  if (const absl::Status array = CheckArray(spec.array); !array.ok()) {
    return FlagError("--array", array);
  }
  COHORT_ASSIGN_OR_RETURN(spec.labels, ParseLabels(flags.labels));
  if (!flags.priority.empty()) {
    COHORT_ASSIGN_OR_RETURN(
        spec.priority, ParseInt("--priority", flags.priority, -1'000, 1'000));
  }
  return absl::OkStatus();
}

absl::Status PutWishes(const JobFlags& flags, ScalingConfig& scaling) {
  for (const std::string& text : flags.selectors) {
    const absl::Status parsed = LabelSelector::Parse(text).status();
    if (!parsed.ok()) {
      return FlagError(absl::StrCat("--selector ", Shown(text)), parsed);
    }
  }
  scaling.label_selector = flags.selectors;
  for (const std::string& text : flags.tolerations) {
    const absl::StatusOr<Toleration> toleration = Toleration::Parse(text);
    if (!toleration.ok()) {
      return FlagError(absl::StrCat("--tolerate ", Shown(text)),
                       toleration.status());
    }
    scaling.tolerations.push_back(*toleration);
  }
  scaling.accelerator_type = flags.accelerator;
  const absl::Status type = CheckAcceleratorType(scaling.accelerator_type);
  if (!type.ok()) return FlagError("--accelerator", type);
  if (!flags.same.empty() && !flags.prefer_same.empty()) {
    return UsageError(
        "--same and --prefer-same contradict each other: give one of them");
  }
  const bool is_required = !flags.same.empty();
  scaling.topology = {.level = is_required ? flags.same : flags.prefer_same,
                      .required = is_required};
  const absl::Status level = CheckTopologyLevel(scaling.topology.level);
  if (level.ok()) return level;
  return FlagError(is_required ? "--same" : "--prefer-same", level);
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> ParseLabels(
    const std::vector<std::string>& labels) {
  std::map<std::string, std::string> parsed;
  for (const std::string& label : labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return UsageError(
          absl::StrCat("--label ", Shown(label), ": write KEY=VALUE"));
    }
    const std::string key = label.substr(0, equals);
    if (!parsed.emplace(key, label.substr(equals + 1)).second) {
      return UsageError(absl::StrCat("--label ", Shown(label),
                                     ": the label has a value already"));
    }
  }
  if (const absl::Status fits = CheckLabels(parsed); !fits.ok()) {
    return FlagError("--label", fits);
  }
  return parsed;
}

absl::StatusOr<AfterFlag> ParseAfter(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind =
      colon == std::string::npos ? "ok" : text.substr(colon + 1);
  if (kind != "ok" && kind != "any") {
    return UsageError(absl::StrCat("--after ", Shown(text), ": column ",
                                   colon + 2, ": expected ok or any, not \"",
                                   Shown(kind), "\""));
  }
  return AfterFlag{
      .job = text.substr(0, colon),
      .kind = kind == "any" ? DependencyKind::kAny : DependencyKind::kOk};
}

absl::StatusOr<JobSpec> ToJobSpec(const JobFlags& flags,
                                  std::vector<std::string> command) {
  JobSpec spec = flags.spec;
  spec.command = std::move(command);
  COHORT_RETURN_IF_ERROR(PutEnvironment(flags.environment, spec.environment));
  COHORT_RETURN_IF_ERROR(PutSecrets(flags, spec));
  COHORT_ASSIGN_OR_RETURN(spec.scaling_config, ToScaling(flags));
  COHORT_ASSIGN_OR_RETURN(spec.run_config, ToRun(flags));
  COHORT_RETURN_IF_ERROR(
      PutPath("--cwd", flags.working_directory, spec.working_directory));
  COHORT_RETURN_IF_ERROR(PutWishes(flags, spec.scaling_config));
  COHORT_RETURN_IF_ERROR(PutOrder(flags, spec));
  COHORT_RETURN_IF_ERROR(ValidateJobSpec(spec));
  return spec;
}

}  // namespace cohort::cli
