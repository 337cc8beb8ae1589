#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_files.h"
#include "client/cli/job_list.h"
#include "client/cli/job_name.h"
#include "client/cli/job_text.h"
#include "client/cli/job_wait.h"
#include "client/cli/progress.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/job_limits.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

// Chosen at once by what they have in common.
constexpr size_t kChosenMax = 10'000;
// Of an array, by `jobs get`.
constexpr size_t kElementsShownMax = 1'000;

// The elements of an array that are shown, in the order of their indices.
absl::StatusOr<std::vector<Job>> Elements(const Cluster& cluster,
                                          const std::string& array) {
  ListOptions options;
  COHORT_ASSIGN_OR_RETURN(options.array, JobId::FromBytes(array));
  options.limit = kElementsShownMax;
  COHORT_ASSIGN_OR_RETURN(JobList list, cluster.List(options));
  std::reverse(list.jobs.begin(), list.jobs.end());
  return std::move(list.jobs);
}

// An array and its elements, or the last of them.
absl::StatusOr<std::string> ArrayText(const Cluster& cluster, const Job& array,
                                      const TableView& view) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<Job> elements,
                          Elements(cluster, array.job_id()));
  std::string text =
      absl::StrCat(JobText(array, view), "\n",
                   JobsTable(elements, MachineClock().Wall(), view));
  const auto shown = static_cast<int64_t>(elements.size());
  const int64_t size = array.array().size();
  if (shown < size) {
    absl::StrAppend(&text, "These are the last ", shown, " of ", size,
                    " elements; `cohort jobs list --array ",
                    IdText(array.job_id()), " --limit ", size,
                    "` shows all.\n");
  }
  return text;
}

// Whether so many chosen jobs may be changed: --yes says so, else who sits at
// the terminal.  InvalidArgument otherwise.
absl::Status CheckAgreed(size_t jobs, bool yes) {
  if (jobs == 0 || yes) return absl::OkStatus();
  if (isatty(STDIN_FILENO) == 0) {
    return UsageError(
        absl::StrCat(jobs, jobs == 1 ? " job is" : " jobs are",
                     " chosen, and there is no terminal to ask on: give --yes, "
                     "or name the jobs"));
  }
  std::fputs(absl::StrCat("cohort: ", jobs, jobs == 1 ? " job is" : " jobs are",
                          " chosen; go on? [y/N] ")
                 .c_str(),
             stderr);
  const int answer = std::getchar();
  if (answer == 'y' || answer == 'Y') return absl::OkStatus();
  return UsageError("nothing was changed");
}

constexpr char kActorsHelp[] =
    "Also actors, and what runs tasks (`cohort actors`, `cohort tasks`)";

std::vector<JobKind> KindsFor(bool actors) {
  return actors ? std::vector<JobKind>() : std::vector{v1::JOB_KIND_JOB};
}

// Jobs that a command is about: those that are named, else those chosen.
struct JobsFlags {
  std::vector<std::string> jobs;
  ChoiceFlags choice;
  bool all = false;
  bool actors = false;  // also those that are actors or run tasks
  bool yes = false;     // of commands that change jobs
};

bool AreChosen(const JobsFlags& flags) {
  return flags.all || !flags.choice.empty();
}

absl::Status CheckJobsFlags(const std::string& command,
                            const JobsFlags& flags) {
  if (AreChosen(flags) != flags.jobs.empty()) {
    return UsageError(absl::StrCat(
        "`cohort jobs ", command,
        "` takes JOBs, or a choice of them by --all, --state, --label, --name "
        "or --namespace; see `cohort jobs ",
        command, " --help`"));
  }
  for (const std::string& job : flags.jobs) {
    if (job.empty()) return EmptyName("job");
  }
  return absl::OkStatus();
}

// Those of these states unless --state says otherwise; none given: all.
absl::StatusOr<std::vector<JobId>> FindJobs(const Cluster& cluster,
                                            const JobsFlags& flags,
                                            std::vector<JobState> usual) {
  std::vector<JobId> found;
  for (const std::string& text : flags.jobs) {
    COHORT_ASSIGN_OR_RETURN(found.emplace_back(), FindJob(cluster, text));
  }
  if (!AreChosen(flags)) return found;
  COHORT_ASSIGN_OR_RETURN(ListOptions options, ToListOptions(flags.choice));
  options.fold_arrays = true;
  options.kinds = KindsFor(flags.actors);
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

absl::StatusOr<std::string> GetText(const Cluster& cluster, const Job& job,
                                    const TableView& view) {
  if (job.has_array()) return ArrayText(cluster, job, view);
  return JobText(job, view);
}

absl::StatusOr<int> GetJobs(const Invocation& invocation,
                            const JobsFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<JobId> ids,
                          FindJobs(*cluster, flags, {}));
  for (const JobId& id : ids) {
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
    if (invocation.json) {
      COHORT_RETURN_IF_ERROR(Print(ToJson(job)));
      continue;
    }
    COHORT_ASSIGN_OR_RETURN(const std::string text,
                            GetText(*cluster, job, ViewFor(invocation)));
    COHORT_RETURN_IF_ERROR(PrintRaw(id == ids.front() ? text : "\n" + text));
  }
  return kExitOk;
}

absl::StatusOr<int> WaitJob(const Invocation& invocation,
                            const Cluster& cluster, const JobId& id,
                            absl::Duration timeout) {
  SayOnInterrupt(id);
  Progress progress(invocation.json ? Progress::Kind::kNone
                                    : Progress::KindFor(STDOUT_FILENO),
                    STDOUT_FILENO);
  COHORT_ASSIGN_OR_RETURN(const Job job,
                          WaitForJob(cluster, id, timeout, progress));
  progress.Finish();
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(ToJson(job)));
  } else if (Progress::KindFor(STDOUT_FILENO) == Progress::Kind::kLive) {
    COHORT_RETURN_IF_ERROR(Print(OneLine(JobLine(job))));
  }
  if (!invocation.json) {
    std::fputs(TailText(job).c_str(), stderr);
    SayWhatIsLeft(cluster, job);
  }
  return ExitCodeOf(job);
}

absl::StatusOr<int> WaitJobs(const Invocation& invocation,
                             const JobsFlags& flags,
                             const std::string& timeout_text) {
  absl::Duration timeout = absl::InfiniteDuration();
  if (!timeout_text.empty()) {
    const absl::StatusOr<absl::Duration> parsed = ParseDuration(timeout_text);
    if (!parsed.ok()) {
      return FlagError("--timeout", parsed.status());
    }
    timeout = *parsed;
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<JobId> ids,
                          FindJobs(*cluster, flags, LiveStates()));
  const MachineClock clock;
  const absl::Duration deadline = clock.Monotonic() + timeout;
  int first_failure = kExitOk;
  for (const JobId& id : ids) {
    const absl::StatusOr<int> code =
        WaitJob(invocation, *cluster, id,
                std::max(deadline - clock.Monotonic(), absl::ZeroDuration()));
    if (first_failure == kExitOk) {
      COHORT_ASSIGN_OR_RETURN(first_failure, code);
    } else if (!code.ok()) {
      // Said, but the job before it comes first.
      Fail(code.status(), invocation.json);
      break;
    }
  }
  return first_failure;
}

absl::Status ChangeJob(
    const Invocation& invocation, Cluster& cluster, const JobId& id,
    absl::FunctionRef<absl::Status(Cluster&, const JobId&)> change) {
  COHORT_RETURN_IF_ERROR(change(cluster, id));
  if (invocation.json) return Print(IdJson(id));
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster.Get(id));
  return Print(OneLine(JobLine(job)));
}

// Each is tried; the first that could not be changed is the error.  Of those
// that were chosen it is none that they run, where only what waits is changed.
absl::StatusOr<int> ChangeJobs(
    const Invocation& invocation, const JobsFlags& flags,
    absl::FunctionRef<absl::Status(Cluster&, const JobId&)> change) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<JobId> ids,
                          FindJobs(*cluster, flags, LiveStates()));
  if (flags.jobs.empty()) {
    COHORT_RETURN_IF_ERROR(CheckAgreed(ids.size(), flags.yes));
  }
  absl::Status first_failure;
  for (const JobId& id : ids) {
    const absl::Status changed = ChangeJob(invocation, *cluster, id, change);
    if (flags.jobs.empty() && GetReason(changed) == "not_waiting") continue;
    first_failure.Update(changed);
  }
  COHORT_RETURN_IF_ERROR(first_failure);
  return kExitOk;
}

// Each is tried, as above; of those that were chosen some may be waited for.
absl::StatusOr<int> RemoveJobs(const Invocation& invocation,
                               const JobsFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<JobId> ids,
                          FindJobs(*cluster, flags, EndedStates()));
  if (flags.jobs.empty()) {
    COHORT_RETURN_IF_ERROR(CheckAgreed(ids.size(), flags.yes));
  }
  absl::Status first_failure;
  for (const JobId& id : ids) {
    const absl::Status removed = cluster->Remove(id);
    first_failure.Update(removed);
    if (!removed.ok()) continue;
    COHORT_RETURN_IF_ERROR(Print(
        invocation.json ? IdJson(id) : absl::StrCat(id.ToText(), " removed")));
  }
  COHORT_RETURN_IF_ERROR(first_failure);
  return kExitOk;
}

absl::StatusOr<int> ResizeJob(const Invocation& invocation,
                              const std::string& job_text,
                              const std::string& size_text) {
  COHORT_ASSIGN_OR_RETURN(const int num_workers,
                          ParseInt("N", size_text, 1, 10'000));
  return ChangeJobs(invocation, {.jobs = {job_text}},
                    [num_workers](Cluster& cluster, const JobId& id) {
                      return cluster.ResizeJob(id, num_workers);
                    });
}

// A command about several jobs, named or chosen.
CLI::App* AddJobsCommand(
    CLI::App& jobs, const std::string& name, const std::string& description,
    Invocation& invocation,
    std::function<absl::StatusOr<int>(const JobsFlags&)> run) {
  auto flags = std::make_shared<JobsFlags>();
  CLI::App* command =
      AddCommand(jobs, name, description, invocation,
                 [name, run = std::move(run), flags]() -> absl::StatusOr<int> {
                   COHORT_RETURN_IF_ERROR(CheckJobsFlags(name, *flags));
                   return run(*flags);
                 });
  AddJobsArgument(*command, flags->jobs);
  command->add_flag("--all", flags->all, "All of them");
  AddChoiceFlags(*command, flags->choice);
  command->add_flag("-a,--actors", flags->actors, kActorsHelp);
  if (name != "get" && name != "wait") {
    command->add_flag("--yes", flags->yes,
                      "Do not ask before the chosen jobs are changed");
  }
  if (name == "get") {
    AddOutputFlags(*command, invocation);
  } else {
    AddJsonFlag(*command, invocation);
  }
  return command;
}

void AddJobsGet(CLI::App& jobs, Invocation& invocation) {
  AddJobsCommand(jobs, "get", "Show jobs and their ranks", invocation,
                 [&invocation](const JobsFlags& flags) {
                   return GetJobs(invocation, flags);
                 });
}

void AddJobsWait(CLI::App& jobs, Invocation& invocation) {
  auto timeout = std::make_shared<std::string>();
  CLI::App* wait =
      AddJobsCommand(jobs, "wait", "Wait until jobs have ended", invocation,
                     [&invocation, timeout](const JobsFlags& flags) {
                       return WaitJobs(invocation, flags, *timeout);
                     });
  wait->add_option("--timeout", *timeout,
                   "Give up after this long, as 90s or 5m (default: never)")
      ->option_text("T");
  wait->footer(
      "Ends with 0 when the job succeeded, else with the exit code of the "
      "rank\n"
      "that failed first (128+n where signal n ended it), 130 when the job "
      "was\n"
      "stopped, 125 when it failed without a rank's exit code, 124 after T.\n"
      "Of several jobs: with that of the first, in order, that is not 0.\n"
      "Ctrl-C ends the waiting, not the job.");
}

void AddJobsChange(
    CLI::App& jobs, Invocation& invocation, const std::string& name,
    const std::string& description,
    absl::Status (Cluster::*change)(JobId, std::optional<absl::Duration>)) {
  AddJobsCommand(jobs, name, description, invocation,
                 [&invocation, change](const JobsFlags& flags) {
                   return ChangeJobs(
                       invocation, flags,
                       [change](Cluster& cluster, const JobId& id) {
                         return (cluster.*change)(id, std::nullopt);
                       });
                 });
}

void AddJobsResize(CLI::App& jobs, Invocation& invocation) {
  auto job = std::make_shared<std::string>();
  auto size = std::make_shared<std::string>();
  CLI::App* resize = AddCommand(
      jobs, "resize",
      "Change how many ranks a job with --restart one or none has", invocation,
      [&invocation, job, size] { return ResizeJob(invocation, *job, *size); });
  AddJobArgument(*resize, *job);
  resize->add_option("N", *size, "The new number of ranks")->required();
  AddJsonFlag(*resize, invocation);
  resize->footer(
      "New ranks are placed together, or wait for room together; ranks from N "
      "on\n"
      "are stopped.");
}

}  // namespace

void AddJobs(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<ListFlags>();
  auto actors = std::make_shared<bool>(false);
  const auto list = [&invocation, flags, actors] {
    return ListJobs(
        invocation, *flags,
        {.kinds = KindsFor(*actors), .table = JobsTable, .json = JobsJson});
  };
  const auto add_flags = [&invocation, flags, actors](CLI::App& command) {
    AddListFlags(command, *flags, invocation);
    command.add_option("--array", flags->array, "The elements of this array")
        ->option_text("JOB");
    command.add_flag("-a,--actors", *actors, kActorsHelp);
  };
  CLI::App* jobs =
      AddCommand(cohort, "jobs",
                 "List jobs, show, wait for, stop, hold, release, resize or "
                 "remove them, read their logs, fetch their files",
                 invocation, list);
  add_flags(*jobs);
  // Runs after those of its commands, whose word holds.
  jobs->callback([&invocation, jobs, list] {
    if (jobs->get_subcommands().empty()) invocation.run = list;
  });
  add_flags(
      *AddCommand(*jobs, "list", "List jobs, newest first", invocation, list));
  AddJobsGet(*jobs, invocation);
  AddJobsWait(*jobs, invocation);
  AddJobsChange(*jobs, invocation, "stop",
                "Stop a job, or all elements of an array: SIGTERM to its "
                "ranks, SIGKILL after its grace",
                &Cluster::Stop);
  AddJobsChange(*jobs, invocation, "hold",
                "Keep a waiting job, or the waiting elements of an array, from "
                "starting",
                &Cluster::Hold);
  AddJobsChange(*jobs, invocation, "release",
                "Let a held job start when its turn comes", &Cluster::Release);
  AddJobsCommand(*jobs, "remove",
                 "Forget a job that has ended; workers remove what its ranks "
                 "left, but not below --storage-path",
                 invocation, [&invocation](const JobsFlags& chosen) {
                   return RemoveJobs(invocation, chosen);
                 });
  AddJobsResize(*jobs, invocation);
  AddJobFiles(*jobs, invocation);
  AddJobMetrics(*jobs, invocation);
  AddLogs(*jobs, JobScope(), invocation);
}

}  // namespace cohort::cli
