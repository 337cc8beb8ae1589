#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_name.h"
#include "client/job_trace.h"
#include "common/exit_code.h"
#include "common/file.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::cli {
namespace {

// The bound of one trace: 20 MB of JSON, more than anybody looks at.
constexpr size_t kTraceEventsMax = 50'000;
constexpr int kTraceCallsMax = 50'000;

struct TimelineFlags {
  std::string job;
  std::string file;
};

// Of each rank that has a process.  A trace without the calls of some is worth
// as much, so failures are said only.
void AddCalls(const Cluster& cluster, const JobId& id, JobPast& past) {
  int count = 0;
  for (const Rank& rank : past.job.ranks()) {
    if (rank.pid() == 0 || rank.state() == v1::PROCESS_STATE_EXITED) continue;
    absl::StatusOr<RankCalls> calls =
        count < kTraceCallsMax
            ? cluster.ServedCalls(id, rank.rank(), kReadDeadline)
            : absl::ResourceExhaustedError(absl::StrCat(
                  "the trace has ", kTraceCallsMax, " calls already"));
    if (!calls.ok()) {
      Say(absl::StrCat("no calls of rank ", rank.rank(),
                       " and later ones: ", calls.status().message()));
      return;
    }
    count += calls->calls().calls_size();
    past.calls.push_back(*std::move(calls));
  }
}

absl::StatusOr<JobPast> PastOf(const Cluster& cluster, const JobId& id) {
  JobPast past;
  COHORT_ASSIGN_OR_RETURN(past.job, cluster.Get(id));
  EventOptions options;
  options.job = id;
  COHORT_RETURN_IF_ERROR(cluster.Events(
      options, [&past](const Event& event, const EventPlace&) -> absl::Status {
        if (past.events.size() == kTraceEventsMax) {
          return absl::ResourceExhaustedError(absl::StrCat(
              "it has more than ", kTraceEventsMax,
              " events: name one element of an array, or read `cohort "
              "events`"));
        }
        past.events.push_back(event);
        return absl::OkStatus();
      }));
  if (past.events.empty()) {
    return absl::NotFoundError(
        absl::StrCat("nothing of job ", id.ToText(),
                     " is remembered (`cohort events` says "
                     "how far back events go; what runs tasks has none)"));
  }
  COHORT_ASSIGN_OR_RETURN(past.waits, cluster.Explain(id, {.history = true}));
  if (past.job.spec().has_actor()) AddCalls(cluster, id, past);
  return past;
}

absl::StatusOr<int> RunTimeline(const Invocation& invocation,
                                const TimelineFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(*cluster, flags.job));
  COHORT_ASSIGN_OR_RETURN(const JobPast past, PastOf(*cluster, id));
  const std::string trace = TraceJson(past, MachineClock().Wall());
  if (flags.file.empty()) {
    COHORT_RETURN_IF_ERROR(Print(trace));
    return kExitOk;
  }
  COHORT_RETURN_IF_ERROR(
      Annotate(WriteFileAtomically(flags.file, trace + "\n", 0644), "-o"));
  Say(absl::StrCat(past.events.size(), " events in ", flags.file,
                   "; open it at https://ui.perfetto.dev"));
  return kExitOk;
}

}  // namespace

void AddTimeline(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<TimelineFlags>();
  CLI::App* timeline = AddCommand(
      cohort, "timeline",
      "Write a job's history as a Perfetto trace: states, waits, attempts, "
      "ranks, actor calls",
      invocation,
      [&invocation, flags] { return RunTimeline(invocation, *flags); });
  AddJobArgument(*timeline, flags->job);
  timeline
      ->add_option("-o,--output", flags->file,
                   "To this file (default: to stdout)")
      ->option_text("FILE");
  timeline->footer(
      "Shows the ranks of the last attempt; what still runs ends now in the "
      "trace.\n"
      "A running actor has its last 10,000 calls in it.");
}

}  // namespace cohort::cli
