#include "client/cli/torchrun_flags.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "client/cli/command.h"
#include "client/cli/errors.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort::cli {
namespace {

constexpr int kNodesMax = 10'000;
constexpr int kLocalRankMax = 63;

// Flags of torchrun 2.15 that are refused, and why.
struct Refused {
  absl::string_view flags;  // separated by blanks
  absl::string_view why;
};
constexpr Refused kRefused[] = {
    {"--rdzv-backend --rdzv-endpoint --rdzv-id --rdzv-conf --master-addr "
     "--master-port --local-addr --node-rank",
     "cohort arranges the rendezvous of each attempt: leave it out"},
    {"-r --redirects", "output is always shown: --log-dir has it in files too"},
    {"--duplicate-stdout-filters --duplicate-stderr-filters --logs-specs",
     "filter what `cohort run` prints, or the files of --log-dir"},
    {"--log-line-prefix-template", "lines begin with [rank]"},
    {"--monitor-interval", "the end of a rank is seen at once: leave it out"},
    {"--start-method", "each rank is a program of its own: leave it out"},
    {"--run-path", "name the program after the flags"},
    {"--role", "there is one role, `default`: leave it out"},
    {"--event-log-handler", "`cohort events` shows what happens"},
    {"--numa-binding",
     "ranks with GPUs are bound to the CPUs of their GPUs already: leave it "
     "out"},
    {"--signals-to-handle",
     "SIGINT, SIGTERM, SIGHUP and SIGQUIT end the run: leave it out"},
    {"--virtual-local-rank", "LOCAL_RANK is the rank's place on its node"},
    {"--shutdown-timeout", "say it with --grace, as --grace 30s"},
};

absl::Status CheckMeaning(const std::string& flag) {
  for (const Refused& refused : kRefused) {
    const std::vector<absl::string_view> flags =
        absl::StrSplit(refused.flags, ' ');
    if (std::find(flags.begin(), flags.end(), flag) == flags.end()) continue;
    return UsageError(
        absl::StrCat(flag, " of torchrun has no meaning here: ", refused.why));
  }
  return absl::OkStatus();
}

// "--nproc_per_node=2" names --nproc-per-node, "-t3" names -t.
std::string NameIn(const std::string& argument) {
  if (!absl::StartsWith(argument, "--")) return argument.substr(0, 2);
  std::string name = argument.substr(0, argument.find('='));
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

void AddTorchrunFlags(CLI::App& run, TorchrunFlags& flags) {
  run.add_option("--nproc-per-node", flags.nproc_per_node,
                 "Ranks on each node: a number, or as many as it has (gpu, "
                 "cpu; auto: GPUs if it has any, else CPUs) (default: 1)")
      ->option_text("N|gpu|cpu|auto");
  run.add_option("--nnodes", flags.nnodes,
                 "Number of nodes, of a running cluster (default: 1)")
      ->option_text("N");
  run.add_option("--max-restarts", flags.max_restarts,
                 "Start all ranks again after up to N failures (default: 0)")
      ->option_text("N");
  run.add_flag("--standalone", flags.standalone,
               "Run on this machine alone, even if a cluster runs");
  run.add_flag("-m,--module", flags.module,
               "The program is a Python module, as for python3 -m");
  run.add_flag("--no-python", flags.no_python,
               "Execute a .py file itself, without a Python in front");
  run.add_option("--log-dir", flags.log_dir,
                 "Also write what the ranks print to "
                 "DIR/<job>/attempt_<n>/<rank>/stdout.log and stderr.log")
      ->option_text("DIR");
  run.add_option("-t,--tee", flags.tee,
                 "Which streams --log-dir gets: 1 stdout, 2 stderr, 3 both, 0 "
                 "none (default: 3)")
      ->option_text("N");
  run.add_option("--local-ranks-filter", flags.local_ranks_filter,
                 "Show the output of these ranks of each node only, as 0,1")
      ->option_text("N,...");
}

absl::StatusOr<std::optional<std::vector<std::string>>> CutProgram(
    const CLI::App& run, std::vector<std::string>& arguments) {
  size_t at = 1;
  for (; at < arguments.size(); ++at) {
    std::string& argument = arguments[at];
    if (argument.size() < 2 || argument.front() != '-') break;
    if (argument == "--") {
      arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(at));
      break;
    }
    const std::string name = NameIn(argument);
    COHORT_RETURN_IF_ERROR(CheckMeaning(name));
    argument.replace(0, name.size(), name);
    const CLI::Option* const option = run.get_option_no_throw(name);
    const bool has_value = argument.size() > name.size();
    if (option != nullptr && option->get_items_expected_max() > 0 &&
        !has_value) {
      ++at;
    }
  }
  if (at >= arguments.size()) return std::nullopt;
  const auto program = arguments.begin() + static_cast<ptrdiff_t>(at);
  std::vector<std::string> rest(std::make_move_iterator(program),
                                std::make_move_iterator(arguments.end()));
  arguments.erase(program, arguments.end());
  return rest;
}

absl::StatusOr<int> NodesOf(const TorchrunFlags& flags) {
  if (flags.nnodes.empty()) return 1;
  const std::pair<std::string, std::string> ends =
      absl::StrSplit(flags.nnodes, absl::MaxSplits(':', 1));
  const bool is_range = flags.nnodes.find(':') != std::string::npos;
  if (is_range && ends.first != ends.second) {
    return UsageError(absl::StrCat("--nnodes ", Shown(flags.nnodes),
                                   ": the number of nodes does not change "
                                   "while it runs: give one number"));
  }
  return ParseInt("--nnodes", ends.first, 1, kNodesMax);
}

absl::StatusOr<int> TeeOf(const TorchrunFlags& flags) {
  if (flags.tee.empty()) return 3;
  if (flags.tee.find(':') != std::string::npos) {
    return UsageError(
        absl::StrCat("--tee ", Shown(flags.tee),
                     ": it is the same for all ranks: give 0, 1, 2 or 3"));
  }
  return ParseInt("--tee", flags.tee, 0, 3);
}

absl::StatusOr<std::optional<std::set<int>>> ShownRanksOf(
    const TorchrunFlags& flags) {
  if (flags.local_ranks_filter.empty()) return std::nullopt;
  std::set<int> shown;
  const std::vector<std::string> ranks =
      absl::StrSplit(flags.local_ranks_filter, ',');
  for (const std::string& rank : ranks) {
    COHORT_ASSIGN_OR_RETURN(const int one, ParseInt("--local-ranks-filter",
                                                    rank, 0, kLocalRankMax));
    shown.insert(one);
  }
  return shown;
}

absl::Status CheckShownRanks(const std::optional<std::set<int>>& shown,
                             int ranks) {
  if (!shown.has_value() || *shown->rbegin() < ranks) return absl::OkStatus();
  return UsageError(absl::StrCat(
      "--local-ranks-filter: there is no local rank ", *shown->rbegin(),
      ": each node has ", ranks, ranks == 1 ? " rank, 0" : " ranks, 0 to ",
      ranks == 1 ? "" : absl::StrCat(ranks - 1)));
}

}  // namespace cohort::cli
