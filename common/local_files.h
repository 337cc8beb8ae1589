#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The files and directories that the command line of a daemon names, and what
// it takes when it names none.  Errors say which flag puts it right.
namespace cohort {

// /var/lib/cohort/NAME for root, else ~/.local/state/cohort/NAME: of HOME, or
// of the user database when that is not set.  InvalidArgument when the user has
// no home directory.
absl::StatusOr<std::string> DefaultStateDirectory(absl::string_view name);
// The same for --help: where it would be, or why nowhere.
std::string DefaultStateDirectoryText(absl::string_view name);

// Makes the directory of --state-dir, mode 0700, where it is missing.
// InvalidArgument when it cannot be one; ResourceExhausted: the disk is full.
absl::Status MakeStateDirectory(const std::string& path);

// Whether the file of --ready-file could be written: asked before a daemon does
// anything else.  OK for an empty path.  InvalidArgument otherwise.
absl::Status CheckReadyFile(const std::string& path);

// Removes what an earlier start left at --ready-file, so that nobody takes it
// for this one's.  For who holds the state directory's lock.
void RemoveOldReadyFile(const std::string& path);

}  // namespace cohort
