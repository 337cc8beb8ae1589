#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/completion.h"
#include "client/cli/errors.h"
#include "client/cli/explain_text.h"
#include "client/cli/job_files.h"
#include "client/cli/job_flags.h"
#include "client/cli/job_follow.h"
#include "client/cli/job_name.h"
#include "client/cli/job_text.h"
#include "client/cli/job_wait.h"
#include "client/cli/package_flags.h"
#include "client/cli/progress.h"
#include "client/cli/python_environment.h"
#include "client/json.h"
#include "client/package.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::cli {
namespace {

struct SubmitFlags {
  JobFlags job;
  PackageFlags package;
  std::string python;
  std::string request_id;
  bool wait = false;
  bool follow = false;
};

absl::StatusOr<JobId> Submit(Cluster& cluster, JobSpec spec,
                             const std::optional<Package>& package,
                             const std::string& request_id, bool is_quiet) {
  if (package.has_value()) {
    COHORT_RETURN_IF_ERROR(Upload(cluster, *package, is_quiet));
    spec.package = package->hash();
  }
  return cluster.Submit(spec, {.request_id = request_id});
}

absl::StatusOr<int> AwaitEnd(const Cluster& cluster, const JobId& id,
                             const JobSpec& spec, bool follow, bool json) {
  SayOnInterrupt(id);
  // An array has one output for each element.
  follow = follow && spec.array.empty();
  if (follow) {
    COHORT_RETURN_IF_ERROR(
        FollowOutput(cluster, id, spec.scaling_config.num_workers));
  }
  // The first line of stdout is the id; how the job moves is beside it.
  Progress progress(
      json || follow ? Progress::Kind::kNone : Progress::KindFor(STDERR_FILENO),
      STDERR_FILENO);
  COHORT_ASSIGN_OR_RETURN(
      const Job job,
      WaitForJob(cluster, id, absl::InfiniteDuration(), progress));
  progress.Finish();
  const bool was_said =
      !follow && Progress::KindFor(STDERR_FILENO) == Progress::Kind::kPlain;
  if (!json && !was_said) {
    std::fputs(absl::StrCat(OneLine(JobLine(job)), "\n").c_str(), stderr);
  }
  // Among the lines of several ranks the cause is hard to find.
  if (!json && (!follow || job.num_workers() > 1)) {
    std::fputs(TailText(job).c_str(), stderr);
  }
  if (!json) SayWhatIsLeft(cluster, job);
  return ExitCodeOf(job);
}

absl::Status FindAfter(const Cluster& cluster,
                       const std::vector<std::string>& flags, JobSpec& spec) {
  for (const std::string& text : flags) {
    COHORT_ASSIGN_OR_RETURN(const AfterFlag after, ParseAfter(text));
    const absl::StatusOr<JobId> job = FindJob(cluster, after.job);
    if (!job.ok()) return Annotate(job.status(), "--after");
    spec.after.push_back({.job = *job, .kind = after.kind});
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunSubmit(const Invocation& invocation,
                              const SubmitFlags& flags) {
  // Everything that can be wrong here is said before anybody is called.
  if (!invocation.rest.has_value() || invocation.rest->empty()) {
    return UsageError(
        "there is no command: write it after --, as in `cohort submit -- "
        "python3 train.py`");
  }
  COHORT_ASSIGN_OR_RETURN(JobSpec spec, ToJobSpec(flags.job, *invocation.rest));
  COHORT_RETURN_IF_ERROR(PutPython(flags.python, invocation.json, spec));
  COHORT_ASSIGN_OR_RETURN(const std::optional<Package> package,
                          Pack(flags.package, spec, invocation.json));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kChangeDeadline));
  COHORT_RETURN_IF_ERROR(FindAfter(*cluster, flags.job.after, spec));
  const auto submit = [&] {
    return Submit(*cluster, spec, package, flags.request_id, invocation.json);
  };
  absl::StatusOr<JobId> id = submit();
  if (package.has_value() && absl::IsFailedPrecondition(id.status()) &&
      GetReason(id.status()) != "other_cluster") {
    // The head dropped the package in between, as it may when nobody names it.
    id = submit();
  }
  if (!id.ok()) return id.status();
  RememberJob(*cluster, *id);
  COHORT_RETURN_IF_ERROR(
      Annotate(Print(invocation.json ? IdJson(*id) : id->ToText()),
               absl::StrCat("job ", id->ToText(), " is submitted")));
  if (!invocation.json) {
    SayWhenItNeverFits(*cluster, *id);
    SayWhenResultsMayGo(*cluster, spec);
  }
  if (!flags.wait && !flags.follow) return kExitOk;
  return AwaitEnd(*cluster, *id, spec, flags.follow, invocation.json);
}

void AddResourceFlags(CLI::App& submit, JobFlags& job) {
  submit
      .add_option("--num-workers", job.num_workers,
                  "Ranks, placed together or not at all (default: 1)")
      ->option_text("N");
  submit
      .add_option("--nnodes", job.nnodes,
                  "In place of --num-workers: exactly N nodes (default: 1)")
      ->option_text("N");
  submit
      .add_option("--nproc-per-node", job.nproc_per_node,
                  "Ranks on each of these nodes (default: 1)")
      ->option_text("M");
  submit.add_option("--cpus", job.cpus, "CPUs per worker (default: 1)")
      ->option_text("X");
  submit
      .add_option("--gpus", job.gpus,
                  "GPUs per worker, below 1 a part of one (default: 0)")
      ->option_text("X");
  submit.add_flag("--use-gpu", job.use_gpu,
                  "The same as --gpus 1, unless --gpus is given");
  submit.add_flag("--isolate-gpus", job.spec.run_config.isolate_gpus,
                  "Each rank sees only its own GPUs.  Without this, ranks with "
                  "one GPU each see all of their node's, indexed by LOCAL_RANK "
                  "as under torchrun");
  submit
      .add_option(
          "--memory", job.memory,
          "Memory per worker, as 512MiB or 64GiB (default: not counted)")
      ->option_text("SIZE");
  submit
      .add_option("--resources", job.resources,
                  "Custom resources per worker, as license=1,disk=0.5 (may be "
                  "given again)")
      ->option_text("k=v,...")
      ->join(',');
  CLI::Option* const strategy =
      submit.add_option("--strategy", job.strategy,
                        "PACK, SPREAD, STRICT_PACK or STRICT_SPREAD over nodes "
                        "(default: PACK)");
  OfferValues(strategy, {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"})
      ->option_text("S");
}

void AddRunFlags(CLI::App& submit, SubmitFlags& flags) {
  JobFlags& job = flags.job;
  submit
      .add_option("--name", job.spec.run_config.name,
                  "A name, which need not be unique")
      ->option_text("S");
  submit
      .add_option("--max-failures", job.max_failures,
                  "Start again after up to N failures (with --restart one: of "
                  "each rank); -1: no limit; drains and the first 3 losses of "
                  "a node do not count (default: 0; with --restart one -1)")
      ->option_text("N");
  CLI::Option* const restart = submit.add_option(
      "--restart", job.restart,
      "When a rank fails: all start again, it starts again alone (one), or the "
      "others end first and the job has failed (none) (default: all)");
  OfferValues(restart, {"all", "one", "none"})->option_text("all|one|none");
  submit.add_flag("--preflight", job.spec.run_config.preflight,
                  "First measure the connections between ranks, in pairs and "
                  "all together; `jobs get` shows the report");
  submit
      .add_option(
          "--storage-path", job.storage_path,
          "Directory for checkpoints, which all workers must see; a relative "
          "path starts in the current directory (default: `results` in "
          "each worker's state directory)")
      ->option_text("DIR");
  submit.add_flag("--keep-work", job.spec.run_config.keep_work,
                  "An attempt starts with the files that the previous one left "
                  "in its working directory on that node");
  submit
      .add_option("--num-to-keep", job.num_to_keep,
                  "Keep the N newest checkpoints (default: all)")
      ->option_text("N");
  AddPackageFlags(submit, flags.package);
  submit
      .add_option("--cwd", job.working_directory,
                  "Run in this directory, which all workers have; a relative "
                  "path starts in the current directory")
      ->option_text("DIR");
  submit
      .add_option("--env", job.environment,
                  "Set a variable for the ranks (not one of cohort's own); "
                  "$NAME in the value is expanded on the worker (may be given "
                  "again)")
      ->option_text("K=V")
      ->allow_extra_args(false);
  submit
      .add_option("--secret-env", job.secret_env,
                  "Set this variable for the ranks to its value here, which no "
                  "command shows (may be given again)")
      ->option_text("NAME")
      ->allow_extra_args(false);
  submit
      .add_option("--secret-file", job.secret_file,
                  "As --secret-env, from a file, without its last line break "
                  "(may be given again)")
      ->option_text("NAME=FILE")
      ->allow_extra_args(false);
  AddPythonFlag(submit, flags.python);
}

void AddOrderFlags(CLI::App& submit, JobFlags& job) {
  submit
      .add_option("--time-limit", job.time_limit,
                  "End the job after T of running, summed over attempts, as "
                  "90m (default: never)")
      ->option_text("T");
  submit
      .add_option("--grace", job.grace,
                  "Time between SIGTERM and SIGKILL when ranks are stopped, "
                  "also because one failed (default: 10s)")
      ->option_text("T");
  submit
      .add_option("--retry-delay", job.retry_delay,
                  "Delay before the attempt after a failure; doubles with each "
                  "(default: 1s)")
      ->option_text("T");
  submit
      .add_option("--begin", job.begin,
                  "Earliest start: a delay, as +90s, or a time of the head's "
                  "clock, as 2026-11-24T10:00:00Z")
      ->option_text("+T|TIME");
  submit
      .add_option("--after", job.after,
                  "Start once that job, or all of an array, has succeeded (ok, "
                  "the default) or ended (any) (may be given again)")
      ->option_text("JOB[:ok|:any]")
      ->allow_extra_args(false);
  submit
      .add_option("--array", job.spec.array,
                  "One job for each index, as 0-99, 0,3,7-9 or 0-99:10; %N: "
                  "at most N at once, as 0-99%8")
      ->option_text("SPEC");
  submit
      .add_option("--label", job.labels,
                  "A label, for `jobs list --label` (may be given again)")
      ->option_text("K=V")
      ->allow_extra_args(false);
  submit
      .add_option("--namespace", job.spec.name_space,
                  "The namespace it belongs to (default: default)")
      ->option_text("S");
  submit
      .add_option("--priority", job.priority,
                  "Higher ones start first, -1000 to 1000; there is no "
                  "preemption (default: 0)")
      ->option_text("N");
  submit.add_option("--comment", job.spec.comment, "A comment of one line")
      ->option_text("S");
  submit.add_flag("--hold", job.spec.hold, "Wait for `cohort jobs release`");
}

void AddNodeFlags(CLI::App& submit, JobFlags& job) {
  submit
      .add_option("--selector", job.selectors,
                  "Only nodes matching EXPR: K=V, K!=V, \"K in (A,B)\", \"K "
                  "!in (A,B)\", \"K exists\"; commas join several, which must "
                  "all hold (may be given again)")
      ->option_text("EXPR")
      ->allow_extra_args(false);
  submit
      .add_option("--tolerate", job.tolerations,
                  "Also nodes with this taint (may be given again)")
      ->option_text("K[=V]")
      ->allow_extra_args(false);
  submit
      .add_option("--accelerator", job.accelerator,
                  "Only nodes with GPUs of this model")
      ->option_text("TYPE");
  submit
      .add_option("--same", job.same,
                  "All ranks on nodes with the same value of this label, as "
                  "rack; host: on one node")
      ->option_text("LEVEL");
  submit
      .add_option("--prefer-same", job.prefer_same, "As --same, where possible")
      ->option_text("LEVEL");
}

}  // namespace

void AddSubmit(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<SubmitFlags>();
  CLI::App* submit = AddCommand(
      cohort, "submit", "Submit a job and print its id", invocation,
      [&invocation, flags] { return RunSubmit(invocation, *flags); });
  AddResourceFlags(*submit, flags->job);
  AddNodeFlags(*submit, flags->job);
  AddRunFlags(*submit, *flags);
  AddOrderFlags(*submit, flags->job);
  submit
      ->add_option("--request-id", flags->request_id,
                   "Makes a repeated submit safe: the same id with the same "
                   "job returns the first job (default: a fresh id)")
      ->option_text("S");
  submit->add_flag("--wait", flags->wait,
                   "Wait until the job has ended, and exit with its status");
  submit->add_flag("-f,--follow", flags->follow,
                   "As --wait, and print the output of the ranks (not for an "
                   "array)");
  AddJsonFlag(*submit, invocation);
  submit->footer(
      "What follows -- is the command of each rank: a program on the ranks' "
      "PATH, or ./NAME for a file sent along.  Ranks get the environment that "
      "torchrun gives.\n"
      " With --wait or -f the exit code is 0 when the job succeeded, else that "
      "of the rank that failed first (128+n where signal n ended it), 130 when "
      "the job was stopped, 125 otherwise; of an array that of the first "
      "element, by index, that failed.  Ctrl-C leaves the job running.\n"
      "\n"
      "  cohort submit -- hostname\n"
      "  cohort submit --num-workers 2 --use-gpu --file train.py -f -- python3 "
      "train.py");
}

}  // namespace cohort::cli
