#pragma once

#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/log.h"
#include "examples/run_options.h"

// What an example says and how it ends.
namespace cohort::examples {

// A line for people on stdout, at once even through a pipe.  Thread-safe.
void Say(absl::string_view line);

// The exit code of what came of a run: 0; 2 for what the command line can mend,
// InvalidArgument and NotFound; else 1.  Errors are told on stderr behind the
// program's name.
int ExitCodeOf(const absl::Status& done);

// An example's main: `parse` gives options or an ExitNow, `run` takes the
// options.
template <typename Options, typename Run>
int RunProgram(const char* name, int argc, char** argv,
               std::variant<Options, ExitNow> (*parse)(int, char**),
               Run&& run) {
  SetLogProgram(name);
  const std::variant<Options, ExitNow> parsed = parse(argc, argv);
  if (const auto* exit_now = std::get_if<ExitNow>(&parsed)) {
    return exit_now->code;
  }
  return ExitCodeOf(run(std::get<Options>(parsed)));
}

}  // namespace cohort::examples
