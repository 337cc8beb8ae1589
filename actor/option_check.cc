#include "actor/option_check.h"

#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/job_limits.h"
#include "common/resources.h"
#include "common/status_macros.h"

namespace cohort::actor {
namespace {

absl::Status CheckRetries(absl::string_view option, int retries) {
  if (retries >= -1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      option, " is ", retries, ": it can be -1 (no limit), 0 or more"));
}

absl::Status CheckResources(const std::map<std::string, Quantity>& resources) {
  constexpr const char* kOptions[][2] = {
      {kCpu, "num_cpus"}, {kGpu, "num_gpus"}, {kMemory, "memory"}};
  for (const auto& [resource, option] : kOptions) {
    if (!resources.contains(resource)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("resources has ", resource,
                     ": it is for custom resources "
                     "(set ",
                     option, ")"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOptions(const ActorOptions& options, bool is_group) {
  if (!CheckMaxFailures(options.max_restarts).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_restarts is ", options.max_restarts,
                     ": it can be -1 (no limit), or 0 to 1000000"));
  }
  COHORT_RETURN_IF_ERROR(
      CheckRetries("max_task_retries", options.max_task_retries));
  COHORT_RETURN_IF_ERROR(
      CheckRetries("max_pending_calls", options.max_pending_calls));
  COHORT_RETURN_IF_ERROR(CheckResources(options.resources));
  if (!is_group && options.restart != RestartPolicy::kOne) {
    return absl::InvalidArgumentError(
        "restart is for groups: max_restarts says how often one actor starts "
        "again");
  }
  for (const auto& [name, value] : options.env_vars) {
    if (!absl::StartsWith(name, "COHORT_")) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("env_vars sets ", name,
                     ": the runtime itself sets variables that begin with "
                     "COHORT_ (choose another name)"));
  }
  return absl::OkStatus();
}

absl::Status CheckOptions(const TaskOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckRetries("max_retries", options.max_retries));
  return CheckResources(options.resources);
}

}  // namespace cohort::actor
