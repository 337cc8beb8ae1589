#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "actor/grid.h"
#include "actor/options.h"
#include "actor/task_options.h"
#include "actor/this_rank.h"
#include "cohort/v1/domain.pb.h"
#include "common/hash.h"
#include "common/strong_id.h"

namespace cohort::actor {

// What Create adds to what the user wrote.
struct ActorOrigin {
  std::string program;  // of the package, which is the actor's directory
  Digest package;
  DriverId driver;         // who owns it unless it is detached
  std::string name_space;  // unless the options name one
  std::string class_name;  // mangled
  std::string constructor;
  std::string arguments;
  std::string secret;
  Grid grid;  // of a group; else of one place
};

// The job that is an executor of tasks of these options' resources: an actor of
// class TaskExecutor.  As ActorJob; the origin's secret, package and driver
// count.
absl::StatusOr<v1::JobSpec> ExecutorJob(const TaskOptions& options,
                                        const ActorOrigin& origin);

// The job that is such an actor, or such a group.  InvalidArgument, naming the
// option, when it can never be.
absl::StatusOr<v1::JobSpec> ActorJob(const ActorOptions& options,
                                     const ActorOrigin& origin);

// How many processes the actors of such a group have.
int ProcessesOf(const ActorOptions& options, const Grid& grid);

// The ranks of the actors of a process of such a job, by its slot, the
// arguments that the job gives it, and how many processes they share, 0: each
// has its own.  InvalidArgument when they are others.
absl::StatusOr<std::vector<GroupRank>> RanksOf(
    int slot, const std::vector<std::string>& arguments, uint32_t processes);

}  // namespace cohort::actor
