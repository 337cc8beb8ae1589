#pragma once

#include <optional>

#include "CLI/App.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/status_util.h"

// The command lines of cohort-head and cohort-worker.
namespace cohort {

// Reads the command line into what `app`, named as the program, defines; adds
// --version.  Gives the exit code when the program is to end: 0 after --help
// and --version, 2 after one line on stderr that names the flag and the fix.
// A flag whose value is empty is an error: a script whose variable is not set
// does not get the default by accident.
std::optional<int> ParseDaemonOptions(CLI::App& app, int argc,
                                      const char* const* argv);

// What `flag` says, or the error with its name.
template <typename T>
absl::StatusOr<T> Of(absl::string_view flag, absl::StatusOr<T> value) {
  if (!value.ok()) return Annotate(value.status(), flag);
  return value;
}

// Says why `app` cannot start, in one line on stderr.  Gives the exit code: 2
// for InvalidArgument, else 125.
int FailToStart(const CLI::App& app, const absl::Status& status);

}  // namespace cohort
