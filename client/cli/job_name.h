#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/statusor.h"

#include "client/cluster.h"
#include "common/job_id.h"

// How people name jobs on the command line.
namespace cohort::cli {

// The job that `text` names: an id; `last`, or `last~2` for the second before
// it, of those that this user submitted to this cluster and that it still
// knows; a name, whose only job
// or else only job that has not ended is meant; or a beginning of an id that no
// other id has.  `.INDEX` after an id or its beginning names an element.
// NotFound, reason "unknown_job"; FailedPrecondition, reason "ambiguous_job",
// listing the candidates.
absl::StatusOr<JobId> FindJob(const Cluster& cluster, const std::string& text);

// What an empty name gets, also before anybody is asked.
absl::Status EmptyJob();

// What `last` finds from now on.  Kept in a file of the user's; that nothing
// can be written there fails no submission.
void RememberJob(const Cluster& cluster, const JobId& job);

// The argument JOB.
void AddJobArgument(CLI::App& command, std::string& job);
// The arguments JOB..., none too.
void AddJobsArgument(CLI::App& command, std::vector<std::string>& jobs);

}  // namespace cohort::cli
