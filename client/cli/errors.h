#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

// How the command fails: one message that names the thing and the fix, and an
// exit code that says whose turn it is.
namespace cohort::cli {

// What the command line got wrong.
absl::Status UsageError(absl::string_view message);

// What `flag` got wrong: "--since: why".
absl::Status FlagError(absl::string_view flag, const absl::Status& why);

// 2 for what the caller can fix in the command line (InvalidArgument), 124 for
// a deadline, 125 otherwise.  REQUIRES: !error.ok().
int ExitCodeFor(const absl::Status& error);

// "cohort: <message>", or with `json` {"code", "reason", "message"}; one line.
std::string ErrorText(const absl::Status& error, bool json);

// Writes that to stderr and gives the exit code.
int Fail(const absl::Status& error, bool json);

}  // namespace cohort::cli
