#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

// torchrun's command line, as `cohort run` takes it.
namespace cohort::cli {

// Those of torchrun's flags that mean something here, as typed; empty where
// they were not given.
struct TorchrunFlags {
  std::string nnodes;
  std::string nproc_per_node;
  std::string max_restarts;
  bool standalone = false;
  bool module = false;
  bool no_python = false;
  std::string log_dir;
  std::string tee;
  std::string local_ranks_filter;
};

void AddTorchrunFlags(CLI::App& run, TorchrunFlags& flags);

// Cuts what follows the flags of `run` off `arguments`, of which the first is
// the command's name: the program and its arguments, as they are.  Nothing when
// there is no program.  In the flags that stay `_` has become `-`.
// InvalidArgument, with the reason, for a flag of torchrun that has no meaning
// here.
absl::StatusOr<std::optional<std::vector<std::string>>> CutProgram(
    const CLI::App& run, std::vector<std::string>& arguments);

// How many nodes, of --nnodes: a number, also as torchrun's "2:2".
absl::StatusOr<int> NodesOf(const TorchrunFlags& flags);

// Which streams --log-dir gets, of --tee: bits 1 (stdout) and 2 (stderr).
absl::StatusOr<int> TeeOf(const TorchrunFlags& flags);

// Whose output is shown, of --local-ranks-filter; nothing: all.
absl::StatusOr<std::optional<std::set<int>>> ShownRanksOf(
    const TorchrunFlags& flags);
// InvalidArgument for one that a node with `ranks` of them does not have.
absl::Status CheckShownRanks(const std::optional<std::set<int>>& shown,
                             int ranks);

}  // namespace cohort::cli
