#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_flags.h"
#include "client/cli/job_wait.h"
#include "client/cli/log_printer.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/exit_code.h"
#include "common/job_limits.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

// Past this reasons are for `jobs get`.
constexpr size_t kReasonBytesMax = 60;
// Of an array, by `jobs get`.
constexpr size_t kElementsShownMax = 1'000;

std::string Shortened(const std::string& text) {
  const std::string line = OneLine(text);
  if (line.size() <= kReasonBytesMax) return line;
  return Cut(line, kReasonBytesMax - 3) + "...";
}

// How long its ranks have run or did run.
std::string RunningTime(const Job& job) {
  return job.has_ran() ? AgeText(rpc::FromWire(job.ran())) : "-";
}

std::string ExitText(const ExitStatus& exit) {
  std::string text = exit.signal() != 0 ? absl::StrCat("signal ", exit.signal())
                                        : absl::StrCat("code ", exit.code());
  if (exit.oom_killed()) absl::StrAppend(&text, ", out of memory");
  if (!exit.detail().empty()) absl::StrAppend(&text, ", ", exit.detail());
  return text;
}

// That of the rank that failed first, and which that was.
std::string ExitText(const Job& job) {
  if (!job.has_exit()) {
    return job.state() == v1::JOB_STATE_SUCCEEDED ? "code 0" : "-";
  }
  return job.failed_rank() < 0 ? ExitText(job.exit())
                               : absl::StrCat(ExitText(job.exit()), " (rank ",
                                              job.failed_rank(), ")");
}

std::string JobsTable(const std::vector<Job>& jobs) {
  Table table({"ID", "NAME", "STATE", "ATTEMPT", "FAILURES", "SUBMITTED",
               "RUNNING", "REASON"});
  for (const Job& job : jobs) {
    table.Add({IdText(job.job_id()), job.name(), EnumText(job.state()),
               absl::StrCat(job.attempt()), absl::StrCat(job.failures()),
               TimeText(job.submitted_at()), RunningTime(job),
               Shortened(job.reason())});
  }
  return table.ToString();
}

std::string RanksTable(const Job& job) {
  Table table(
      {"RANK", "LOCAL", "NODE", "PID", "STATE", "EXIT", "INCARNATION", "GPUS"});
  const auto number = [](auto n) { return n == 0 ? "-" : absl::StrCat(n); };
  for (const Rank& rank : job.ranks()) {
    table.Add(
        {absl::StrCat(rank.rank()), absl::StrCat(rank.local_rank()),
         rank.node_name().empty() ? IdText(rank.node_id()) : rank.node_name(),
         number(rank.pid()), EnumText(rank.state()),
         rank.has_exit() ? ExitText(rank.exit()) : "-",
         number(rank.incarnation()), absl::StrJoin(rank.gpu_ids(), ",")});
  }
  return table.ToString();
}

// What is as it is by default is not worth a line.
std::string AfterText(const v1::JobSpec& spec) {
  std::vector<std::string> parts;
  for (const v1::Dependency& each : spec.after()) {
    parts.push_back(
        absl::StrCat(IdText(each.job_id()), ":", LowerEnumText(each.kind())));
  }
  return absl::StrJoin(parts, ", ");
}

std::string NodesText(const v1::ScalingConfig& wishes) {
  std::vector<std::string> parts(wishes.selectors().begin(),
                                 wishes.selectors().end());
  for (const v1::Toleration& each : wishes.tolerations()) {
    parts.push_back(
        absl::StrCat("tolerating ", rpc::FromWire(each).ToString()));
  }
  if (!wishes.accelerator_type().empty()) {
    parts.push_back(wishes.accelerator_type());
  }
  if (!wishes.topology_level().empty()) {
    parts.push_back(
        absl::StrCat(wishes.topology_required() ? "" : "preferably ",
                     "the same ", wishes.topology_level()));
  }
  return absl::StrJoin(parts, "; ");
}

std::string ClassesText(const Job& job) {
  std::vector<std::string> parts;
  for (const v1::ClassCount& each : job.failures_by_class()) {
    parts.push_back(
        absl::StrCat(each.count(), " ", LowerEnumText(each.failure_class())));
  }
  return absl::StrJoin(parts, ", ");
}

// What the failed rank wrote last, each line set in.
std::string TailText(const std::string& tail) {
  std::string text = "\nstderr of the failed rank, its end:\n";
  for (const absl::string_view line : absl::StrSplit(tail, '\n')) {
    absl::StrAppend(&text, "  ", OneLine(line), "\n");
  }
  return text;
}

// "key: value" lines; what is not known is left out.
class Fields {
 public:
  void Add(absl::string_view key, absl::string_view value) {
    const std::string line = OneLine(value);
    if (line.empty() || line == "-") return;
    absl::StrAppend(&text_, key, ":", std::string(15 - key.size(), ' '), line,
                    "\n");
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void AddRequest(const Job& job, Fields& fields) {
  const v1::JobSpec& spec = job.spec();
  fields.Add("array", spec.array());
  fields.Add("namespace",
             job.namespace_() == "default" ? "" : job.namespace_());
  fields.Add("labels", SortedText(job.labels(), ", "));
  fields.Add("priority",
             job.priority() == 0 ? "" : absl::StrCat(job.priority()));
  fields.Add("after", AfterText(spec));
  fields.Add("command", absl::StrJoin(spec.launch().command(), " "));
  const v1::ScalingConfig& scaling = spec.scaling();
  fields.Add(
      "workers",
      absl::StrCat(job.num_workers(), " x ",
                   ResourcesOf(scaling.resources_per_worker()).ToString(), ", ",
                   EnumText(scaling.placement_strategy())));
}

void AddFailures(const Job& job, Fields& fields) {
  const v1::RunConfig& run = job.spec().run();
  const bool each_rank = run.restart() == v1::RESTART_POLICY_ONE;
  if (each_rank || run.restart() == v1::RESTART_POLICY_NONE) {
    fields.Add("restart", LowerEnumText(run.restart()));
  }
  fields.Add(
      "failures",
      absl::StrCat(job.failures(), " of ",
                   run.max_failures() < 0 ? "any number"
                                          : absl::StrCat(run.max_failures()),
                   each_rank ? " of each rank allowed, " : " allowed, ",
                   job.infra_restarts(),
                   job.infra_restarts() == 1 ? " restart" : " restarts",
                   " after a lost node or keeper"));
  fields.Add("exit", ExitText(job));
  fields.Add("class", job.failure_class() == v1::FAILURE_CLASS_NONE
                          ? ""
                          : LowerEnumText(job.failure_class()));
  for (const std::string& cause : job.causes()) fields.Add("cause", cause);
  fields.Add("by class", ClassesText(job));
}

void AddTimes(const Job& job, Fields& fields) {
  const int64_t limit = job.spec().run().time_limit_us();
  if (limit != 0) {
    fields.Add("time limit", DurationToText(absl::Microseconds(limit)));
  }
  fields.Add("submitted", TimeText(job.submitted_at()));
  const int64_t begin = job.spec().start_at_us();
  if (begin > 0) {
    fields.Add("not before", TimeText(absl::FromUnixMicros(begin)));
  }
  fields.Add("started", TimeText(job.started_at()));
  fields.Add("ended", TimeText(job.ended_at()));
  fields.Add("running time", RunningTime(job));
}

// What came of it, and of an earlier attempt which that was.
std::string PreflightText(const Job& job) {
  if (!job.has_preflight()) {
    return job.spec().run().preflight() ? "not yet" : "";
  }
  const v1::PreflightReport& report = job.preflight().report();
  const int attempt = job.preflight().attempt();
  return absl::StrCat(
      LowerEnumText(report.verdict()),
      attempt == job.attempt() ? "" : absl::StrCat(" (attempt ", attempt, ")"),
      report.summary().empty() ? "" : ": ", report.summary());
}

void AddResults(const Job& job, Fields& fields) {
  fields.Add("preflight", PreflightText(job));
  fields.Add("storage", job.spec().run().storage_path());
  if (job.has_checkpoint()) {
    fields.Add("checkpoint", absl::StrCat(job.checkpoint().path(), " (step ",
                                          job.checkpoint().step(), ")"));
  }
  if (!job.metrics_json().empty()) {
    fields.Add("metrics", absl::StrCat(job.metrics_json(), " (of ",
                                       job.metrics_count(), " reports)"));
  }
}

// The fields, then the ranks, then why one failed.
std::string JobText(const Job& job) {
  Fields fields;
  fields.Add("id", IdText(job.job_id()));
  fields.Add("name", job.name());
  fields.Add("state", EnumText(job.state()));
  fields.Add("reason", job.reason());
  if (job.has_array()) {
    fields.Add("elements",
               absl::StrCat(job.array().size(), ": ", CountsText(job.array())));
  }
  AddRequest(job, fields);
  fields.Add("nodes", NodesText(job.spec().scaling()));
  fields.Add("attempt", absl::StrCat(job.attempt()));
  fields.Add("epoch", job.epoch() == 0 ? "" : absl::StrCat(job.epoch()));
  AddFailures(job, fields);
  AddTimes(job, fields);
  AddResults(job, fields);
  std::string text = fields.text();
  if (!job.ranks().empty()) absl::StrAppend(&text, "\n", RanksTable(job));
  if (!job.stderr_tail().empty()) {
    absl::StrAppend(&text, TailText(job.stderr_tail()));
  }
  return text;
}

struct ListFlags {
  std::vector<std::string> states;
  std::vector<std::string> labels;
  std::string name_space;
  std::string array;
  std::string limit;
};

absl::StatusOr<JobState> ParseState(const std::string& text) {
  JobState state = v1::JOB_STATE_UNSPECIFIED;
  v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(text)),
                     &state);
  if (state != v1::JOB_STATE_UNSPECIFIED) return state;
  return UsageError(absl::StrCat(
      "--state ", Shown(text),
      ": give PENDING, STARTING, RUNNING, STOPPING, SUCCEEDED, FAILED or "
      "STOPPED"));
}

absl::StatusOr<ListOptions> ToListOptions(const ListFlags& flags) {
  ListOptions options;
  for (const std::string& text : flags.states) {
    COHORT_ASSIGN_OR_RETURN(const JobState state, ParseState(text));
    options.states.push_back(state);
  }
  COHORT_ASSIGN_OR_RETURN(options.labels, ParseLabels(flags.labels));
  options.name_space = flags.name_space;
  if (!flags.name_space.empty()) {
    const absl::Status fits = CheckNamespace(flags.name_space);
    if (!fits.ok()) {
      return FlagError("--namespace", fits);
    }
  }
  if (!flags.array.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.array, ParseJobId(flags.array));
  }
  if (!flags.limit.empty()) {
    COHORT_ASSIGN_OR_RETURN(const int limit,
                            ParseInt("--limit", flags.limit, 1, 10'000'000));
    options.limit = static_cast<size_t>(limit);
  }
  return options;
}

absl::StatusOr<int> ListJobs(const Invocation& invocation,
                             const ListFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const ListOptions options, ToListOptions(flags));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobList list, cluster->List(options));
  COHORT_RETURN_IF_ERROR(invocation.json ? Print(JobsJson(list.jobs))
                                         : PrintRaw(JobsTable(list.jobs)));
  if (list.is_cut && !invocation.json) {
    std::fputs(absl::StrCat("cohort: these are the newest ", list.jobs.size(),
                            "; there are more: --limit N shows them\n")
                   .c_str(),
               stderr);
  }
  return kExitOk;
}

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
absl::StatusOr<std::string> ArrayText(const Cluster& cluster,
                                      const Job& array) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<Job> elements,
                          Elements(cluster, array.job_id()));
  std::string text = absl::StrCat(JobText(array), "\n", JobsTable(elements));
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

absl::StatusOr<int> GetJob(const Invocation& invocation,
                           const std::string& job_text) {
  COHORT_ASSIGN_OR_RETURN(const JobId id, ParseJobId(job_text));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(ToJson(job)));
    return kExitOk;
  }
  std::string text = JobText(job);
  if (job.has_array()) {
    COHORT_ASSIGN_OR_RETURN(text, ArrayText(*cluster, job));
  }
  COHORT_RETURN_IF_ERROR(PrintRaw(text));
  return kExitOk;
}

absl::StatusOr<int> WaitJob(const Invocation& invocation,
                            const std::string& job_text,
                            const std::string& timeout_text) {
  absl::Duration timeout = absl::InfiniteDuration();
  if (!timeout_text.empty()) {
    const absl::StatusOr<absl::Duration> parsed = ParseDuration(timeout_text);
    if (!parsed.ok()) {
      return FlagError("--timeout", parsed.status());
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
    COHORT_RETURN_IF_ERROR(Print(ToJson(job)));
  } else if (Progress::KindFor(STDOUT_FILENO) == Progress::Kind::kLive) {
    COHORT_RETURN_IF_ERROR(Print(OneLine(JobLine(job))));
  }
  return ExitCodeOf(job);
}

absl::StatusOr<int> ChangeJob(
    const Invocation& invocation, const std::string& job_text,
    absl::FunctionRef<absl::Status(Cluster&, const JobId&)> change) {
  COHORT_ASSIGN_OR_RETURN(const JobId id, ParseJobId(job_text));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_RETURN_IF_ERROR(change(*cluster, id));
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(IdJson(id)));
  } else {
    COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
    COHORT_RETURN_IF_ERROR(Print(OneLine(JobLine(job))));
  }
  return kExitOk;
}

absl::StatusOr<int> ResizeJob(const Invocation& invocation,
                              const std::string& job_text,
                              const std::string& size_text) {
  COHORT_ASSIGN_OR_RETURN(const int num_workers,
                          ParseInt("N", size_text, 1, 10'000));
  return ChangeJob(invocation, job_text,
                   [num_workers](Cluster& cluster, const JobId& id) {
                     return cluster.ResizeJob(id, num_workers);
                   });
}

struct LogFlags {
  std::string job;
  std::string rank;
  bool standard_error = false;
  bool follow = false;
};

// Empty once it has started: then there are logs, if only empty ones.
std::string NoLogsText(const Job& job) {
  if (job.attempt() != 0 || job.has_array()) return "";
  return absl::StrCat(
      OneLine(absl::StrCat("cohort: job ", IdText(job.job_id()), " is ",
                           EnumText(job.state()), " and has never started",
                           job.reason().empty() ? "" : ": ", job.reason())),
      "\n");
}

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
  if (!invocation.json) std::fputs(NoLogsText(job).c_str(), stderr);
  const LogPrinter::Form form = invocation.json ? LogPrinter::Form::kJson
                                : job.num_workers() > 1
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
  command
      .add_option("JOB", job,
                  "The id of a job, of an array, or ID.INDEX of an element")
      ->required();
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

void AddJobsChange(
    CLI::App& jobs, Invocation& invocation, const std::string& name,
    const std::string& description,
    absl::Status (Cluster::*change)(JobId, std::optional<absl::Duration>)) {
  auto job = std::make_shared<std::string>();
  CLI::App* command = AddCommand(
      jobs, name, description, invocation, [&invocation, job, change] {
        return ChangeJob(invocation, *job,
                         [change](Cluster& cluster, const JobId& id) {
                           return (cluster.*change)(id, std::nullopt);
                         });
      });
  AddJobArgument(*command, *job);
  AddJsonFlag(*command, invocation);
}

void AddJobsResize(CLI::App& jobs, Invocation& invocation) {
  auto job = std::make_shared<std::string>();
  auto size = std::make_shared<std::string>();
  CLI::App* resize = AddCommand(
      jobs, "resize",
      "Change how many ranks a job with --restart one or none has", invocation,
      [&invocation, job, size] { return ResizeJob(invocation, *job, *size); });
  AddJobArgument(*resize, *job);
  resize->add_option("N", *size, "How many from now on")->required();
  AddJsonFlag(*resize, invocation);
  resize->footer(
      "New ranks are placed together, or wait for room together; ranks from N "
      "on\n"
      "are stopped.");
}

void AddJobsList(CLI::App& jobs, Invocation& invocation) {
  auto flags = std::make_shared<ListFlags>();
  CLI::App* list =
      AddCommand(jobs, "list", "List jobs, newest first", invocation,
                 [&invocation, flags] { return ListJobs(invocation, *flags); });
  list->add_option("--state", flags->states,
                   "Those in this state, or in any of these")
      ->option_text("STATE[,STATE]...")
      ->delimiter(',')
      ->allow_extra_args(false);
  list->add_option("--label", flags->labels,
                   "Those with this label (may be given again: with all)")
      ->option_text("K=V")
      ->allow_extra_args(false);
  list->add_option("--namespace", flags->name_space, "Those of this namespace")
      ->option_text("S");
  list->add_option("--array", flags->array, "The elements of this array")
      ->option_text("ID");
  list->add_option("--limit", flags->limit,
                   "The newest N of them (default: 10000)")
      ->option_text("N");
  AddJsonFlag(*list, invocation);
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
      "jobs",
      "List jobs, show, wait for, stop, hold, release or resize one, read its "
      "logs");
  jobs->require_subcommand(1);
  AddJobsList(*jobs, invocation);
  AddJobsGet(*jobs, invocation);
  AddJobsWait(*jobs, invocation);
  AddJobsChange(*jobs, invocation, "stop",
                "Stop a job, or all elements of an array: SIGTERM to its "
                "ranks, SIGKILL after its grace",
                &Cluster::Stop);
  AddJobsChange(*jobs, invocation, "hold",
                "Keep a job that waits from starting; of an array those "
                "elements that wait",
                &Cluster::Hold);
  AddJobsChange(*jobs, invocation, "release",
                "Let a held job start when its turn comes", &Cluster::Release);
  AddJobsResize(*jobs, invocation);
  AddJobsLogs(*jobs, invocation);
}

}  // namespace cohort::cli
