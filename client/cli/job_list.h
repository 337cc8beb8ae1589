#pragma once

#include <string>
#include <vector>

#include "CLI/App.hpp"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "client/cli/command.h"
#include "client/cli/table.h"
#include "client/cluster.h"

// Jobs chosen by what they have in common, and listed: plain ones, actors, or
// groups of them.
namespace cohort::cli {

struct ChoiceFlags {
  std::vector<std::string> states;
  std::vector<std::string> labels;
  std::string name;
  std::string name_space;

  bool empty() const {
    return states.empty() && labels.empty() && name.empty() &&
           name_space.empty();
  }
};

struct ListFlags {
  ChoiceFlags choice;
  std::string array;
  std::string limit;
};

// How a noun lists the jobs that it names.
struct Listing {
  std::vector<JobKind> kinds;  // empty: any
  std::string (*table)(const std::vector<Job>&, absl::Time now,
                       const TableView&);
  std::string (*json)(const std::vector<Job>&);
};

std::vector<JobState> LiveStates();
std::vector<JobState> EndedStates();

// --state, --label, --name, --namespace.
void AddChoiceFlags(CLI::App& command, ChoiceFlags& flags);
// Those, --limit and what says how it looks.
void AddListFlags(CLI::App& list, ListFlags& flags, Invocation& invocation);

// InvalidArgument, naming the flag.
absl::StatusOr<ListOptions> ToListOptions(const ChoiceFlags& flags);

// What people look for among those chosen: all in the `live` states and the
// last 20 that have ended, newest first.
absl::StatusOr<JobList> ListWithLastEnded(const Cluster& cluster,
                                          ListOptions options,
                                          std::vector<JobState> live);

// Lists those chosen; where neither state nor number was, what has not ended
// and what ended last.
absl::StatusOr<int> ListJobs(const Invocation& invocation,
                             const ListFlags& flags, const Listing& listing);

}  // namespace cohort::cli
