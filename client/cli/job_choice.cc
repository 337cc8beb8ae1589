#include "client/cli/job_choice.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/cli/errors.h"
#include "client/cli/job_name.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

constexpr size_t kChosenMax = 10'000;

}  // namespace

std::vector<JobKind> KindsFor(bool actors) {
  return actors ? std::vector<JobKind>() : std::vector{v1::JOB_KIND_JOB};
}

void AddJobChoice(CLI::App& command, JobChoice& choice) {
  AddJobsArgument(command, choice.jobs);
  command.add_flag("--all", choice.all, "All of them");
  AddChoiceFlags(command, choice.choice);
  command.add_flag("-a,--actors", choice.actors, kActorsHelp);
}

absl::Status CheckJobChoice(const std::string& command,
                            const JobChoice& choice) {
  if ((choice.all || !choice.choice.empty()) == choice.names_jobs()) {
    return UsageError(absl::StrCat(
        "`", command,
        "` takes JOBs, or a choice of them by --all, --state, --label, --name "
        "or --namespace; see `",
        command, " --help`"));
  }
  for (const std::string& job : choice.jobs) {
    if (job.empty()) return EmptyName("job");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<JobId>> FindJobs(const Cluster& cluster,
                                            const JobChoice& choice,
                                            std::vector<JobState> usual) {
  std::vector<JobId> found;
  for (const std::string& text : choice.jobs) {
    COHORT_ASSIGN_OR_RETURN(found.emplace_back(), FindJob(cluster, text));
  }
  if (choice.names_jobs()) return found;
  COHORT_ASSIGN_OR_RETURN(ListOptions options, ToListOptions(choice.choice));
  options.fold_arrays = true;
  options.kinds = KindsFor(choice.actors);
  options.limit = kChosenMax;
  if (options.states.empty()) options.states = std::move(usual);
  COHORT_ASSIGN_OR_RETURN(const JobList list, cluster.List(options));
  if (list.is_cut) {
    return absl::ResourceExhaustedError(
        absl::StrCat("more than ", kChosenMax,
                     " jobs are chosen: choose fewer (by --label or --name)"));
  }
  for (const Job& job : list.jobs) {
    COHORT_ASSIGN_OR_RETURN(found.emplace_back(),
                            JobId::FromBytes(job.job_id()));
  }
  return found;
}

}  // namespace cohort::cli
