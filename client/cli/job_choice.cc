#include "client/cli/job_choice.h"

#include <cstddef>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_name.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::cli {
namespace {

constexpr size_t kChosenMax = 10'000;

// The flags that choose, as given.
std::string FlagsText(const JobChoice& choice) {
  std::vector<std::string> flags;
  const auto add = [&flags](absl::string_view flag, const std::string& value) {
    if (!value.empty()) flags.push_back(absl::StrCat(flag, " ", Shown(value)));
  };
  if (choice.all) flags.emplace_back("--all");
  add("--state", absl::StrJoin(choice.choice.states, ","));
  for (const std::string& label : choice.choice.labels) add("--label", label);
  add("--name", choice.choice.name);
  add("--namespace", choice.choice.name_space);
  return absl::StrJoin(flags, " ");
}

// Which jobs the `usual` states leave out.
absl::string_view LeftOutText(const std::vector<JobState>& usual) {
  if (usual == LiveStates()) return " (ended jobs do not count)";
  if (usual == EndedStates()) return " (only ended jobs count)";
  return "";
}

absl::StatusOr<bool> HasName(const Cluster& cluster, const JobChoice& choice) {
  COHORT_ASSIGN_OR_RETURN(const JobList list,
                          cluster.List({.name_space = choice.choice.name_space,
                                        .name = choice.choice.name,
                                        .fold_arrays = true,
                                        .kinds = KindsFor(choice.actors),
                                        .limit = 1}));
  return !list.jobs.empty();
}

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

absl::StatusOr<int> EndWithoutJobs(const Cluster& cluster,
                                   const JobChoice& choice,
                                   const std::vector<JobState>& usual,
                                   bool json) {
  const std::string& name = choice.choice.name;
  bool is_known = true;
  if (!name.empty()) {
    COHORT_ASSIGN_OR_RETURN(is_known, HasName(cluster, choice));
  }
  if (json) COHORT_RETURN_IF_ERROR(Print("[]"));
  if (!is_known) {
    return Fail(SetReason(absl::NotFoundError(absl::StrCat(
                              "no job has the name ", Shown(name))),
                          "unknown_job"),
                json);
  }
  Say(absl::StrCat("no job matches ", FlagsText(choice),
                   choice.choice.states.empty() ? LeftOutText(usual) : ""));
  return kExitOk;
}

}  // namespace cohort::cli
