#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "client/job.h"

namespace cohort {
namespace actor {

template <typename N>
concept Number = (std::integral<N> ||
                  std::floating_point<N>)&&!std::same_as<N, bool>;

}  // namespace actor

// How much of a resource: `2`, `0.5`, or a variable of any number type, which
// braces would refuse where a double is asked for.  Not checked: Create does.
// A value.
class Quantity {
 public:
  constexpr Quantity() = default;
  template <actor::Number N>
  // NOLINTNEXTLINE(google-explicit-constructor): a number is a quantity
  constexpr Quantity(N units) : units_(static_cast<double>(units)) {}

  constexpr double units() const { return units_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  double units_ = 0;
};

// How long an actor lives.
enum class Lifetime {
  kDefault,   // until its driver is over, or it is killed
  kDetached,  // until it is killed
};

// What an actor, or each of a group, needs and how it is treated; names and
// defaults are Ray's. Those of one actor, in this order:
//   runtime.Create<Trainer>({.num_gpus = 1, .max_restarts = 3}, ...)
struct ActorOptions {
  // Cores that are set aside for it.
  Quantity num_cpus = 0;
  // Devices, whole or a part of one, as 0.25.
  Quantity num_gpus = 0;
  // Bytes that are set aside for it.
  int64_t memory = 0;
  // Custom resources, by name; not CPU, GPU or memory.
  std::map<std::string, Quantity> resources;

  // By which others find it; of the live actors of a namespace one has it.
  // Empty: none.
  std::string name;
  // Ray's `namespace`.  Empty: that of the driver.
  std::string name_space;
  Lifetime lifetime = Lifetime::kDefault;

  // How often it starts again, as a new object, after its process ended by
  // itself, but for one that exits with status 0.  -1: without limit.
  int max_restarts = 0;
  // How often a call is made again after its actor's process ended while it was
  // there: the method may then run more than once.  -1: without limit.
  int max_task_retries = 0;
  // Calls of one handle that wait, before more are refused with
  // kReasonQueueFull: they take a kilobyte each, ten megabytes in all.  0 or
  // -1: without limit.
  int max_pending_calls = 10'000;

  // Calls that run at once, each on a thread of its own; those of a concurrency
  // group count for themselves.  With more than one a caller's calls begin in
  // order and run side by side.
  int max_concurrency = 1;
  // How many calls of each group run at once; Handle::InGroup names it.
  std::map<std::string, int> concurrency_groups;

  // Expressions over node labels (common/label_selector.h); all must hold.
  std::vector<std::string> label_selector;
  // A GPU model; empty: any.
  std::string accelerator_type;

  // A directory that all nodes share, for what is to stay of it: the state that
  // it saved (actor/saved_state.h) is then there wherever it starts again.
  // Empty: that of the worker of its node.
  std::string storage_path;

  // Added to the environment of its process; no names that begin with COHORT_.
  std::map<std::string, std::string> env_vars;

  // Of a group (Runtime::CreateGroup): what becomes of the other ranks when one
  // fails, and so what max_restarts counts: under kOne those of each rank,
  // under kAll those of the group.  Under kNone none starts again.
  RestartPolicy restart = RestartPolicy::kOne;

  // Of a group: how many processes its actors share, evenly and in the order of
  // their ranks, at most as many as there are actors; 0: each has its own.
  //
  // Actors of a process start, fail and start again together, since that is
  // what a process does.  Resources, GPUs and env_vars are those of each
  // process.  As many of its actors run at once as it has num_cpus, at least
  // one, each one call at a time, on no thread of its own: max_concurrency is
  // 1, and there are no concurrency groups.
  int processes = 0;
};

}  // namespace cohort
