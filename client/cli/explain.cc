#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/explain_text.h"
#include "client/cli/job_choice.h"
#include "client/cli/job_list.h"
#include "client/json.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/since_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

struct ExplainFlags : JobChoice {
  std::string at;
  bool history = false;
};

absl::StatusOr<absl::Time> ParseAt(const std::string& text) {
  const absl::Time now = MachineClock().Wall();
  const absl::StatusOr<absl::Time> at = ParseSince(text, now);
  if (!at.ok()) {
    return FlagError("--at", at.status());
  }
  if (*at > now) {
    return UsageError(absl::StrCat("--at ", Shown(text),
                                   " is still to come: nobody knows it"));
  }
  return at;
}

absl::StatusOr<int> RunExplain(const Invocation& invocation,
                               const ExplainFlags& flags) {
  COHORT_RETURN_IF_ERROR(CheckJobChoice("cohort explain", flags));
  ExplainOptions options;
  options.history = flags.history;
  if (!flags.at.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.at, ParseAt(flags.at));
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const std::vector<JobId> ids,
                          FindJobs(*cluster, flags, LiveStates()));
  if (ids.empty()) {
    return EndWithoutJobs(*cluster, flags, LiveStates(), invocation.json);
  }
  std::vector<Explanation> explanations;
  for (const JobId& id : ids) {
    COHORT_ASSIGN_OR_RETURN(explanations.emplace_back(),
                            cluster->Explain(id, options));
  }
  if (invocation.json) {
    COHORT_RETURN_IF_ERROR(Print(flags.is_list()
                                     ? ExplanationsJson(explanations)
                                     : ToJson(explanations.front())));
    return kExitOk;
  }
  COHORT_RETURN_IF_ERROR(PrintRaw(absl::StrJoin(
      explanations, "\n", [](std::string* out, const Explanation& explanation) {
        absl::StrAppend(out, ExplanationText(explanation));
      })));
  return kExitOk;
}

}  // namespace

void AddExplain(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* explain = AddCommand(
      cohort, "explain", "Say why jobs wait and what would let them start",
      invocation,
      [&invocation, flags] { return RunExplain(invocation, *flags); });
  AddJobChoice(*explain, *flags);
  CLI::Option* const at =
      explain
          ->add_option("--at", flags->at,
                       "Why it waited then: how long ago (1h), or a time "
                       "(2026-11-21T10:00:00Z)")
          ->option_text("T");
  explain
      ->add_flag("--history", flags->history,
                 "Why it waited, as far as the head remembers")
      ->excludes(at);
  AddJsonFlag(*explain, invocation);
  explain->footer(
      "Each node is counted once, under the first thing that keeps it: state, "
      "taint, accelerator, label, topology, resource.  What it lists as a "
      "change was tried on a copy of the cluster; the smallest is first.");
}

}  // namespace cohort::cli
