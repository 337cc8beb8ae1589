#include "head/state/job_spec.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/map.h"

#include "common/job_limits.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/strong_id.h"
#include "head/placement/refusal.h"
#include "head/state/waiting_line.h"
#include "head/store/unknown_fields.h"
#include "rpc/wire_values.h"

namespace cohort::head {
namespace {

constexpr size_t kHashBytes = 32;
constexpr size_t kCommentBytesMax = 1'024;
constexpr size_t kClassBytesMax = 4'096;
constexpr size_t kSecretBytes = 32;
constexpr int kDimensionsMax = 8;
constexpr int64_t kPlacesMax = 10'000;
constexpr size_t kDimensionBytesMax = 64;

constexpr absl::Duration kDefaultGrace = absl::Seconds(10);
constexpr absl::Duration kDefaultRetryDelay = absl::Seconds(1);

template <typename Field>
auto VectorOf(const Field& field) {
  return std::vector<typename Field::value_type>(field.begin(), field.end());
}

std::map<std::string, std::string> MapOf(
    const google::protobuf::Map<std::string, std::string>& field) {
  return {field.begin(), field.end()};
}

absl::Status CheckRestart(const v1::RunConfig& run) {
  if (!v1::RestartPolicy_IsValid(run.restart())) {
    return absl::InvalidArgumentError(
        absl::StrCat("restart policy ", static_cast<int>(run.restart()),
                     " is not known: ALL, ONE and NONE are"));
  }
  if (run.preflight() && run.restart() != v1::RESTART_POLICY_ALL) {
    return absl::InvalidArgumentError(
        "preflight needs restart policy all: it tries the ranks together "
        "(leave out --preflight, or use --restart all)");
  }
  if (run.restart() == v1::RESTART_POLICY_NONE && run.max_failures() != 0) {
    return absl::InvalidArgumentError(
        "max_failures has no meaning with restart policy none (leave it out, "
        "or use --restart one)");
  }
  return absl::OkStatus();
}

// What a client of ours cannot get wrong.
absl::Status CheckWire(const JobSpec& spec) {
  const int strategy = spec.scaling().placement_strategy();
  if (!v1::PlacementStrategy_IsValid(strategy)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "placement strategy ", strategy,
        " is not known: PACK, SPREAD, STRICT_PACK and STRICT_SPREAD are"));
  }
  const std::string& package_hash = spec.launch().package_hash();
  if (!package_hash.empty() && package_hash.size() != kHashBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a package hash has ", kHashBytes, " bytes, this one ",
                     package_hash.size()));
  }
  if (spec.comment().size() > kCommentBytesMax ||
      !IsPrintableUtf8(spec.comment())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the comment is not one line of at most ",
                     kCommentBytesMax, " bytes: shorten it"));
  }
  COHORT_RETURN_IF_ERROR(CheckRestart(spec.run()));
  // One rank that starts again would have to find its node, and only that.
  if (spec.scaling().workers_per_node() != 0 &&
      spec.run().restart() != v1::RESTART_POLICY_ALL) {
    return absl::InvalidArgumentError(
        "so many workers on each node need restart policy all: the others "
        "place ranks one by one (use --num-workers, or --restart all)");
  }
  if (spec.run().num_to_keep() < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_to_keep is ", spec.run().num_to_keep(),
                     ", it can be 0 (all) or more"));
  }
  return absl::OkStatus();
}

// The slots of a group lie in its dimensions, one in each place, or share them.
absl::Status CheckDimensions(const JobSpec& spec) {
  if (spec.actor().dimensions_size() > kDimensionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a group has at most ", kDimensionsMax,
                     " dimensions, this one ", spec.actor().dimensions_size()));
  }
  int64_t places = 1;
  for (const v1::ActorDimension& each : spec.actor().dimensions()) {
    if (each.name().empty() || each.name().size() > kDimensionBytesMax ||
        !IsPrintableUtf8(each.name())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a dimension has a name of at most ", kDimensionBytesMax, " bytes"));
    }
    // Bounded, so that the product is.
    if (places > kPlacesMax) break;
    places *= each.size();
  }
  const int64_t shared = spec.launch().actor().processes();
  if (places <= kPlacesMax && shared <= places &&
      spec.scaling().num_workers() == (shared == 0 ? places : shared)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "an actor has one worker; a group has as many as its dimensions have "
      "places, which are at most ",
      kPlacesMax,
      ", or as many as the processes that these share; this one has ",
      spec.scaling().num_workers()));
}

// Its start is told to an actor alone.
absl::Status CheckActorSpec(const JobSpec& spec) {
  if (!spec.has_actor() && !spec.launch().has_actor()) return absl::OkStatus();
  const v1::ActorStart& start = spec.launch().actor();
  if (!spec.has_actor() || !spec.launch().has_actor()) {
    return absl::InvalidArgumentError(
        "an actor's spec has both `actor` and `launch.actor`, this one only "
        "one "
        "of them");
  }
  if (start.class_name().size() > kClassBytesMax ||
      start.constructor().size() > kClassBytesMax ||
      spec.actor().class_name().size() > kClassBytesMax ||
      start.secret().size() != kSecretBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an actor has the names of its class and constructor, of at most ",
        kClassBytesMax, " bytes each, and a secret of ", kSecretBytes));
  }
  if (!spec.actor().driver_id().empty()) {
    COHORT_RETURN_IF_ERROR(
        DriverId::FromBytes(spec.actor().driver_id()).status());
  }
  if (!spec.array().empty()) {
    return absl::InvalidArgumentError("an actor is not an array");
  }
  if (spec.actor().executor() &&
      (!spec.name().empty() || spec.actor().driver_id().empty() ||
       spec.scaling().num_workers() != 1 || spec.run().max_failures() != 0)) {
    return absl::InvalidArgumentError(
        "an executor of tasks is one worker with a driver and no name, and is "
        "not restarted");
  }
  return CheckDimensions(spec);
}

absl::Status CheckDependencies(const JobSpec& spec) {
  std::vector<JobId> after;
  for (const Dependency& each : spec.after()) {
    COHORT_ASSIGN_OR_RETURN(after.emplace_back(),
                            JobId::FromBytes(each.job_id()));
    if (!v1::DependencyKind_IsValid(each.kind())) {
      return absl::InvalidArgumentError(
          absl::StrCat("dependency kind ", static_cast<int>(each.kind()),
                       " is not known here"));
    }
  }
  return CheckAfter(after);
}

absl::Status CheckScaling(const JobSpec& spec) {
  const v1::ScalingConfig& scaling = spec.scaling();
  COHORT_RETURN_IF_ERROR(CheckNumWorkers(scaling.num_workers()));
  const absl::StatusOr<ResourceSet> resources =
      rpc::FromWire(scaling.resources_per_worker());
  if (!resources.ok()) {
    return Annotate(resources.status(), "resources_per_worker");
  }
  COHORT_RETURN_IF_ERROR(CheckResourcesPerWorker(*resources));
  COHORT_RETURN_IF_ERROR(CheckSelectors(SelectorsOf(spec)));
  COHORT_RETURN_IF_ERROR(CheckAcceleratorType(scaling.accelerator_type()));
  return CheckTopologyLevel(scaling.topology_level());
}

}  // namespace

void FillJobSpec(JobSpec& spec) {
  DropUnknownFields(spec);
  v1::ScalingConfig& scaling = *spec.mutable_scaling();
  if (scaling.placement_strategy() == v1::PLACEMENT_STRATEGY_UNSPECIFIED) {
    scaling.set_placement_strategy(v1::PLACEMENT_STRATEGY_PACK);
  }
  v1::RunConfig& run = *spec.mutable_run();
  if (!run.has_grace_us()) {
    run.set_grace_us(absl::ToInt64Microseconds(kDefaultGrace));
  }
  if (run.restart() == v1::RESTART_POLICY_UNSPECIFIED) {
    run.set_restart(v1::RESTART_POLICY_ALL);
  }
  if (!run.has_max_failures()) {
    run.set_max_failures(run.restart() == v1::RESTART_POLICY_ONE ? -1 : 0);
  }
  if (!run.has_retry_delay_us()) {
    run.set_retry_delay_us(absl::ToInt64Microseconds(kDefaultRetryDelay));
  }
  for (Dependency& each : *spec.mutable_after()) {
    if (each.kind() == v1::DEPENDENCY_KIND_UNSPECIFIED) {
      each.set_kind(v1::DEPENDENCY_KIND_OK);
    }
  }
}

absl::Status ValidateJobSpec(const JobSpec& spec,
                             const std::string& name_space) {
  COHORT_RETURN_IF_ERROR(CheckNamespace(name_space));
  COHORT_RETURN_IF_ERROR(CheckJobName(spec.name()));
  COHORT_RETURN_IF_ERROR(CheckStoragePath(spec.run().storage_path()));
  COHORT_RETURN_IF_ERROR(CheckCommand(VectorOf(spec.launch().command()),
                                      MapOf(spec.launch().environment()),
                                      MapOf(spec.launch().secrets())));
  COHORT_RETURN_IF_ERROR(
      CheckWorkingDirectory(spec.launch().working_directory(),
                            !spec.launch().package_hash().empty()));
  COHORT_RETURN_IF_ERROR(CheckScaling(spec));
  COHORT_RETURN_IF_ERROR(CheckMaxFailures(spec.run().max_failures()));
  COHORT_RETURN_IF_ERROR(CheckTimeLimit(TimeLimitOf(spec)));
  COHORT_RETURN_IF_ERROR(CheckGrace(GraceOf(spec)));
  COHORT_RETURN_IF_ERROR(CheckRetryDelay(RetryDelayOf(spec)));
  COHORT_RETURN_IF_ERROR(CheckTolerations(TolerationsOf(spec)));
  COHORT_RETURN_IF_ERROR(CheckLabels(MapOf(spec.labels())));
  COHORT_RETURN_IF_ERROR(CheckPriority(spec.priority()));
  COHORT_RETURN_IF_ERROR(CheckArray(spec.array()));
  COHORT_RETURN_IF_ERROR(CheckDependencies(spec));
  COHORT_RETURN_IF_ERROR(CheckWire(spec));
  COHORT_RETURN_IF_ERROR(CheckActorSpec(spec));
  // No node, known or not, would ever do.
  std::optional<Refusal> nonsense = RefuseNonsense(RequestOf(spec));
  if (!nonsense.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(std::move(nonsense->reason));
}

absl::Status SetStartTime(absl::Time now, JobSpec& spec) {
  if (spec.start_at_us() < 0 || spec.start_in_us() < 0) {
    return absl::InvalidArgumentError(
        "start_at_us and start_in_us are 0 (at once) or more");
  }
  const absl::Time start =
      std::max(StartTimeOf(spec), now + absl::Microseconds(spec.start_in_us()));
  if (spec.start_in_us() > 0) {
    spec.set_start_at_us(absl::ToUnixMicros(start));
    spec.clear_start_in_us();
  }
  return CheckStartsIn(start - now);
}

int64_t SpecBytes(const JobSpec& spec) {
  constexpr int64_t kBytesPerText = 128;
  const int64_t texts = spec.launch().environment_size() +
                        spec.launch().secrets_size() +
                        spec.launch().command_size();
  return static_cast<int64_t>(spec.ByteSizeLong()) + kBytesPerText * texts;
}

ResourceSet ResourcesPerWorker(const JobSpec& spec) {
  ResourceSet resources;
  for (const auto& each : spec.scaling().resources_per_worker().amounts()) {
    resources.Set(each.name(),
                  Amount::FromTenThousandths(each.ten_thousandths()));
  }
  return resources;
}

std::vector<std::string> SelectorsOf(const JobSpec& spec) {
  return VectorOf(spec.scaling().selectors());
}

std::vector<Toleration> TolerationsOf(const JobSpec& spec) {
  std::vector<Toleration> tolerations;
  for (const v1::Toleration& each : spec.scaling().tolerations()) {
    tolerations.push_back(rpc::FromWire(each));
  }
  return tolerations;
}

JobId JobOf(const Dependency& dependency) {
  return JobId::FromBytes(dependency.job_id()).value_or(JobId());
}

absl::Duration TimeLimitOf(const JobSpec& spec) {
  const int64_t limit = spec.run().time_limit_us();
  return limit == 0 ? absl::InfiniteDuration() : absl::Microseconds(limit);
}

absl::Duration GraceOf(const JobSpec& spec) {
  return absl::Microseconds(spec.run().grace_us());
}

absl::Duration RetryDelayOf(const JobSpec& spec) {
  return absl::Microseconds(spec.run().retry_delay_us());
}

absl::Time StartTimeOf(const JobSpec& spec) {
  return absl::FromUnixMicros(spec.start_at_us());
}

}  // namespace cohort::head
