#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_choice.h"
#include "client/cli/job_files.h"
#include "client/cli/job_list.h"
#include "client/cli/job_name.h"
#include "client/cli/job_text.h"
#include "client/cli/job_wait.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
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

// `jobs get` shows all elements of an array that has no more; of a larger one
// those that run, at most so many, and the last that ended.
constexpr int64_t kSmallArray = 20;
constexpr size_t kRunningShownMax = 1'000;
// By the question whether chosen jobs may be changed.
constexpr size_t kJobsAskedMax = 10;

// The elements of an array that are shown, in the order of their indices.
absl::StatusOr<std::vector<Job>> Elements(const Cluster& cluster,
                                          const Job& array) {
  ListOptions options;
  COHORT_ASSIGN_OR_RETURN(options.array, JobId::FromBytes(array.job_id()));
  options.limit = kRunningShownMax;
  COHORT_ASSIGN_OR_RETURN(
      JobList list,
      array.array().size() <= kSmallArray
          ? cluster.List(options)
          : ListWithLastEnded(cluster, options,
                              {v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
                               v1::JOB_STATE_STOPPING}));
  // The index ends the id, big-endian.
  std::sort(list.jobs.begin(), list.jobs.end(),
            [](const Job& a, const Job& b) { return a.job_id() < b.job_id(); });
  return std::move(list.jobs);
}

// An array, its elements by state, and those that are shown.
absl::StatusOr<std::string> ArrayText(const Cluster& cluster, const Job& array,
                                      const TableView& view) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<Job> elements,
                          Elements(cluster, array));
  std::string text = JobText(array, view);
  if (!elements.empty()) {
    absl::StrAppend(&text, "\n",
                    JobsTable(elements, MachineClock().Wall(), view));
  }
  const auto shown = static_cast<int64_t>(elements.size());
  const int64_t size = array.array().size();
  if (shown < size) {
    absl::StrAppend(&text, "\n", size - shown, " of ", size,
                    " elements are not shown: `cohort jobs list --array ",
                    IdText(array.job_id()), " --limit ", size,
                    "` lists all (--state chooses).\n");
  }
  return text;
}

// The first of them, a line each.
absl::StatusOr<std::string> ListForQuestion(const Cluster& cluster,
                                            const std::vector<JobId>& ids) {
  Table table({"ID", "NAME", "STATE"});
  size_t shown = 0;
  for (const JobId& id : ids) {
    if (shown == kJobsAskedMax) break;
    ++shown;
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster.Get(id));
    table.Add({ShortId(job.job_id()), job.name(), EnumText(job.state())});
  }
  std::string text = table.ToString(LineColumns(STDERR_FILENO));
  if (shown < ids.size()) {
    absl::StrAppend(&text, "and ", ids.size() - shown, " more\n");
  }
  return text;
}

// Whether the chosen jobs may be changed: --yes says so, else who sits at the
// terminal.  InvalidArgument otherwise.
absl::Status CheckAgreed(const Cluster& cluster, const std::vector<JobId>& ids,
                         bool yes) {
  if (yes) return absl::OkStatus();
  const std::string chosen = absl::StrCat(
      ids.size(), ids.size() == 1 ? " job is chosen" : " jobs are chosen");
  if (isatty(STDIN_FILENO) == 0) {
    return UsageError(absl::StrCat(chosen,
                                   ", and there is no terminal to ask on: give "
                                   "--yes, or name the jobs"));
  }
  COHORT_ASSIGN_OR_RETURN(const std::string list,
                          ListForQuestion(cluster, ids));
  std::fputs(
      absl::StrCat("cohort: ", chosen, ":\n", list, "go on? [y/N] ").c_str(),
      stderr);
  const int answer = std::getchar();
  if (answer == 'y' || answer == 'Y') return absl::OkStatus();
  return UsageError("nothing was changed");
}

// Jobs, and whether they may be changed.
struct JobsFlags : JobChoice {
  bool yes = false;  // of commands that change jobs
};

absl::StatusOr<std::string> GetText(const Cluster& cluster, const Job& job,
                                    const TableView& view) {
  if (job.has_array()) return ArrayText(cluster, job, view);
  return JobText(job, view);
}

std::string AnswerJson(const JobChoice& choice, const std::vector<Job>& jobs) {
  return choice.is_list() || jobs.empty() ? JobsJson(jobs)
                                          : ToJson(jobs.front());
}

absl::StatusOr<int> GetJobs(const Invocation& invocation,
                            const JobsFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<JobId> ids,
                          FindJobs(*cluster, flags, {}));
  if (ids.empty()) return EndWithoutJobs(*cluster, flags, {}, invocation.json);
  std::vector<Job> jobs;
  for (const JobId& id : ids) {
    COHORT_ASSIGN_OR_RETURN(jobs.emplace_back(), cluster->Get(id));
  }
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(AnswerJson(flags, jobs)));
    return kExitOk;
  }
  absl::string_view between;
  for (const Job& job : jobs) {
    COHORT_ASSIGN_OR_RETURN(const std::string text,
                            GetText(*cluster, job, ViewFor(invocation)));
    COHORT_RETURN_IF_ERROR(PrintRaw(absl::StrCat(between, text)));
    between = "\n";
  }
  return kExitOk;
}

// The job as it ended.
absl::StatusOr<Job> WaitJob(const Invocation& invocation,
                            const Cluster& cluster, const JobId& id,
                            absl::Duration timeout) {
  SayOnInterrupt(id);
  Progress progress(invocation.json ? Progress::Kind::kNone
                                    : Progress::KindFor(STDOUT_FILENO),
                    STDOUT_FILENO);
  COHORT_ASSIGN_OR_RETURN(Job job, WaitForJob(cluster, id, timeout, progress));
  progress.Finish();
  if (invocation.json) return job;
  if (Progress::KindFor(STDOUT_FILENO) == Progress::Kind::kLive) {
    COHORT_RETURN_IF_ERROR(Print(OneLine(JobLine(job))));
  }
  std::fputs(TailText(job).c_str(), stderr);
  SayWhatIsLeft(cluster, job);
  return job;
}

// One of those that are meant may have ended before: it must not read as
// success.
std::vector<JobState> StatesWaitedFor(const JobsFlags& flags) {
  const ChoiceFlags& choice = flags.choice;
  return choice.name.empty() && choice.labels.empty() ? LiveStates()
                                                      : std::vector<JobState>();
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
                          FindJobs(*cluster, flags, StatesWaitedFor(flags)));
  if (ids.empty()) {
    return EndWithoutJobs(*cluster, flags, StatesWaitedFor(flags),
                          invocation.json);
  }
  const MachineClock clock;
  const absl::Duration deadline = clock.Monotonic() + timeout;
  int first_failure = kExitOk;
  absl::Status error;
  std::vector<Job> ended;
  for (const JobId& id : ids) {
    absl::StatusOr<Job> job =
        WaitJob(invocation, *cluster, id,
                std::max(deadline - clock.Monotonic(), absl::ZeroDuration()));
    error = job.status();
    if (!error.ok()) break;
    if (first_failure == kExitOk) first_failure = ExitCodeOf(*job);
    ended.push_back(*std::move(job));
  }
  if (invocation.json && (error.ok() || !ended.empty())) {
    COHORT_RETURN_IF_ERROR(Print(AnswerJson(flags, ended)));
  }
  if (first_failure == kExitOk) COHORT_RETURN_IF_ERROR(error);
  // Said, but the job before it comes first.
  if (!error.ok()) Fail(error, invocation.json);
  return first_failure;
}

// What a command does to each job, and what it prints of it.
struct Change {
  std::vector<JobState> usual;  // in which jobs are when they are only chosen
  std::function<absl::Status(Cluster&, const JobId&)> apply;
  std::function<absl::StatusOr<std::string>(Cluster&, const JobId&)> line;
};

absl::StatusOr<std::string> LineOf(Cluster& cluster, const JobId& id) {
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster.Get(id));
  return OneLine(JobLine(job));
}

// Each is tried; the first that could not be changed is the error.  Where only
// what waits can be changed, chosen jobs that run are passed over.
absl::StatusOr<int> ChangeJobs(const Invocation& invocation,
                               const JobsFlags& flags, const Change& change) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<JobId> ids,
                          FindJobs(*cluster, flags, change.usual));
  if (ids.empty()) {
    return EndWithoutJobs(*cluster, flags, change.usual, invocation.json);
  }
  if (!flags.names_jobs()) {
    COHORT_RETURN_IF_ERROR(CheckAgreed(*cluster, ids, flags.yes));
  }
  absl::Status first_failure;
  std::vector<JobId> changed;
  for (const JobId& id : ids) {
    const absl::Status applied = change.apply(*cluster, id);
    if (!flags.names_jobs() && GetReason(applied) == "not_waiting") continue;
    first_failure.Update(applied);
    if (!applied.ok()) continue;
    changed.push_back(id);
    if (invocation.json) continue;
    const absl::StatusOr<std::string> line = change.line(*cluster, id);
    first_failure.Update(line.status());
    if (line.ok()) COHORT_RETURN_IF_ERROR(Print(*line));
  }
  if (invocation.json && (first_failure.ok() || !changed.empty())) {
    COHORT_RETURN_IF_ERROR(
        Print(flags.is_list() ? IdsJson(changed) : IdJson(changed.front())));
  }
  COHORT_RETURN_IF_ERROR(first_failure);
  return kExitOk;
}

absl::StatusOr<int> ResizeJob(const Invocation& invocation,
                              const std::string& job_text,
                              const std::string& size_text) {
  COHORT_ASSIGN_OR_RETURN(const int num_workers,
                          ParseInt("N", size_text, 1, 10'000));
  JobsFlags flags;
  flags.jobs = {job_text};
  return ChangeJobs(invocation, flags,
                    {.apply =
                         [num_workers](Cluster& cluster, const JobId& id) {
                           return cluster.ResizeJob(id, num_workers);
                         },
                     .line = LineOf});
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
                   COHORT_RETURN_IF_ERROR(CheckJobChoice(
                       absl::StrCat("cohort jobs ", name), *flags));
                   return run(*flags);
                 });
  AddJobChoice(*command, *flags);
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
      "Ends with 0 when the job succeeded, else with the exit code of the rank "
      "that failed first (128+n where signal n ended it), 130 when the job was "
      "stopped, 125 when it failed without a rank's exit code, 124 after T.\n"
      "With several jobs: the first status, in their order, that is not 0.\n"
      "By --name or --label jobs that have ended count too; --all means those "
      "that have not.\n"
      "Ctrl-C ends the waiting, not the job.");
}

void AddJobsChange(
    CLI::App& jobs, Invocation& invocation, const std::string& name,
    const std::string& description,
    absl::Status (Cluster::*change)(JobId, std::optional<absl::Duration>)) {
  const auto apply = [change](Cluster& cluster, const JobId& id) {
    return (cluster.*change)(id, std::nullopt);
  };
  AddJobsCommand(jobs, name, description, invocation,
                 [&invocation, apply](const JobsFlags& flags) {
                   return ChangeJobs(
                       invocation, flags,
                       {.usual = LiveStates(), .apply = apply, .line = LineOf});
                 });
}

// A job that others wait for stays, and is the error.
absl::StatusOr<int> RemoveJobs(const Invocation& invocation,
                               const JobsFlags& flags) {
  return ChangeJobs(
      invocation, flags,
      {.usual = EndedStates(),
       .apply = [](Cluster& cluster,
                   const JobId& id) { return cluster.Remove(id); },
       .line = [](Cluster&, const JobId& id) -> absl::StatusOr<std::string> {
         return absl::StrCat(id.ToText(), " removed");
       }});
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
      "on are stopped.");
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
