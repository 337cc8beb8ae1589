#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_name.h"
#include "client/cli/job_notice.h"
#include "client/cli/job_text.h"
#include "client/cli/log_output.h"
#include "client/message_text.h"
#include "common/array_spec.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/since_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/enum_text.h"

namespace cohort::cli {
namespace {

constexpr int kTailMax = 100'000;
constexpr int kFailureLines = 20;

struct LogFlags {
  JobScope scope;
  std::string job;
  std::string ranks;
  std::string attempt;
  std::string tail;
  std::string since;
  bool standard_output = false;
  bool standard_error = false;
  bool timestamps = false;
  bool follow = false;

  bool all_attempts() const { return attempt == "all"; }
};

// "3", "0,4-7".
absl::StatusOr<std::vector<int>> ParseRanks(const std::string& text) {
  const absl::StatusOr<ArraySpec> ranks = ArraySpec::Parse(text);
  if (!ranks.ok() || ranks->at_once.has_value()) {
    return UsageError(
        absl::StrCat("--rank ", Shown(text), ": give ranks, as 3 or 0,4-7"));
  }
  return std::vector<int>(ranks->indices.begin(), ranks->indices.end());
}

absl::StatusOr<LogOptions> ToLogOptions(const LogFlags& flags) {
  LogOptions options;
  options.follow = flags.follow;
  if (!flags.ranks.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.ranks, ParseRanks(flags.ranks));
  }
  if (!flags.attempt.empty() && !flags.all_attempts()) {
    COHORT_ASSIGN_OR_RETURN(options.attempt,
                            ParseInt("--attempt", flags.attempt, 1, 1'000'000));
  }
  if (!flags.tail.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.tail,
                            ParseInt("--tail", flags.tail, 0, kTailMax));
    if (flags.all_attempts()) {
      return UsageError(
          "--tail and --attempt all exclude each other: choose an attempt");
    }
  }
  if (!flags.since.empty()) {
    const absl::StatusOr<absl::Time> since =
        ParseSince(flags.since, MachineClock().Wall());
    if (!since.ok()) return FlagError("--since", since.status());
    options.since = *since;
  }
  return options;
}

// OK once it has started: then there are logs, if only empty ones.
absl::Status CheckStarted(const Job& job) {
  if (job.attempt() != 0 || job.has_array()) return absl::OkStatus();
  return SetReason(absl::FailedPreconditionError(absl::StrCat(
                       "job ", IdText(job.job_id()), " is ",
                       EnumText(job.state()), " and has never started",
                       job.reason().empty() ? "" : ": ", job.reason())),
                   "not_started");
}

LogOutput OutputFor(const LogFlags& flags, const Job& job, bool json) {
  // Both, unless one is chosen.
  return LogOutput(
      {.layout = {.json = json,
                  .ranks = job.num_workers() > 1,
                  .times = flags.timestamps,
                  .follows = flags.follow},
       .one_rank = job.num_workers() == 1,
       .standard_output = flags.standard_output || !flags.standard_error,
       .standard_error = flags.standard_error || !flags.standard_output});
}

// All that there are; a follower goes from one to the next by itself.
absl::Status PrintAttempts(const Cluster& cluster, const Job& job,
                           const JobId& id, LogOptions options, bool json,
                           LogOutput& output) {
  JobNotice notice;
  notice.Know(job);
  absl::Status status;
  const int last = options.follow ? 1 : std::max(job.attempt(), 1);
  for (options.attempt = 1; options.attempt <= last; ++options.attempt) {
    if (!json && !options.follow) {
      COHORT_RETURN_IF_ERROR(
          output.Say(absl::StrCat("attempt ", options.attempt)));
    }
    status.Update(output.Print(cluster, id, options, notice));
  }
  return status;
}

// Whether the log begins with the lines of the rank that failed first: where
// the lines of several ranks take turns, unless the flags choose some.
bool BeginsWithFailure(const LogFlags& flags, const Job& job, bool json) {
  return !json && job.state() == v1::JOB_STATE_FAILED &&
         job.num_workers() > 1 && job.failed_rank() >= 0 &&
         flags.ranks.empty() && flags.attempt.empty() &&
         !flags.standard_output && !flags.standard_error;
}

// The last lines of that rank.  Errors are left to the reading of the log.
void SayFirstFailure(const Cluster& cluster, const JobId& id, int rank) {
  LogOptions options;
  options.ranks = {rank};
  options.tail = kFailureLines;
  options.standard_error = true;
  std::string lines;
  cluster
      .Logs(id, options,
            [&lines](const LogChunk& chunk) {
              absl::StrAppend(&lines, chunk.data);
              return absl::OkStatus();
            })
      .IgnoreError();
  if (lines.empty()) return;
  std::fputs(absl::StrCat("last lines of rank ", rank,
                          ", which failed first:\n", LogLines(lines), "\n")
                 .c_str(),
             stderr);
}

absl::StatusOr<int> RunLogs(const Invocation& invocation,
                            const LogFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const LogOptions options, ToLogOptions(flags));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobId id,
                          FindJob(*cluster, flags.job, flags.scope));
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
  const absl::Status started = CheckStarted(job);
  if (!started.ok()) {
    if (!flags.follow) return started;
    std::fputs(ErrorText(started, invocation.json).c_str(), stderr);
  }
  if (BeginsWithFailure(flags, job, invocation.json)) {
    SayFirstFailure(*cluster, id, job.failed_rank());
  }
  LogOutput output = OutputFor(flags, job, invocation.json);
  JobNotice notice;
  notice.Know(job);
  // Without any attempt there is no first one to name.
  const absl::Status read =
      flags.all_attempts() && started.ok()
          ? PrintAttempts(*cluster, job, id, options, invocation.json, output)
          : output.Print(*cluster, id, options, notice);
  COHORT_RETURN_IF_ERROR(output.Finish());
  COHORT_RETURN_IF_ERROR(read);
  if (started.ok() || !flags.follow) return kExitOk;
  COHORT_ASSIGN_OR_RETURN(const Job ended, cluster->Get(id));
  return CheckStarted(ended).ok() ? kExitOk : kExitFailure;
}

}  // namespace

void AddLogs(CLI::App& parent, const JobScope& scope, Invocation& invocation) {
  auto flags = std::make_shared<LogFlags>(LogFlags{.scope = scope});
  CLI::App* logs = AddCommand(
      parent, "logs",
      absl::StrCat("Print what ", scope.noun == "actor" ? "an " : "a ",
                   scope.noun, "'s processes wrote"),
      invocation, [&invocation, flags] { return RunLogs(invocation, *flags); });
  AddScopedArgument(*logs, flags->job, flags->scope);
  logs->add_option("--rank", flags->ranks,
                   "Only these ranks, as 3 or 0,4-7 (default: all)")
      ->option_text("R");
  logs->add_option("--attempt", flags->attempt,
                   "This attempt, or all of them in order (default: the last)")
      ->option_text("N|all");
  logs->add_flag("--stdout", flags->standard_output,
                 "Standard output only (default: both streams)");
  logs->add_flag("--stderr", flags->standard_error, "Standard error only");
  logs->add_option("--tail", flags->tail,
                   "The last N lines of each rank; with -f also what follows "
                   "(default: all)")
      ->option_text("N");
  logs->add_option("--since", flags->since,
                   "Only lines since then: a duration, as 10m, or a time, as "
                   "2026-11-21T10:00:00Z")
      ->option_text("T");
  logs->add_flag("--timestamps", flags->timestamps,
                 "Print before each line the time at which its node read it");
  logs->add_flag("-f,--follow", flags->follow,
                 "Continue until the job has ended, also with later attempts");
  AddJsonFlag(*logs, invocation);
  logs->footer(
      "Both streams are printed to stdout, by the time at which they were "
      "read.\n"
      "Lines begin with \"[rank] \" when the job has several ranks.  When such "
      "a job has failed, the last lines of the rank that failed first come "
      "before them, on stderr.");
}

}  // namespace cohort::cli
