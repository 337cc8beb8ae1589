#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "client/cluster.h"
#include "common/job_id.h"

// How people name jobs on the command line.
namespace cohort::cli {

// Among which jobs a command looks.
struct JobScope {
  std::string noun = "job";
  std::vector<JobKind> kinds;  // empty: any
  std::string name_space;      // empty: any
};

// The job that `text` names: an id; `last`, or `last~2` for the second before
// it, of those that this user submitted to this cluster and that it still
// knows; a name, whose only job
// or else only job that has not ended is meant; or a beginning of an id that no
// other id has.  `.INDEX` after any of them names an element of that array.  A
// whole id is taken as it is, of whatever it may be.
// NotFound, reason "unknown_job"; FailedPrecondition, reason "ambiguous_job",
// listing the candidates.
absl::StatusOr<JobId> FindJob(const Cluster& cluster, const std::string& text,
                              const JobScope& scope = {});

// Whether `text` is `last` or `last~N`, which no job can have as its name.
bool NamesRecentJob(absl::string_view text);

// What an empty name gets, also before anybody is asked.
absl::Status EmptyName(const std::string& noun);

// What `last` finds from now on.  Kept in a file of the user's; that nothing
// can be written there fails no submission.
void RememberJob(const Cluster& cluster, const JobId& job);

// The argument JOB.
void AddJobArgument(CLI::App& command, std::string& job);
// The arguments JOB..., none too.
CLI::Option* AddJobsArgument(CLI::App& command, std::vector<std::string>& jobs);
// The argument that names one of the scope, as ACTOR, or several; and, but for
// any job, --namespace, which narrows the scope.
void AddScopedArgument(CLI::App& command, std::string& name, JobScope& scope);
void AddScopedArguments(CLI::App& command, std::vector<std::string>& names,
                        JobScope& scope);

}  // namespace cohort::cli
