#include "actor/actor_spec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"

#include "actor/actor_end.h"
#include "actor/call_target.h"
#include "actor/demangle.h"
#include "actor/method.h"
#include "actor/option_check.h"
#include "actor/task_executor.h"
#include "client/job.h"
#include "client/wire.h"
#include "common/resources.h"
#include "common/spread.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

// An actor that failed starts again at once, and then more and more slowly.
constexpr absl::Duration kRestartDelay = absl::Milliseconds(100);
// Each is a thread.
constexpr int kConcurrencyMax = 1000;
constexpr size_t kConcurrencyGroupsMax = 64;
constexpr size_t kGroupNameBytesMax = 128;

// `option` is what the program calls it.
absl::Status Add(const std::string& name, const std::string& option,
                 Quantity quantity, ResourceSet& resources) {
  const absl::StatusOr<Amount> amount = Amount::FromDouble(quantity.units());
  if (!amount.ok()) return Annotate(amount.status(), option);
  if (!amount->IsZero()) resources.Set(name, *amount);
  return absl::OkStatus();
}

absl::StatusOr<ResourceSet> ResourcesOf(const ActorOptions& options) {
  ResourceSet resources;
  COHORT_RETURN_IF_ERROR(Add(kCpu, "num_cpus", options.num_cpus, resources));
  COHORT_RETURN_IF_ERROR(Add(kGpu, "num_gpus", options.num_gpus, resources));
  COHORT_RETURN_IF_ERROR(Add(kMemory, "memory", options.memory, resources));
  for (const auto& [name, quantity] : options.resources) {
    COHORT_RETURN_IF_ERROR(
        Add(name, absl::StrCat("resource ", name), quantity, resources));
  }
  return resources;
}

absl::Status CheckConcurrency(const std::string& group, int max) {
  if (max >= 1 && max <= kConcurrencyMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("max_concurrency", group.empty() ? "" : " of group ", group,
                   " is ", max, ": it can be 1 to ", kConcurrencyMax));
}

absl::Status SetConcurrency(const ActorOptions& options,
                            v1::ActorStart& start) {
  COHORT_RETURN_IF_ERROR(CheckConcurrency("", options.max_concurrency));
  start.set_max_concurrency(options.max_concurrency);
  if (options.concurrency_groups.size() > kConcurrencyGroupsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.concurrency_groups.size(),
                     " concurrency groups are too many: an actor can have ",
                     kConcurrencyGroupsMax));
  }
  for (const auto& [name, max] : options.concurrency_groups) {
    if (name.empty() || name.size() > kGroupNameBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("a concurrency group's name has 1 to ",
                       kGroupNameBytesMax, " bytes"));
    }
    if (absl::StartsWith(name, kOwnGroups)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "concurrency group \"", name, "\": names that begin with ",
          kOwnGroups, " are not for users (choose another)"));
    }
    COHORT_RETURN_IF_ERROR(CheckConcurrency(name, max));
    v1::ConcurrencyGroup& group = *start.add_concurrency_groups();
    group.set_name(name);
    group.set_max_concurrency(max);
  }
  return absl::OkStatus();
}

// Of a group whose actors share processes.
absl::Status CheckShared(const ActorOptions& options, const Grid& grid) {
  if (options.processes == 0) return absl::OkStatus();
  if (grid.dimensions().empty()) {
    return absl::InvalidArgumentError(
        "processes is for groups: one actor has a process of its own "
        "(CreateGroup makes many that share some)");
  }
  if (options.processes < 0 || options.processes > grid.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("processes is ", options.processes, ": ", grid.size(),
                     " actors can share 1 to ", grid.size()));
  }
  if (options.max_concurrency == 1 && options.concurrency_groups.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "actors that share processes run one call at a time each: "
      "max_concurrency is 1, and there are no concurrency_groups (num_cpus "
      "says how many of a process run at once)");
}

// How many of a process's actors run at once.
int ThreadsOf(const ActorOptions& options) {
  const double cpus = std::ceil(options.num_cpus.units());
  return static_cast<int>(
      std::clamp(cpus, 1.0, static_cast<double>(kConcurrencyMax)));
}

}  // namespace

int ProcessesOf(const ActorOptions& options, const Grid& grid) {
  return options.processes == 0 ? grid.size() : options.processes;
}

absl::StatusOr<v1::JobSpec> ActorJob(const ActorOptions& options,
                                     const ActorOrigin& origin) {
  const bool is_group = !origin.grid.dimensions().empty();
  COHORT_RETURN_IF_ERROR(CheckOptions(options, is_group));
  COHORT_RETURN_IF_ERROR(CheckShared(options, origin.grid));
  JobSpec spec;
  spec.command = {absl::StrCat("./", origin.program)};
  for (const Dimension& each : origin.grid.dimensions()) {
    spec.command.push_back(absl::StrCat(each.name, "=", each.size));
  }
  spec.package = origin.package;
  spec.name_space =
      options.name_space.empty() ? origin.name_space : options.name_space;
  spec.run_config.name = options.name;
  spec.run_config.storage_path = options.storage_path;
  spec.run_config.failure_config = {
      .restart = is_group ? options.restart : RestartPolicy::kOne,
      .max_failures = options.max_restarts,
      .retry_delay = kRestartDelay};
  spec.environment = {options.env_vars.begin(), options.env_vars.end()};
  COHORT_ASSIGN_OR_RETURN(spec.scaling_config.resources_per_worker,
                          ResourcesOf(options));
  spec.scaling_config.num_workers = ProcessesOf(options, origin.grid);
  spec.scaling_config.use_gpu = options.num_gpus > 0;
  spec.scaling_config.label_selector = options.label_selector;
  spec.scaling_config.accelerator_type = options.accelerator_type;
  COHORT_RETURN_IF_ERROR(ValidateJobSpec(spec));

  v1::JobSpec wire = client::ToWire(spec);
  wire.mutable_actor()->set_class_name(Demangle(origin.class_name));
  const bool is_detached = options.lifetime == Lifetime::kDetached;
  if (!is_detached) {
    wire.mutable_actor()->set_driver_id(std::string(origin.driver.bytes()));
  }
  for (const Dimension& each : origin.grid.dimensions()) {
    v1::ActorDimension& added = *wire.mutable_actor()->add_dimensions();
    added.set_name(each.name);
    added.set_size(static_cast<uint32_t>(each.size));
  }
  v1::ActorStart& start = *wire.mutable_launch()->mutable_actor();
  start.set_class_name(origin.class_name);
  start.set_constructor(origin.constructor);
  start.set_arguments(origin.arguments);
  start.set_secret(origin.secret);
  start.set_detached(is_detached);
  COHORT_RETURN_IF_ERROR(SetConcurrency(options, start));
  if (options.processes > 0) {
    start.set_processes(static_cast<uint32_t>(options.processes));
    start.set_max_concurrency(static_cast<uint32_t>(ThreadsOf(options)));
  }
  return wire;
}

absl::StatusOr<v1::JobSpec> ExecutorJob(const TaskOptions& options,
                                        const ActorOrigin& origin) {
  const ConstructorCall constructor = EncodeConstructor<TaskExecutor>();
  ActorOrigin executor = origin;
  executor.class_name = kExecutorClass;
  executor.constructor = constructor.name;
  COHORT_ASSIGN_OR_RETURN(executor.arguments, constructor.arguments);
  ActorOptions needs;
  needs.num_cpus = options.num_cpus;
  needs.num_gpus = options.num_gpus;
  needs.memory = options.memory;
  needs.resources = options.resources;
  needs.label_selector = options.label_selector;
  needs.accelerator_type = options.accelerator_type;
  COHORT_ASSIGN_OR_RETURN(v1::JobSpec spec, ActorJob(needs, executor));
  spec.mutable_actor()->set_executor(true);
  return spec;
}

absl::StatusOr<std::vector<GroupRank>> RanksOf(
    int slot, const std::vector<std::string>& arguments, uint32_t processes) {
  if (arguments.empty()) return std::vector<GroupRank>(1);
  std::vector<Dimension> dimensions;
  for (const std::string& each : arguments) {
    const std::vector<std::string> parts = absl::StrSplit(each, '=');
    int size = 0;
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "an actor is started with the dimensions of its group, as hosts=2: "
          "\"",
          each, "\" is none"));
    }
    dimensions.push_back({parts[0], size});
  }
  COHORT_ASSIGN_OR_RETURN(const Grid grid, Grid::Make(std::move(dimensions)));
  const int most = grid.size();
  if (processes > static_cast<uint32_t>(most)) {
    return absl::InvalidArgumentError(
        absl::StrCat(most, " actors cannot share ", processes, " processes"));
  }
  const Spread spread(most,
                      processes == 0 ? most : static_cast<int>(processes));
  if (slot < 0 || slot >= spread.processes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("this is process ", slot, " of ", spread.processes()));
  }
  std::vector<GroupRank> ranks;
  for (int i = 0; i < spread.CountOf(slot); ++i) {
    ranks.emplace_back(spread.FirstOf(slot) + i, grid);
  }
  return ranks;
}

}  // namespace cohort::actor
