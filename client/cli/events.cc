#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/event_text.h"
#include "client/cli/job_name.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/since_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

struct EventsFlags {
  std::string since;
  std::string job;
  std::string node;
  bool follow = false;
};

// Lines are written in pieces, so that a long history is not a million writes.
constexpr size_t kPrintBytes = 64 << 10;

absl::StatusOr<EventOptions> ToOptions(const EventsFlags& flags) {
  EventOptions options;
  options.follow = flags.follow;
  options.node = flags.node;
  if (!flags.since.empty()) {
    const absl::StatusOr<absl::Time> since =
        ParseSince(flags.since, MachineClock().Wall());
    if (!since.ok()) {
      return FlagError("--since", since.status());
    }
    options.since = *since;
  }
  return options;
}

// NotFound when what the options name is not there, now at least.
absl::Status CheckNamed(const Cluster& cluster, const EventOptions& options) {
  if (options.job.has_value()) {
    COHORT_RETURN_IF_ERROR(cluster.Get(*options.job).status());
  }
  if (options.node.empty()) return absl::OkStatus();
  return cluster.GetNode(options.node).status();
}

absl::StatusOr<int> RunEvents(const Invocation& invocation,
                              const EventsFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(EventOptions options, ToOptions(flags));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  if (!flags.job.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.job, FindJob(*cluster, flags.job));
  }
  // Nothing will happen to what is not there.
  if (options.follow) COHORT_RETURN_IF_ERROR(CheckNamed(*cluster, options));
  const TableView view = ViewFor(invocation);
  std::string text;
  bool any = false;
  const absl::Status status = cluster->Events(
      options,
      [&](const Event& event, const EventPlace& place) -> absl::Status {
        any = true;
        if (place.skipped > 0) {
          Say(absl::StrCat(place.skipped, " events before number ",
                           event.number(), " are not kept any more"));
        }
        if (place.history_replaced) {
          Say(
              absl::StrCat("the head's store was restored from a "
                           "backup: events from number ",
                           event.number(),
                           " on are other ones than had these numbers before"));
        }
        absl::StrAppend(
            &text, invocation.json ? ToJsonLine(event) : EventLine(event, view),
            "\n");
        if (place.more && text.size() < kPrintBytes) return absl::OkStatus();
        const absl::Status printed = PrintRaw(text);
        text.clear();
        return printed;
      });
  COHORT_RETURN_IF_ERROR(PrintRaw(text));
  COHORT_RETURN_IF_ERROR(status);
  // Events outlive what they tell of, so that only silence is looked into.
  if (!any) COHORT_RETURN_IF_ERROR(CheckNamed(*cluster, options));
  return kExitOk;
}

}  // namespace

void AddEvents(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<EventsFlags>();
  CLI::App* events = AddCommand(
      cohort, "events", "Show what happened in the cluster, who did it and why",
      invocation,
      [&invocation, flags] { return RunEvents(invocation, *flags); });
  events->add_flag("-f,--follow", flags->follow, "Continue with new events");
  events
      ->add_option("--since", flags->since,
                   "Only events since then: a duration, as 10m, or a time, as "
                   "2026-11-21T10:00:00Z (default: all that is kept)")
      ->option_text("T");
  events
      ->add_option("--job", flags->job,
                   "Only of this job, or of this array and its elements")
      ->option_text("JOB");
  events->add_option("--node", flags->node, "Only of this node: name or id")
      ->option_text("NODE");
  AddOutputFlags(*events, invocation);
  events->footer(
      "Times are in UTC.  -o wide also shows their years and milliseconds, "
      "whole ids, attempts, and the number of the event that was the cause.");
}

}  // namespace cohort::cli
