#include "head/state/job_spec.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/job_limits.h"
#include "common/status_macros.h"
#include "head/placement/refusal.h"
#include "head/state/waiting_line.h"

namespace cohort::head {
namespace {

constexpr size_t kHashBytes = 32;

// What a client of ours cannot get wrong.
absl::Status CheckWire(const JobSpec& spec) {
  if (spec.strategy < PlacementStrategy::kPack ||
      spec.strategy > PlacementStrategy::kStrictSpread) {
    return absl::InvalidArgumentError(absl::StrCat(
        "placement strategy ", static_cast<int>(spec.strategy),
        " is not known: PACK, SPREAD, STRICT_PACK and STRICT_SPREAD are"));
  }
  if (!spec.package_hash.empty() && spec.package_hash.size() != kHashBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a package hash has ", kHashBytes, " bytes, this one ",
                     spec.package_hash.size()));
  }
  if (spec.num_to_keep < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_to_keep is ", spec.num_to_keep, ", it can be 0 (all) or more"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateJobSpec(const JobSpec& spec,
                             const std::string& name_space) {
  COHORT_RETURN_IF_ERROR(CheckNamespace(name_space));
  COHORT_RETURN_IF_ERROR(CheckJobName(spec.name));
  COHORT_RETURN_IF_ERROR(CheckStoragePath(spec.storage_path));
  COHORT_RETURN_IF_ERROR(CheckCommand(spec.command, spec.environment));
  COHORT_RETURN_IF_ERROR(CheckNumWorkers(spec.num_workers));
  COHORT_RETURN_IF_ERROR(CheckResourcesPerWorker(spec.resources_per_worker));
  COHORT_RETURN_IF_ERROR(CheckMaxFailures(spec.max_failures));
  COHORT_RETURN_IF_ERROR(CheckTimeLimit(spec.time_limit));
  COHORT_RETURN_IF_ERROR(CheckGrace(spec.grace));
  COHORT_RETURN_IF_ERROR(CheckRetryDelay(spec.retry_delay));
  COHORT_RETURN_IF_ERROR(CheckSelectors(spec.selectors));
  COHORT_RETURN_IF_ERROR(CheckTolerations(spec.tolerations));
  COHORT_RETURN_IF_ERROR(CheckAcceleratorType(spec.accelerator_type));
  COHORT_RETURN_IF_ERROR(CheckTopologyLevel(spec.topology.level));
  COHORT_RETURN_IF_ERROR(CheckLabels(spec.labels));
  COHORT_RETURN_IF_ERROR(CheckPriority(spec.priority));
  COHORT_RETURN_IF_ERROR(CheckArray(spec.array));
  std::vector<JobId> after;
  for (const Dependency& each : spec.after) after.push_back(each.job);
  COHORT_RETURN_IF_ERROR(CheckAfter(after));
  COHORT_RETURN_IF_ERROR(CheckWire(spec));
  // No node, known or not, would ever do.
  std::optional<Refusal> nonsense = RefuseNonsense(RequestOf(spec));
  if (!nonsense.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(std::move(nonsense->reason));
}

}  // namespace cohort::head
