#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "client/cli/job_name.h"
#include "client/cli/job_text.h"
#include "client/json.h"
#include "client/message_text.h"
#include "common/exit_code.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::cli {
namespace {

// Two tools of 20 s each, and a node that is busy.
constexpr absl::Duration kStackDeadline = absl::Seconds(60);
// One after the other, each within a second where nothing is wrong.
constexpr int kRanksMax = 64;

struct StackFlags {
  std::string job;
  std::string rank;
};

// The ranks that have a process: all, or the one that the flag names.
absl::StatusOr<std::vector<int>> RanksFor(const Job& job,
                                          const StackFlags& flags) {
  if (!flags.rank.empty()) {
    COHORT_ASSIGN_OR_RETURN(const int rank,
                            ParseInt("--rank", flags.rank, 0, 9'999));
    return std::vector<int>{rank};
  }
  std::vector<int> ranks;
  for (const Rank& rank : job.ranks()) {
    if (rank.pid() != 0 && rank.state() != v1::PROCESS_STATE_EXITED) {
      ranks.push_back(rank.rank());
    }
  }
  if (ranks.size() > kRanksMax) {
    return UsageError(absl::StrCat("job ", IdText(job.job_id()), " has ",
                                   ranks.size(),
                                   " processes: name one by "
                                   "--rank (of more than ",
                                   kRanksMax, " they are not read at once)"));
  }
  if (!ranks.empty()) return ranks;
  return SetReason(absl::FailedPreconditionError(absl::StrCat(
                       "job ", IdText(job.job_id()),
                       " has no process now: it is not running (`cohort "
                       "explain` says why)")),
                   "no_process");
}

std::string StackText(const RankStack& stack) {
  return absl::StrCat("rank ", stack.rank().rank(), " on ",
                      OneLine(stack.rank().node_name()), ", pid ",
                      stack.rank().pid(), "\n", Indented(stack.text()));
}

// Each rank is tried; the first that could not be shown is the error.
absl::StatusOr<int> RunStack(const Invocation& invocation,
                             const StackFlags& flags) {
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          Connect(invocation, kReadDeadline));
  COHORT_ASSIGN_OR_RETURN(const JobId id, FindJob(*cluster, flags.job));
  COHORT_ASSIGN_OR_RETURN(const Job job, cluster->Get(id));
  COHORT_ASSIGN_OR_RETURN(const std::vector<int> ranks, RanksFor(job, flags));
  std::vector<RankStack> stacks;
  absl::Status first_failure;
  for (const int rank : ranks) {
    const absl::StatusOr<RankStack> stack =
        cluster->Stack(id, rank, kStackDeadline);
    first_failure.Update(stack.status());
    if (!stack.ok()) continue;
    if (!invocation.json) {
      COHORT_RETURN_IF_ERROR(PrintRaw(
          absl::StrCat(stacks.empty() ? "" : "\n", StackText(*stack))));
    }
    stacks.push_back(*stack);
  }
  if (invocation.json && !stacks.empty()) {
    COHORT_RETURN_IF_ERROR(Print(StacksJson(stacks)));
  }
  COHORT_RETURN_IF_ERROR(first_failure);
  return kExitOk;
}

}  // namespace

void AddStack(CLI::App& cohort, Invocation& invocation) {
  auto flags = std::make_shared<StackFlags>();
  CLI::App* stack = AddCommand(
      cohort, "stack",
      "Print the thread stacks of a job's or actor's processes", invocation,
      [&invocation, flags] { return RunStack(invocation, *flags); });
  AddJobArgument(*stack, flags->job);
  stack->add_option("--rank", flags->rank, "Of this rank (default: of all)")
      ->option_text("R");
  AddJsonFlag(*stack, invocation);
  stack->footer(
      "The workers ask eu-stack (Debian's package elfutils), and of a Python "
      "also py-spy (`pip install py-spy`) where it is installed.  A process is "
      "paused while its stacks are read.");
}

}  // namespace cohort::cli
