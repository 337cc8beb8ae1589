#include "client/cli/job_list.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "client/cli/completion.h"
#include "client/cli/errors.h"
#include "client/cli/job_flags.h"
#include "client/cli/job_name.h"
#include "common/exit_code.h"
#include "common/job_limits.h"
#include "common/printable_text.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

// The number of ended jobs shown, unless --state or --limit chooses.
constexpr size_t kEndedShown = 20;

std::vector<std::string> StateNames() {
  std::vector<std::string> names;
  for (int i = v1::JobState_MIN + 1; i <= v1::JobState_MAX; ++i) {
    names.push_back(EnumText(static_cast<JobState>(i)));
  }
  return names;
}

absl::StatusOr<JobState> ParseState(const std::string& text) {
  JobState state = v1::JOB_STATE_UNSPECIFIED;
  v1::JobState_Parse(absl::StrCat("JOB_STATE_", absl::AsciiStrToUpper(text)),
                     &state);
  if (state != v1::JOB_STATE_UNSPECIFIED) return state;
  return UsageError(absl::StrCat("--state ", Shown(text), ": give one of ",
                                 absl::StrJoin(StateNames(), ", ")));
}

}  // namespace

std::vector<JobState> LiveStates() {
  return {v1::JOB_STATE_PENDING, v1::JOB_STATE_STARTING, v1::JOB_STATE_RUNNING,
          v1::JOB_STATE_STOPPING};
}

std::vector<JobState> EndedStates() {
  return {v1::JOB_STATE_SUCCEEDED, v1::JOB_STATE_FAILED, v1::JOB_STATE_STOPPED};
}

void AddChoiceFlags(CLI::App& command, ChoiceFlags& flags) {
  CLI::Option* const state =
      command.add_option("--state", flags.states,
                         "Only those in this state, or in one of these; an "
                         "array counts as a whole");
  OfferValues(state, StateNames())
      ->option_text("STATE[,STATE]...")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--label", flags.labels,
                  "Only those with this label (may be given again: with all of "
                  "them)")
      ->option_text("K=V")
      ->allow_extra_args(false);
  command.add_option("--name", flags.name, "Only those with this name")
      ->option_text("S");
  command
      .add_option("--namespace", flags.name_space,
                  "Only those of this namespace")
      ->option_text("S");
}

void AddListFlags(CLI::App& list, ListFlags& flags, Invocation& invocation) {
  AddChoiceFlags(list, flags.choice);
  list.add_option("--limit", flags.limit,
                  "Only the newest N (default: those that have not ended and "
                  "the last 20; with --json 10000)")
      ->option_text("N");
  list.add_flag("--wide", invocation.wide, "As -o wide");
  AddOutputFlags(list, invocation);
}

absl::StatusOr<ListOptions> ToListOptions(const ChoiceFlags& flags) {
  ListOptions options;
  for (const std::string& text : flags.states) {
    COHORT_ASSIGN_OR_RETURN(const JobState state, ParseState(text));
    options.states.push_back(state);
  }
  COHORT_ASSIGN_OR_RETURN(options.labels, ParseLabels(flags.labels));
  options.name = flags.name;
  options.name_space = flags.name_space;
  if (!flags.name_space.empty()) {
    const absl::Status fits = CheckNamespace(flags.name_space);
    if (!fits.ok()) {
      return FlagError("--namespace", fits);
    }
  }
  return options;
}

absl::StatusOr<JobList> ListWithLastEnded(const Cluster& cluster,
                                          ListOptions options,
                                          std::vector<JobState> live) {
  options.states = std::move(live);
  COHORT_ASSIGN_OR_RETURN(JobList list, cluster.List(options));
  options.states = EndedStates();
  options.limit = kEndedShown;
  COHORT_ASSIGN_OR_RETURN(JobList ended, cluster.List(options));
  // A job that ended between the two calls is in both.
  std::erase_if(list.jobs, [&ended](const Job& job) {
    return std::any_of(
        ended.jobs.begin(), ended.jobs.end(),
        [&job](const Job& other) { return other.job_id() == job.job_id(); });
  });
  const auto middle = static_cast<ptrdiff_t>(list.jobs.size());
  list.jobs.insert(list.jobs.end(), std::make_move_iterator(ended.jobs.begin()),
                   std::make_move_iterator(ended.jobs.end()));
  std::inplace_merge(list.jobs.begin(), list.jobs.begin() + middle,
                     list.jobs.end(), [](const Job& a, const Job& b) {
                       return rpc::FromWire(a.submitted_at()) >
                              rpc::FromWire(b.submitted_at());
                     });
  list.is_cut = list.is_cut || ended.is_cut;
  return list;
}

absl::StatusOr<int> ListJobs(const Invocation& invocation,
                             const ListFlags& flags, const Listing& listing) {
  COHORT_ASSIGN_OR_RETURN(ListOptions options, ToListOptions(flags.choice));
  options.kinds = listing.kinds;
  if (!flags.limit.empty()) {
    COHORT_ASSIGN_OR_RETURN(const int limit,
                            ParseInt("--limit", flags.limit, 1, 10'000'000));
    options.limit = static_cast<size_t>(limit);
  }
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  if (!flags.array.empty()) {
    COHORT_ASSIGN_OR_RETURN(options.array, FindJob(*cluster, flags.array));
  }
  if (invocation.json) {
    COHORT_ASSIGN_OR_RETURN(const JobList list, cluster->List(options));
    COHORT_RETURN_IF_ERROR(Print(listing.json(list.jobs)));
    return kExitOk;
  }
  options.fold_arrays = !options.array.has_value();
  const bool chosen = !options.states.empty() || !flags.limit.empty() ||
                      options.array.has_value();
  COHORT_ASSIGN_OR_RETURN(
      const JobList list,
      chosen ? cluster->List(options)
             : ListWithLastEnded(*cluster, options, LiveStates()));
  COHORT_RETURN_IF_ERROR(PrintRaw(
      listing.table(list.jobs, MachineClock().Wall(), ViewFor(invocation))));
  if (list.is_cut) {
    std::fputs("cohort: there are more: --limit N shows the newest N\n",
               stderr);
  }
  return kExitOk;
}

}  // namespace cohort::cli
