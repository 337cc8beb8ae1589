#pragma once

#include <string>

#include "CLI/App.hpp"
#include "absl/status/status.h"

#include "client/job.h"

namespace cohort::cli {

// --python PATH|none
void AddPythonFlag(CLI::App& command, std::string& python);

// Puts that interpreter first on the PATH of the job's ranks, with VIRTUAL_ENV
// or CONDA_PREFIX where it is of such a place, and COHORT_PYTHON, so that a
// worker without it refuses the ranks.  PATH is a python program, a venv or a
// conda prefix, of this machine or absolute.  InvalidArgument otherwise.
//
// When `python` is empty, the one of this shell's VIRTUAL_ENV or CONDA_PREFIX
// is taken and named on stderr (unless `quiet`), but not when the job sets PATH
// itself.  Workers then require it only when the job's command is a python.
absl::Status PutPython(const std::string& python, bool quiet, JobSpec& spec);

}  // namespace cohort::cli
