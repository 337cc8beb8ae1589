#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

#include "client/cli/table.h"
#include "client/job.h"

// Jobs that are actors, or groups of them, in words of actors.
namespace cohort::cli {

// A line an actor or group.
std::string ActorsTable(const std::vector<Job>& actors, absl::Time now,
                        const TableView& view);
// A line a group, with how many of its actors run.
std::string GroupsTable(const std::vector<Job>& groups, absl::Time now,
                        const TableView& view);
// Fields, of a group then its actors by their places in it, then what one that
// failed wrote last.
std::string ActorText(const Job& actor, const TableView& view);

}  // namespace cohort::cli
