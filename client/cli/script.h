#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort::cli {

// How what `cohort run` names is started.
enum class ScriptKind {
  kByName,   // a .py file by Python, another as the program that it is
  kProgram,  // always as the program that it is
  kModule,   // by python3 -m
};

// The command that starts `program`, its name and arguments, from the current
// directory with this process's environment.  Python is python3 of VIRTUAL_ENV,
// else of CONDA_PREFIX, else on PATH, by its full path.  InvalidArgument,
// naming the fix, when there is no such file or program.
absl::StatusOr<std::vector<std::string>> CommandFor(
    std::vector<std::string> program, ScriptKind kind);

}  // namespace cohort::cli
