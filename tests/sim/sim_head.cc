#include "tests/sim/sim_head.h"

#include <utility>

#include "common/log.h"

namespace cohort::sim {

HeadDaemon::HeadDaemon(World world, const head::ClusterLimits& limits)
    : world_(world),
      process_(world.executor),
      store_(world.executor),
      packages_(process_),
      router_({}, rpc::Authenticator(world.credential), world.clock) {
  head::HeadCoreOptions options;
  options.limits = limits;
  options.address = "head";
  core_ = std::make_unique<head::HeadCore>(
      options,
      head::HeadSeams{.strand = process_,
                      .store_executor = store_,
                      .clock = world.clock,
                      .random = world.random,
                      .packages = packages_},
      [world](head::StoreAccess access)
          -> absl::StatusOr<std::unique_ptr<head::Store>> {
        if (access == head::StoreAccess::kRead) {
          // RS-3: what is shown is synced first.
          world.disk.Sync();
          world.counters.Count("opened_to_read");
        }
        return std::make_unique<SimStore>(world.disk, world.store_flaw,
                                          world.violate);
      },
      [this](const absl::Status& status) {
        COHORT_LOG(kError, "head_fatal", {"why", status.ToString()});
        ended_ = true;
      });
  core_->RegisterOn(router_);
  core_->Start([this](const absl::Status& status) {
    if (!status.ok()) {
      ended_ = true;
      return;
    }
    serving_ = true;
    world_.network.Listen("head", &router_);
  });
}

HeadDaemon::~HeadDaemon() {
  if (serving_) world_.network.Kill("head");
  process_.Kill();
  store_.Kill();
}

}  // namespace cohort::sim
