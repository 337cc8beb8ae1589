#include "actor/actor_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "actor/demangle.h"
#include "client/job.h"
#include "client/wire.h"
#include "common/resources.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

// An actor that failed starts again at once, and then more and more slowly.
constexpr absl::Duration kRestartDelay = absl::Milliseconds(100);

absl::Status Add(const char* name, Quantity quantity, ResourceSet& resources) {
  const absl::StatusOr<Amount> amount = Amount::FromDouble(quantity.units());
  if (!amount.ok()) return Annotate(amount.status(), name);
  if (!amount->IsZero()) resources.Set(name, *amount);
  return absl::OkStatus();
}

absl::StatusOr<ResourceSet> ResourcesOf(const ActorOptions& options) {
  ResourceSet resources;
  COHORT_RETURN_IF_ERROR(Add(kCpu, options.num_cpus, resources));
  COHORT_RETURN_IF_ERROR(Add(kGpu, options.num_gpus, resources));
  COHORT_RETURN_IF_ERROR(Add(kMemory, options.memory, resources));
  for (const auto& [name, quantity] : options.resources) {
    COHORT_RETURN_IF_ERROR(Add(name.c_str(), quantity, resources));
  }
  return resources;
}

}  // namespace

absl::StatusOr<v1::JobSpec> ActorJob(const ActorOptions& options,
                                     const ActorOrigin& origin) {
  JobSpec spec;
  spec.command = {absl::StrCat("./", origin.program)};
  spec.package = origin.package;
  spec.name_space =
      options.name_space.empty() ? origin.name_space : options.name_space;
  spec.run_config.name = options.name;
  spec.run_config.failure_config = {.restart = RestartPolicy::kOne,
                                    .max_failures = options.max_restarts,
                                    .retry_delay = kRestartDelay};
  spec.environment = {options.env_vars.begin(), options.env_vars.end()};
  COHORT_ASSIGN_OR_RETURN(spec.scaling_config.resources_per_worker,
                          ResourcesOf(options));
  spec.scaling_config.use_gpu = options.num_gpus > 0;
  spec.scaling_config.selectors = options.label_selector;
  spec.scaling_config.accelerator_type = options.accelerator_type;
  COHORT_RETURN_IF_ERROR(ValidateJobSpec(spec));

  v1::JobSpec wire = client::ToWire(spec);
  wire.mutable_actor()->set_class_name(Demangle(origin.class_name));
  if (options.lifetime != Lifetime::kDetached) {
    wire.mutable_actor()->set_driver_id(std::string(origin.driver.bytes()));
  }
  v1::ActorStart& start = *wire.mutable_launch()->mutable_actor();
  start.set_class_name(origin.class_name);
  start.set_constructor(origin.constructor);
  start.set_arguments(origin.arguments);
  start.set_secret(origin.secret);
  return wire;
}

}  // namespace cohort::actor
