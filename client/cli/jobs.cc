#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_wait.h"
#include "client/cli/log_printer.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/json.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/real_clock.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

// Past this reasons are for `jobs get`.
constexpr size_t kReasonBytesMax = 60;

std::string Shortened(const std::string& text) {
  const std::string line = OneLine(text);
  if (line.size() <= kReasonBytesMax) return line;
  return line.substr(0, kReasonBytesMax - 3) + "...";
}

std::string TimeOrDash(const std::optional<absl::Time>& time) {
  return time.has_value() ? TimeText(*time) : "-";
}

// How long it has run or did run.
std::string RunningTime(const Job& job) {
  if (!job.started_at.has_value()) return "-";
  const absl::Time end = job.ended_at.value_or(MachineClock().Wall());
  return AgeText(end - *job.started_at);
}

std::string ExitText(const std::optional<ExitStatus>& exit) {
  if (!exit.has_value()) return "-";
  std::string text = exit->signal != 0 ? absl::StrCat("signal ", exit->signal)
                                       : absl::StrCat("code ", exit->code);
  if (exit->oom_killed) absl::StrAppend(&text, ", out of memory");
  if (!exit->detail.empty()) absl::StrAppend(&text, ", ", exit->detail);
  return text;
}

std::string JobsTable(const std::vector<Job>& jobs) {
  Table table({"ID", "NAME", "STATE", "ATTEMPT", "FAILURES", "SUBMITTED",
               "RUNNING", "REASON"});
  for (const Job& job : jobs) {
    table.Add({job.id.ToText(), job.name, JobStateName(job.state),
               absl::StrCat(job.attempt), absl::StrCat(job.failures),
               TimeOrDash(job.submitted_at), RunningTime(job),
               Shortened(job.reason)});
  }
  return table.ToString();
}

std::string RanksTable(const std::vector<Rank>& ranks) {
  Table table({"RANK", "LOCAL", "NODE", "PID", "STATE", "EXIT", "GPUS"});
  for (const Rank& rank : ranks) {
    table.Add({absl::StrCat(rank.rank), absl::StrCat(rank.local_rank),
               rank.node_name.empty() ? rank.node.ToHex() : rank.node_name,
               rank.pid.has_value() ? absl::StrCat(*rank.pid) : "-",
               RankStateName(rank.state), ExitText(rank.exit),
               absl::StrJoin(rank.gpu_ids, ",")});
  }
  return table.ToString();
}

// "key: value" lines, then the ranks.
std::string JobText(const Job& job) {
  std::string text;
  const auto add = [&text](absl::string_view key, absl::string_view value) {
    const std::string line = OneLine(value);
    if (line.empty() || line == "-") return;
    absl::StrAppend(&text, key, ":", std::string(15 - key.size(), ' '), line,
                    "\n");
  };
  add("id", job.id.ToText());
  add("name", job.name);
  add("state", JobStateName(job.state));
  add("reason", job.reason);
  add("command", absl::StrJoin(job.command, " "));
  add("workers",
      absl::StrCat(job.num_workers, " x ", job.resources_per_worker.ToString(),
                   ", ", PlacementStrategyName(job.placement_strategy)));
  add("attempt", absl::StrCat(job.attempt));
  add("failures",
      absl::StrCat(
          job.failures, " of ",
          job.max_failures < 0 ? "any number" : absl::StrCat(job.max_failures),
          " allowed, ", job.infra_restarts,
          job.infra_restarts == 1 ? " restart" : " restarts",
          " after a lost node or keeper"));
  add("exit",
      job.failed_rank.has_value()
          ? absl::StrCat(ExitText(job.exit), " (rank ", *job.failed_rank, ")")
          : ExitText(job.exit));
  add("submitted", TimeOrDash(job.submitted_at));
  add("started", TimeOrDash(job.started_at));
  add("ended", TimeOrDash(job.ended_at));
  add("running time", RunningTime(job));
  add("storage", job.storage_path);
  if (job.checkpoint.has_value()) {
    add("checkpoint", absl::StrCat(job.checkpoint->path, " (step ",
                                   job.checkpoint->step, ")"));
  }
  if (!job.metrics_json.empty()) {
    add("metrics", absl::StrCat(job.metrics_json, " (of ", job.metrics_count,
                                " reports)"));
  }
  if (!job.ranks.empty()) absl::StrAppend(&text, "\n", RanksTable(job.ranks));
  return text;
}

absl::StatusOr<int> ListJobs(const Invocation& invocation) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<Job> jobs, cluster->List());
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(JobsJson(jobs))
                                         : PrintRaw(JobsTable(jobs)));
  return kExitOk;
}

absl::StatusOr<int> GetJob(const Invocation& invocation,
                           const std::string& job_text) {
  COHORT_ASSIGN_OR_RETURN(const JobId id, ParseJobId(job_text));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(JobJson(job))
                                         : PrintRaw(JobText(job)));
  return kExitOk;
}

absl::StatusOr<int> WaitJob(const Invocation& invocation,
                            const std::string& job_text,
                            const std::string& timeout_text) {
  absl::Duration timeout = absl::InfiniteDuration();
  if (!timeout_text.empty()) {
    const absl::StatusOr<absl::Duration> parsed = ParseDuration(timeout_text);
    if (!parsed.ok()) {
      return UsageError(absl::StrCat("--timeout: ", parsed.status().message()));
    }
    timeout = *parsed;
  }
  COHORT_ASSIGN_OR_RETURN(const JobId id, ParseJobId(job_text));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  SayOnInterrupt(id);
  Progress progress(invocation.json ? Progress::Kind::kNone
                                    : Progress::KindFor(STDOUT_FILENO),
                    STDOUT_FILENO);
  COHORT_ASSIGN_OR_RETURN(const Job job,
                          WaitForJob(*cluster, id, timeout, progress));
  progress.Finish();
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(JobJson(job)));
  } else if (Progress::KindFor(STDOUT_FILENO) == Progress::Kind::kLive) {
    COHORT_RETURN_IF_ERROR(Print(OneLine(JobLine(job))));
  }
  return ExitCodeOf(job);
}

absl::StatusOr<int> StopJob(const Invocation& invocation,
                            const std::string& job_text) {
  COHORT_ASSIGN_OR_RETURN(const JobId id, ParseJobId(job_text));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_RETURN_IF_ERROR(cluster->Stop(id));
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(IdJson(id)));
  } else {
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
    COHORT_RETURN_IF_ERROR(Print(OneLine(JobLine(job))));
  }
  return kExitOk;
}

struct LogFlags {
  std::string job;
  std::string rank;
  bool standard_error = false;
  bool follow = false;
};

absl::StatusOr<int> PrintLogs(const Invocation& invocation,
                              const LogFlags& flags) {
  LogOptions options;
  if (!flags.rank.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.rank,
                            ParseInt("--rank", flags.rank, 0, 1'000'000));
  }
  options.standard_output = !flags.standard_error;
  options.standard_error = flags.standard_error;
  options.follow = flags.follow;
  COHORT_ASSIGN_OR_RETURN(const JobId id, ParseJobId(flags.job));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
  const LogPrinter::Form form = invocation.json ? LogPrinter::Form::kJson
                                : job.num_workers > 1
                                    ? LogPrinter::Form::kPrefixed
                                    : LogPrinter::Form::kRaw;
  LogPrinter printer(
      form, [](LogStream, absl::string_view text) { return PrintRaw(text); });
  const absl::Status read = cluster->Logs(
      id, options,
      [&printer](const LogChunk& chunk) { return printer.Add(chunk); });
  COHORT_RETURN_IF_ERROR(printer.Finish());
  COHORT_RETURN_IF_ERROR(read);
  return kExitOk;
}

void AddJobArgument(CLI::App& command, std::string& job) {
  command.add_option("JOB", job, "The job's id")->required();
}

void AddJobsGet(CLI::App& jobs, Invocation& invocation) {
  auto job = std::make_shared<std::string>();
  CLI::App* get =
      AddCommand(jobs, "get", "Show one job and its ranks", invocation,
                 [&invocation, job] { return GetJob(invocation, *job); });
  AddJobArgument(*get, *job);
  AddJsonFlag(*get, invocation);
}

void AddJobsWait(CLI::App& jobs, Invocation& invocation) {
  auto job = std::make_shared<std::string>();
  auto timeout = std::make_shared<std::string>();
  CLI::App* wait = AddCommand(jobs, "wait", "Wait until a job has ended",
                              invocation, [&invocation, job, timeout] {
                                return WaitJob(invocation, *job, *timeout);
                              });
  AddJobArgument(*wait, *job);
  wait->add_option("--timeout", *timeout,
                   "Give up after this long, as 90s or 5m (default: never)")
      ->option_text("T");
  AddJsonFlag(*wait, invocation);
  wait->footer(
      "Ends with 0 when the job succeeded, else with the exit code of the "
      "rank\n"
      "that failed first (128+n where signal n ended it), 130 when the job "
      "was\n"
      "stopped, 125 when it failed without a rank's exit code, 124 after T.\n"
      "Ctrl-C ends the waiting, not the job.");
}

void AddJobsStop(CLI::App& jobs, Invocation& invocation) {
  auto job = std::make_shared<std::string>();
  CLI::App* stop = AddCommand(
      jobs, "stop", "Stop a job: SIGTERM to its ranks, SIGKILL after 10 s",
      invocation, [&invocation, job] { return StopJob(invocation, *job); });
  AddJobArgument(*stop, *job);
  AddJsonFlag(*stop, invocation);
}

void AddJobsLogs(CLI::App& jobs, Invocation& invocation) {
  auto flags = std::make_shared<LogFlags>();
  CLI::App* logs = AddCommand(
      jobs, "logs", "Print what a job's ranks wrote", invocation,
      [&invocation, flags] { return PrintLogs(invocation, *flags); });
  AddJobArgument(*logs, flags->job);
  logs->add_option("--rank", flags->rank, "Of this rank (default: of all)")
      ->option_text("R");
  logs->add_flag("--stderr", flags->standard_error,
                 "Their standard error in place of their standard output");
  logs->add_flag("-f,--follow", flags->follow, "Go on until the job has ended");
  AddJsonFlag(*logs, invocation);
  logs->footer(
      "Shows the job's last attempt; with -f also those that begin meanwhile.\n"
      "Lines begin with \"[rank] \" when the job has several ranks.");
}

}  // namespace

void AddJobs(CLI::App& cohort, Invocation& invocation) {
  CLI::App* jobs = cohort.add_subcommand(
      "jobs", "List jobs, show, wait for or stop one, read its logs");
  jobs->require_subcommand(1);
  CLI::App* list =
      AddCommand(*jobs, "list", "List jobs, newest first", invocation,
                 [&invocation] { return ListJobs(invocation); });
  AddJsonFlag(*list, invocation);
  AddJobsGet(*jobs, invocation);
  AddJobsWait(*jobs, invocation);
  AddJobsStop(*jobs, invocation);
  AddJobsLogs(*jobs, invocation);
}

}  // namespace cohort::cli
