#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/cli/job_list.h"
#include "client/cluster.h"
#include "common/job_id.h"

// The jobs that a command is about: those that are named, or those chosen by
// --all, --state, --label, --name and --namespace.
namespace cohort::cli {

struct JobChoice {
  std::vector<std::string> jobs;
  ChoiceFlags choice;
  bool all = false;
  bool actors = false;  // also those that are actors or run tasks

  bool names_jobs() const { return !jobs.empty(); }
  // Whether an answer in JSON is a list: unless exactly one job is named.
  bool is_list() const { return jobs.size() != 1; }
};

inline constexpr char kActorsHelp[] =
    "Also actors, and what runs tasks (`cohort actors`, `cohort tasks`)";

// No kind, which is any, for `actors`.
std::vector<JobKind> KindsFor(bool actors);

// JOB..., --all, --state, --label, --name, --namespace, --actors.
void AddJobChoice(CLI::App& command, JobChoice& choice);

// InvalidArgument unless jobs are either named or chosen.  `command` is as its
// user writes it: "cohort jobs stop".
absl::Status CheckJobChoice(const std::string& command,
                            const JobChoice& choice);

// Of those chosen only jobs in the `usual` states, unless --state says
// otherwise; none given: any.  As FindJob; ResourceExhausted for more than
// 10000.
absl::StatusOr<std::vector<JobId>> FindJobs(const Cluster& cluster,
                                            const JobChoice& choice,
                                            std::vector<JobState> usual);

// The end of a command whose choice, with its `usual` states, matched nothing:
// says so on stderr, and with `json` prints the empty list.  The exit status:
// 125 when no job has the name that --name gives, else 0.
absl::StatusOr<int> EndWithoutJobs(const Cluster& cluster,
                                   const JobChoice& choice,
                                   const std::vector<JobState>& usual,
                                   bool json);

}  // namespace cohort::cli
