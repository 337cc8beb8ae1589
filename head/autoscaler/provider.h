#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/strong_id.h"
#include "head/store/records.h"

namespace cohort::head {

// What a provider is to launch.
struct LaunchOrder {
  // Its key for it: the same one never makes two.
  InstanceId instance;
  v1::NodeType type;
  ClusterId cluster;
};

// What a provider has, of one cluster.
struct ProvidedInstance {
  std::string id;       // what the provider calls it
  InstanceId instance;  // its key; nil: it does not say
  bool failed = false;  // it is not, or will not be, there
  std::string reason;   // why it failed, or does not run yet
  // It is taken away in so long.
  std::optional<absl::Duration> notice;
};

// What a provider tells by itself.
struct ProviderEvent {
  std::string id;  // what the provider calls the machine
  // It is taken away in so long; nothing: it is gone.
  std::optional<absl::Duration> notice;
  std::string reason;
};

// What makes nodes: a cloud, a batch system, this machine.
//
// Each call ends once, with a result or an error, within a bounded time and on
// the strand, never inside the call.  `program` says which provider, as the
// cluster file names it.
class Provider {
 public:
  using Launched = absl::AnyInvocable<void(absl::StatusOr<std::string> id) &&>;
  using Done = absl::AnyInvocable<void(const absl::Status&) &&>;
  using Listed =
      absl::AnyInvocable<void(
                             absl::StatusOr<std::vector<ProvidedInstance>>) &&>;

  using Watched = std::function<void(const ProviderEvent&)>;

  virtual ~Provider() = default;

  // OK when there is such a provider.
  virtual absl::Status Check(const std::string& program) const = 0;
  // Gives what the provider calls it.
  virtual void Launch(const std::string& program, const LaunchOrder& order,
                      Launched done) = 0;
  // OK also for one that is gone.
  virtual void Terminate(const std::string& program, const ClusterId& cluster,
                         const std::string& id, Done done) = 0;
  virtual void List(const std::string& program, const ClusterId& cluster,
                    Listed done) = 0;
  // From now on tells what it hears, on the strand, until another program is
  // watched; the same one again changes nothing.  The report may be wrong,
  // come twice or not at all: List says how things are.
  virtual void Watch(const std::string& program, const ClusterId& cluster,
                     Watched on_event) = 0;
};

}  // namespace cohort::head
