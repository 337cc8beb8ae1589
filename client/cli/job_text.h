#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/cli/table.h"
#include "client/job.h"

// Jobs as people read them.
namespace cohort::cli {

// Enough of the id of a job or node to name it again; an element's with its
// index.
std::string ShortId(absl::string_view id);

// As much of a reason as a table has room for.
std::string Shortened(const std::string& text);
// "12s", "1h30m", "26h": as exact as a table's reader cares for.
std::string RoundedAge(absl::Duration age);

// Lines of a program's, set in, with the indentation that they have.
std::string Indented(absl::string_view lines);

// A line a job; ages as of `now`.
std::string JobsTable(const std::vector<Job>& jobs, absl::Time now,
                      const TableView& view);

// Lines of a rank's log, set in; of those that overwrite themselves the last
// state.
std::string LogLines(absl::string_view lines);

// What the rank that failed first wrote last, each line set in; empty when
// nothing is known of it.
std::string TailText(const Job& job);

// Fields, then ranks, then what the failed rank wrote last.
std::string JobText(const Job& job, const TableView& view);

}  // namespace cohort::cli
